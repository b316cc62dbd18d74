"""Who transacts by Kafka's protocol: a producer in the name of the movers, which believes late that it was fenced; and one who
commits offsets of a group outside and inside of transactions by turns, where what came later counts, once it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.listeners.kafka.door import NO_TOPIC_ID

from tests.support.kafka_server import produce_request
from tests.support.kafka_wire import ask

from ..groups.events import MIXED, MixedCommit, MixedEnd
from ..history import Acknowledged, Ended, GivenUp, Introduced, Send, Sent
from .inhabitant import KafkaInhabitant
from .members import NOBODY, OFFSETS_VERSION, committed_offset, offset_commit
from .producers import PAUSE_S, PRODUCE_BY_ID_VERSION, PRODUCE_VERSION, RETRIABLE
from .readers import fields_of

INIT_VERSION: Final = 4
ADD_VERSION: Final = 3
END_VERSION: Final = 3
MIXED_VERSION: Final = 2
"""Of a mixer's requests about transactions."""
TIMEOUT_MS: Final = 6000
TRIES: Final = 20
MIXER_PAUSE_S: Final = 0.2
FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
PLACE: Final = TopicPartition("in", 0)


@attrs.define(eq=False)
class KafkaTransactional(KafkaInhabitant):
    TRANSACTIONAL_ID: ClassVar[str]

    _identity: tuple[int, int] | None = None

    @property
    def _whose(self) -> dict[str, Any]:
        """What requests about a transaction begin with."""
        assert self._identity is not None
        producer_id, epoch = self._identity
        return {"transactional_id": self.TRANSACTIONAL_ID, "producer_id": producer_id, "producer_epoch": epoch}

    @property
    def _introduction(self) -> Any:
        """What makes it the owner of its id, and aborts what the last one has left open."""
        return ask("InitProducerId", transactional_id=self.TRANSACTIONAL_ID, transaction_timeout_ms=TIMEOUT_MS)


@attrs.define(eq=False)
class KafkaMover(KafkaTransactional):
    """Adds all partitions first, waits, and sends. A step is one transaction."""

    TRANSACTIONAL_ID = "mover"

    _incarnation: int = 0
    _transactions: int = 0
    _sequences: Counter[TopicPartition] = attrs.field(factory=Counter)
    _sent: int = 0

    async def transaction(self, parts: list[dict[str, Any]], end: str, pause_ms: int, is_careless: bool) -> None:
        """A careless one goes on sending when it was told that it is fenced; it ends nothing then."""
        if self._identity is None and not await self._introduce():
            return
        self._transactions += 1
        name = f"{self.who} transaction {self._transactions}"
        told = await self._add(parts)
        await trio.sleep(pause_ms / 1000)
        for part in parts:
            is_good = told is ErrorCode.NONE
            if is_good or (is_careless and told in FENCED):
                answer = await self._send(name, TopicPartition(part["topic"], part["partition"]), part["count"])
                told = answer if is_good else told
        outcome = await self._end(committed=end == "commit") if told is ErrorCode.NONE else None
        self.world.add(Ended(**self.now(), transaction=name, is_committed=outcome))
        if outcome is None:
            self._identity = None

    async def _introduce(self) -> bool:
        answer = await self._insist(self._introduction, INIT_VERSION, lambda answer: iter((answer.error_code,)))
        if answer is None or answer.error_code:
            return False
        self._identity = answer.producer_id, answer.producer_epoch
        self._incarnation += 1
        self._sequences.clear()
        whose = {"transactional_id": self.TRANSACTIONAL_ID, "producer_id": answer.producer_id, "epoch": answer.producer_epoch}
        self.world.add(Introduced(**self.now(), **whose, producer=self._name))
        return True

    @property
    def _name(self) -> str:
        return f"{self.who}/{self._incarnation}"

    async def _add(self, parts: list[dict[str, Any]]) -> ErrorCode | None:
        """The first error that it was told; None: no answer."""
        topics: dict[str, set[int]] = {}
        for part in parts:
            topics.setdefault(part["topic"], set()).add(part["partition"])
        joined = [{"name": topic, "partitions": sorted(found)} for topic, found in topics.items()]
        fields = {**self._whose, "topics": joined}
        request = ask("AddPartitionsToTxn", **{f"v3_and_below_{name}": value for name, value in fields.items()})

        def errors(answer: Any) -> Iterator[int]:
            for topic in answer.results_by_topic_v3_and_below:
                yield from (result.partition_error_code for result in topic.results_by_partition)

        answer = await self._insist(request, ADD_VERSION, errors)
        return None if answer is None else ErrorCode(next(filter(None, errors(answer)), 0))

    async def _send(self, transaction: str, where: TopicPartition, count: int) -> ErrorCode | None:
        """What it was told; None: no answer. Then nobody may go on: what has the next sequence is out of sequence."""
        assert self._identity is not None
        records = tuple(Sent(self._id(self._sent + number), self.a_timestamp()) for number in range(count))
        self._sent += count
        self.world.add(Send(**self.now(), partition=where, producer=self._name, records=records, transaction=transaction))
        data = build_batch(
            [(each.timestamp, *fields_of(each.id)) for each in records],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=self._sequences[where],
            is_transactional=True,
        )
        self._sequences[where] += count
        answer = await self._produce(where, data)
        ids = tuple(each.id for each in records)
        found = None if answer is None else answer.responses[0].partition_responses[0]
        error = None if found is None else ErrorCode(found.error_code)
        if found is None or error not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.world.add(GivenUp(**self.now(), ids=ids, error="no answer" if error is None else error.name))
            return error
        self.world.add(Acknowledged(**self.now(), partition=where, ids=ids, base_offset=found.base_offset))
        return ErrorCode.NONE

    def _id(self, number: int) -> str:
        return f"{self.who}:{number}"

    async def _produce(self, where: TopicPartition, data: bytes, topic_id: bytes = NO_TOPIC_ID) -> Any | None:
        """The answer, None: nobody knows. With a topic id the topic is named by that."""
        how = {"partition": where.partition, "timeout_ms": 5000, "transactional_id": self.TRANSACTIONAL_ID}
        request = produce_request(data, topic=where.topic, topic_id=topic_id, **how)
        version = PRODUCE_VERSION if topic_id == NO_TOPIC_ID else PRODUCE_BY_ID_VERSION
        return await self._insist(
            request, version, lambda answer: iter((answer.responses[0].partition_responses[0].error_code,))
        )

    async def _end(self, *, committed: bool) -> bool | None:
        """What became of the transaction; None: nobody knows."""
        request = ask("EndTxn", **self._whose, committed=committed)
        answer = await self._insist(request, END_VERSION, lambda answer: iter((answer.error_code,)))
        return committed if answer is not None and not answer.error_code else None

    async def _insist(self, request: object, version: int, errors: Any) -> Any | None:
        """The answer of a request that is sent again until it is one for good; None: nobody knows."""
        for _ in range(TRIES):
            answer = await self.kafka.call(request, version)
            if answer is not None and not any(ErrorCode(error) in RETRIABLE for error in errors(answer)):
                return answer
            await trio.sleep(PAUSE_S)
        return None


@attrs.define(eq=False)
class Mixer(KafkaTransactional):
    """Its group has no members."""

    TRANSACTIONAL_ID = MIXED

    _next: int = 0

    async def mix(self, commits: str, end: str) -> None:
        """`commits`: inside (t) or outside (p), in this order. Then the transaction ends, and the group is asked."""
        if self._identity is None and not await self._introduce():
            return
        transaction = self._next
        outcome: bool | None = False
        for each in commits:
            self._next += 1
            is_kept = await (self._inside() if each == "t" else self._outside())
            self.world.add(
                MixedCommit(**self.now(), offset=self._next, transaction=transaction if each == "t" else None, is_kept=is_kept)
            )
            if is_kept is not True:
                self._identity = None
                break
        else:
            outcome = await self._end(committed=end == "commit")
        self.world.add(MixedEnd(**self.now(), transaction=transaction, is_committed=outcome))
        await self.ask()

    async def ask(self) -> None:
        await committed_offset(self.world, self.kafka, self.now, MIXED, PLACE, (None, NOBODY))

    async def _introduce(self) -> bool:
        for _ in range(TRIES):
            answer = await self.kafka.call(self._introduction, MIXED_VERSION)
            if answer is not None and not answer.error_code:
                self._identity = answer.producer_id, answer.producer_epoch
                return True
            await trio.sleep(MIXER_PAUSE_S)
        return False

    async def _inside(self) -> bool | None:
        """Whether the offset is kept for the transaction; None: not known."""
        answer = await self.kafka.call(ask("AddOffsetsToTxn", **self._whose, group_id=MIXED), MIXED_VERSION)
        if answer is None or answer.error_code:
            return None
        part = {"partition_index": PLACE.partition, "committed_offset": self._next, "committed_metadata": None}
        topics = [{"name": PLACE.topic, "partitions": [part]}]
        return _is_kept(
            await self.kafka.call(ask("TxnOffsetCommit", **self._whose, group_id=MIXED, topics=topics), MIXED_VERSION)
        )

    async def _outside(self) -> bool | None:
        return _is_kept(await self.kafka.call(offset_commit(MIXED, PLACE, self._next), OFFSETS_VERSION))

    async def _end(self, *, committed: bool) -> bool | None:
        """What became of the transaction; None: not known."""
        answer = await self.kafka.call(ask("EndTxn", **self._whose, committed=committed), MIXED_VERSION)
        if answer is None or answer.error_code:
            self._identity = None
            return None if committed else False
        return committed


def _is_kept(answer: Any) -> bool | None:
    return None if answer is None or answer.topics[0].partitions[0].error_code else True
