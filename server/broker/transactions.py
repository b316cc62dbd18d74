"""Producers and their transactions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...protocol.coordinator.transactions import TransactionLogValue
from ...protocol.types import TopicPartition
from ..actors.coordinators import Coordinators
from ..actors.groups import check_group
from ..actors.reader import Reader
from ..storage.producer_entry import ProducerEntry


class TransactionCalls(Reader):
    """See `actors.transactions` for what happens."""

    __slots__ = ()
    _coordinators: Coordinators

    async def init_producer(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """(producer id, epoch) for a producer that starts. With a transactional id whoever had it before is fenced off, and
        what it left open is aborted first; without one, the other arguments mean nothing. `expected`: id and epoch of a
        producer that goes on after an error (KIP-360). Raises RequestError."""
        if transactional_id is None:
            return await self._coordinators.producer_ids.next(), 0
        return await self._coordinators.transactions.init_producer(transactional_id, timeout_ms, expected)

    async def add_partitions_to_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """Let partitions join the producer's transaction; call it before each transactional append.

        When this returns they have joined, and what the caller enqueues before its next `await` comes before the
        transaction's marker. Does not wait when they had joined before. Raises RequestError: for all of them or none.
        """
        await self._coordinators.transactions.add_partitions(transactional_id, producer_id, producer_epoch, partitions)

    async def add_offsets_to_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group: str
    ) -> None:
        """Let the offsets of a group join the producer's transaction; `commit_offsets` does it by itself."""
        groups = self._coordinators.groups
        check_group(group)
        await groups.ensure_topic()
        await self.add_partitions_to_transaction(transactional_id, producer_id, producer_epoch, [groups.partition_of(group)])

    def check_group_in_transaction(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        """Raises RequestError unless the offsets of a group have joined the producer's open transaction."""
        partition = self._coordinators.groups.partition_of(group)
        self.check_in_transaction(transactional_id, producer_id, producer_epoch, [partition])

    def check_in_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> None:
        """Raises RequestError unless these partitions have joined the producer's open transaction."""
        self._coordinators.transactions.check_joined(transactional_id, producer_id, producer_epoch, partitions)

    async def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, commit: bool, client_version: int = 0
    ) -> tuple[int, int]:
        """Commit or abort the producer's transaction; every partition of it has its marker when this returns. To end it the
        same way again is fine. Answers id and epoch of the producer for what comes next: they are others from
        `client_version` 2 on (KIP-890). Raises RequestError."""
        return await self._coordinators.transactions.end(
            transactional_id, producer_id, producer_epoch, commit=commit, client_version=client_version
        )

    async def write_marker(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
    ) -> None:
        """End by hand what a producer has open on one partition, whatever its transaction's state says (KIP-664). Raises
        RequestError."""
        await self._coordinators.transactions.write_marker(
            topic_partition, producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch
        )

    def active_producers(self, topic_partition: TopicPartition) -> list[ProducerEntry]:
        """The producers that a partition remembers. Raises RequestError."""
        self.snapshot(topic_partition)
        entries = self._manager.topics.actor(topic_partition).log.producers.entries
        return [entries[producer_id] for producer_id in sorted(entries)]

    def transaction(self, transactional_id: str) -> TransactionLogValue | None:
        """The state of a transactional id; None when it is not known. Raises RequestError."""
        return self._coordinators.transactions.state(transactional_id)

    def transactions(self) -> Iterator[tuple[str, TransactionLogValue]]:
        """Every transactional id with its state."""
        return self._coordinators.transactions.states()
