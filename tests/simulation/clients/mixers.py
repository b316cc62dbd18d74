"""One who commits offsets of a group outside and inside of transactions by turns: what came later counts, once it counts."""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio
from triolog.protocol.kafka.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from triolog.protocol.kafka.messages.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from triolog.protocol.types import TopicPartition

from ..groups.events import MIXED, MixedCommit, MixedEnd
from .inhabitant import Inhabitant, KafkaConnection
from .members import NOBODY, OFFSETS_VERSION, committed_offset

PLACE: Final = TopicPartition("in", 0)
INIT_VERSION: Final = 2
TXN_VERSION: Final = 2
TIMEOUT_MS: Final = 6000
TRIES: Final = 20
PAUSE_S: Final = 0.2


@attrs.define(eq=False)
class Mixer(Inhabitant):
    """See the module."""

    _kafka: KafkaConnection = attrs.field(init=False)
    _identity: tuple[int, int] | None = None
    _next: int = 0

    def __attrs_post_init__(self) -> None:
        self._kafka = KafkaConnection(self.world)

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
        await committed_offset(self.world, self._kafka, self.now, MIXED, PLACE, (None, NOBODY))

    async def run(self, steps: list[Any]) -> None:
        await super().run(steps)
        await self._kafka.close()

    async def _introduce(self) -> bool:
        """Also aborts what the last one has left open."""
        for _ in range(TRIES):
            request = InitProducerIdRequest(transactional_id=MIXED, transaction_timeout_ms=TIMEOUT_MS)
            answer = await self._kafka.call(request, INIT_VERSION)
            if answer is not None and not answer.error_code:
                self._identity = answer.producer_id, answer.producer_epoch
                return True
            await trio.sleep(PAUSE_S)
        return False

    async def _inside(self) -> bool | None:
        """Whether the offset is kept for the transaction; None: not known."""
        assert self._identity is not None
        producer_id, epoch = self._identity
        joins = AddOffsetsToTxnRequest(transactional_id=MIXED, producer_id=producer_id, producer_epoch=epoch, group_id=MIXED)
        answer = await self._kafka.call(joins, TXN_VERSION)
        if answer is None or answer.error_code:
            return None
        part = TxnOffsetCommitRequestPartition(
            partition_index=PLACE.partition, committed_offset=self._next, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=MIXED,
            group_id=MIXED,
            producer_id=producer_id,
            producer_epoch=epoch,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=PLACE.topic, topic_id=bytes(16), partitions=[part])],
        )
        answer = await self._kafka.call(request, TXN_VERSION)
        return None if answer is None or answer.topics[0].partitions[0].error_code else True

    async def _outside(self) -> bool | None:
        part = OffsetCommitRequestPartition(
            partition_index=PLACE.partition, committed_offset=self._next, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name=PLACE.topic, topic_id=bytes(16), partitions=[part])
        request = OffsetCommitRequest(group_id=MIXED, generation_id_or_member_epoch=NOBODY, member_id="", topics=[topic])
        answer = await self._kafka.call(request, OFFSETS_VERSION)
        return None if answer is None or answer.topics[0].partitions[0].error_code else True

    async def _end(self, *, committed: bool) -> bool | None:
        """What became of the transaction; None: not known."""
        assert self._identity is not None
        producer_id, epoch = self._identity
        request = EndTxnRequest(transactional_id=MIXED, producer_id=producer_id, producer_epoch=epoch, committed=committed)
        answer = await self._kafka.call(request, TXN_VERSION)
        if answer is None or answer.error_code:
            self._identity = None
            return None if committed else False
        return committed
