"""A producer that transacts by Kafka's protocol, in the name of the movers, and believes late that it was fenced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import attrs
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition

from tests.support.kafka_server import produce_request

from ..history import Acknowledged, Ended, GivenUp, Introduced, Send, Sent
from ..script import Step
from .inhabitant import Inhabitant, KafkaConnection
from .producers import PAUSE_S, PRODUCE_VERSION, RETRIABLE

TRANSACTIONAL_ID: Final = "mover"
INIT_VERSION: Final = 4
ADD_VERSION: Final = 3
END_VERSION: Final = 3
TIMEOUT_MS: Final = 6000
ATTEMPTS: Final = 20
FENCED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@attrs.define(eq=False)
class KafkaMover(Inhabitant):
    """Adds all partitions first, waits, and sends. A step is one transaction."""

    _kafka: KafkaConnection = attrs.field(init=False)
    _identity: tuple[int, int] | None = None
    _incarnation: int = 0
    _transactions: int = 0
    _sequences: Counter[TopicPartition] = attrs.field(factory=Counter)
    _sent: int = 0

    def __attrs_post_init__(self) -> None:
        self._kafka = KafkaConnection(self.world)

    async def run(self, steps: list[Step]) -> None:
        try:
            await super().run(steps)
        finally:
            await self._kafka.close()

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
        asked = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self._insist(asked, INIT_VERSION, lambda answer: iter((answer.error_code,)))
        if answer is None or answer.error_code:
            return False
        self._identity = answer.producer_id, answer.producer_epoch
        self._incarnation += 1
        self._sequences.clear()
        self.world.add(
            Introduced(
                **self.now(),
                transactional_id=TRANSACTIONAL_ID,
                producer=self._name,
                producer_id=answer.producer_id,
                epoch=answer.producer_epoch,
            )
        )
        return True

    @property
    def _name(self) -> str:
        return f"{self.who}/{self._incarnation}"

    async def _add(self, parts: list[dict[str, Any]]) -> ErrorCode | None:
        """The first error that it was told; None: no answer."""
        assert self._identity is not None
        topics: dict[str, set[int]] = {}
        for part in parts:
            topics.setdefault(part["topic"], set()).add(part["partition"])
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=self._identity[0],
            v3_and_below_producer_epoch=self._identity[1],
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=sorted(found)) for topic, found in topics.items()
            ],
        )

        def errors(answer: Any) -> Iterator[int]:
            for topic in answer.results_by_topic_v3_and_below:
                yield from (result.partition_error_code for result in topic.results_by_partition)

        answer = await self._insist(request, ADD_VERSION, errors)
        return None if answer is None else ErrorCode(next(filter(None, errors(answer)), 0))

    async def _send(self, transaction: str, where: TopicPartition, count: int) -> ErrorCode | None:
        """What it was told; None: no answer. Then nobody may go on: what has the next sequence is out of sequence."""
        assert self._identity is not None
        records = tuple(Sent(f"{self.who}:{self._sent + number}", self.a_timestamp()) for number in range(count))
        self._sent += count
        self.world.add(Send(**self.now(), partition=where, producer=self._name, records=records, transaction=transaction))
        data = build_batch(
            [(each.timestamp, None, each.id.encode(), ()) for each in records],
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=self._sequences[where],
            is_transactional=True,
        )
        self._sequences[where] += count
        how = {"partition": where.partition, "timeout_ms": 5000, "transactional_id": TRANSACTIONAL_ID}
        request = produce_request(data, topic=where.topic, **how)
        answer = await self._insist(
            request, PRODUCE_VERSION, lambda answer: iter((answer.responses[0].partition_responses[0].error_code,))
        )
        ids = tuple(each.id for each in records)
        found = None if answer is None else answer.responses[0].partition_responses[0]
        error = None if found is None else ErrorCode(found.error_code)
        if found is None or error not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.world.add(GivenUp(**self.now(), ids=ids, error="no answer" if error is None else error.name))
            return error
        self.world.add(Acknowledged(**self.now(), partition=where, ids=ids, base_offset=found.base_offset))
        return ErrorCode.NONE

    async def _end(self, *, committed: bool) -> bool | None:
        """What became of the transaction; None: nobody knows."""
        assert self._identity is not None
        request = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            committed=committed,
        )
        answer = await self._insist(request, END_VERSION, lambda answer: iter((answer.error_code,)))
        return committed if answer is not None and not answer.error_code else None

    async def _insist(self, request: object, version: int, errors: Any) -> Any | None:
        """The answer of a request that is sent again until it is one for good; None: nobody knows."""
        for _ in range(ATTEMPTS):
            answer = await self._kafka.call(request, version)
            if answer is not None and not any(ErrorCode(error) in RETRIABLE for error in errors(answer)):
                return answer
            await trio.sleep(PAUSE_S)
        return None
