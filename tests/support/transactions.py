"""Producers with transactions, and readers that see committed records only, straight at the broker's door."""

from __future__ import annotations

from collections import Counter

import attrs
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.records.builder import build_batch
from triolog.protocol.records.record import iter_records
from triolog.protocol.types import Isolation, TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.log.append import AppendResult
from triolog.server.storage.lookups.fetch import fetch_batches

from tests.support.brokers import LARGE, actor_of
from tests.support.logs import START_MS

TIMEOUT_MS = 60_000


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
    snapshot, disk = actor_of(broker, partition).snapshot(), broker.disk
    found: list[str] = []
    offset = snapshot.log_start_offset
    while True:
        fetched = await disk.read(
            fetch_batches(snapshot, offset, LARGE, min_one_batch=True, isolation=Isolation.READ_COMMITTED)
        )
        batches = list(iter_batches(fetched.records))
        if not batches:
            return found
        for header, batch in batches:
            aborted = any(
                txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
                for txn in fetched.aborted or ()
            )
            if not header.is_control and not aborted:
                found += [(record.value or b"").decode() for record in iter_records(batch, header)]
        offset = batches[-1][0].next_offset


async def committed_offset(broker: Broker, group: str, partition: TopicPartition) -> int:
    """The group's offset, -1 for none."""
    [(_, offset, _)] = await broker.offsets.fetch(group, [partition])
    return offset


def is_stable(broker: Broker, partition: TopicPartition) -> bool:
    """No transaction is open on the partition."""
    snapshot = actor_of(broker, partition).snapshot()
    return snapshot.last_stable_offset == snapshot.high_watermark
