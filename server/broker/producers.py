"""Producers: their ids, and what partitions remember of them."""

from __future__ import annotations

import attrs

from ...protocol.types import TopicPartition
from ..actors.coordinators.hanging_transactions import HangingTransactions
from ..actors.coordinators.producer_ids import ProducerIds
from ..actors.coordinators.transaction_coordinator import TransactionCoordinator
from ..actors.manager.log_manager import LogManager
from ..storage.producers.producer_cursor import ProducerEntry


@attrs.frozen(eq=False, repr=False)
class Producers:
    """Idempotent producers, with a transactional id and without."""

    _manager: LogManager
    _ids: ProducerIds
    _transactions: TransactionCoordinator
    _hanging: HangingTransactions

    async def init(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """(producer id, epoch) for a producer that starts. With a transactional id whoever had it before is fenced off, and
        what it left open is aborted first; without one, the other arguments mean nothing. `expected`: id and epoch of a
        producer that goes on after an error (KIP-360). Raises RequestError."""
        if transactional_id is None:
            return await self._ids.next(), 0
        return await self._transactions.init_producer(transactional_id, timeout_ms, expected)

    def active(self, topic_partition: TopicPartition, *, open_only: bool = False) -> list[ProducerEntry]:
        """The producers that a partition remembers, by id; `open_only`: those that have a transaction open there. Raises
        RequestError."""
        producers = self._manager.topics.actor(topic_partition).log.producers
        if open_only:
            return [producers.entries[producer_id] for producer_id in sorted(producers.ongoing)]
        entries = producers.entries
        return [entries[producer_id] for producer_id in sorted(entries)]

    def may_have_owner(self, producer_id: int, topic_partition: TopicPartition) -> bool:
        """Whether what the producer has open on the partition belongs to a transactional id, as far as is known; otherwise it
        is hanging."""
        return self._transactions.ids.may_be_open(producer_id, topic_partition)

    async def abort_hanging(self, topic_partition: TopicPartition, producer_id: int) -> int:
        """Abort what a producer has open on a partition and no transactional id has; answers where it began. Raises
        RequestError."""
        return await self._hanging.abort(topic_partition, producer_id)
