"""Producers with transactions, and readers that see committed records only, straight at the broker's door."""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import AppendResult, Isolation, TopicPartition
from triolog.server.broker import Broker, ReaderView

from tests.support.brokers import actor_of, batches_from
from tests.support.logs import START_MS

TIMEOUT_MS = 60_000
COMMITTED: Final = ReaderView(isolation=Isolation.READ_COMMITTED)


@attrs.define(eq=False)
class TransactionalProducer:
    """One instance of a producer; `start` fences off the one before."""

    broker: Broker
    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequences: Counter[TopicPartition] = attrs.field(factory=Counter)

    @classmethod
    async def start(
        cls, broker: Broker, transactional_id: str = "mover", *, timeout_ms: int = TIMEOUT_MS
    ) -> TransactionalProducer:
        return cls(broker, transactional_id, *await broker.producers.init(transactional_id, timeout_ms))

    @property
    def identity(self) -> tuple[str, int, int]:
        return self.transactional_id, self.producer_id, self.producer_epoch

    async def produce(self, partition: TopicPartition, text: str) -> AppendResult:
        """One record in the transaction, as a listener does it: join, then append."""
        await self.broker.transactions.add_partitions(*self.identity, [partition])
        batch = build_batch(
            [(START_MS, None, text.encode(), ())],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequences[partition],
            is_transactional=True,
        )
        result = await self.broker.writer.append(partition, batch)
        self.sequences[partition] += 1
        return result

    async def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        [error] = await self.broker.offsets.commit(group, [(partition, offset, None)], transaction=self.identity)
        assert error is None

    async def commit(self) -> None:
        await self.broker.transactions.end(*self.identity, commit=True)

    async def abort(self) -> None:
        await self.broker.transactions.end(*self.identity, commit=False)


async def committed_values(broker: Broker, partition: TopicPartition) -> list[str]:
    """Values that a reader of committed records sees."""
    start = actor_of(broker, partition).log.log_start_offset
    return [
        (record.value or b"").decode()
        async for header, batch, is_aborted in batches_from(broker, partition, start, view=COMMITTED)
        if not (header.is_control or is_aborted)
        for record in iter_records(batch, header)
    ]


async def committed_offset(broker: Broker, group: str, partition: TopicPartition) -> int:
    """The group's offset, -1 for none."""
    [(_, offset, _)] = await broker.offsets.fetch(group, [partition])
    return offset


def is_stable(broker: Broker, partition: TopicPartition) -> bool:
    """No transaction is open on the partition."""
    snapshot = actor_of(broker, partition).snapshot()
    return snapshot.last_stable_offset == snapshot.high_watermark
