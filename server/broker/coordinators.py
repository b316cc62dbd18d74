"""The life of the coordinators: they are loaded before the broker serves, looked after while it runs, and stopped before the
logs are (Kafka: GroupCoordinatorService, TransactionCoordinator).

Producers: their ids, and what partitions remember of them.

The offsets that groups commit, by themselves or in a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Self

import attrs
import trio

from ...protocol.coordinator.offsets import OFFSETS_TOPIC
from ...protocol.coordinator.share_group_records import SHARE_GROUP_STATE_TOPIC
from ...protocol.coordinator.stage_commits import STAGE_COMMITS_TOPIC
from ...protocol.coordinator.transactions import TRANSACTIONS_TOPIC
from ...protocol.errors import InvalidRequestError, RequestError
from ...protocol.limits import INT64_MAX
from ...protocol.types import TopicPartition
from ..groups.coordinators.group_coordinator import GroupCoordinator
from ..groups.values import NO_MEMBER, CommittingMember
from ..logs.configs import GroupConfigs
from ..logs.log_manager import LogManager
from ..offsets.committed_offsets import AnswerCommit, Commit, CommittedOffsets, GroupOffset
from ..offsets.offsets_topic import check_group
from ..partitions.partition import PartitionActor
from ..partitions.task_errors import TaskErrors
from ..sharing.state_log import ShareStateLog
from ..stages.stage_commits import StageCommits
from ..storage.producers.producer_cursor import ProducerEntry
from ..system.clock import NowMs
from ..transactions.hanging_transactions import HangingTransactions
from ..transactions.transaction_coordinator import TransactionCoordinator
from ..transactions.transactional_ids import ProducerIds

LOGGER: Final = logging.getLogger(__name__)

OVERDUE_CHECK_S: Final = 1.0
HANGING_CHECK_S: Final = 60.0
EXPIRY_CHECK_S: Final = 600.0
"""Kafka's offsets.retention.check.interval.ms. Nobody notices ten minutes of seven days."""


@attrs.define(eq=False, repr=False)
class Coordinators:
    """Owners of what is not one partition's. Use `open_coordinators`."""

    committed_offsets: CommittedOffsets
    group_coordinator: GroupCoordinator
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    hanging: HangingTransactions
    stage_commits: StageCommits
    share_state: ShareStateLog
    errors: TaskErrors
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _stopped: trio.Event = attrs.field(factory=trio.Event)

    @classmethod
    def of(cls, manager: LogManager, now_ms: NowMs, group_configs: GroupConfigs) -> Self:
        offsets, producer_ids = CommittedOffsets.of(manager, now_ms), ProducerIds(manager)
        group_coordinator = GroupCoordinator.of(manager.config, offsets, now_ms, group_configs)

        def marker_stored(topic_partition: TopicPartition, producer_id: int, commit: bool) -> None:
            if topic_partition.topic == OFFSETS_TOPIC:
                offsets.topic.end_transaction(topic_partition, producer_id, commit=commit)

        transactions = TransactionCoordinator.of(manager, now_ms, producer_ids, marker_stored)
        hanging = HangingTransactions(manager, now_ms, transactions.ids.may_be_open, marker_stored)
        stage_commits = StageCommits.of(manager, now_ms, producer_ids)
        share_state = ShareStateLog.of(manager, now_ms)
        return cls(
            offsets,
            group_coordinator,
            transactions,
            producer_ids,
            hanging,
            stage_commits,
            share_state,
            errors=manager.disk.errors,
        )

    async def load(self, manager: LogManager) -> None:
        """Read the logs, and carry out what was decided before the last stop."""
        await self.producer_ids.load()
        for hosted in manager.topics.hosted():
            self._see_producers(hosted.actor)
        manager.waiting.on_opened = self._load_late
        await self.committed_offsets.topic.load()
        manager.holds.committed = self.committed_offsets.offset_of
        await self.transactions.ids.load()
        await self.transactions.finish_overdue()
        await self.share_state.load()
        await self.stage_commits.load()
        await self.stage_commits.finish_overdue()
        self.group_coordinator.restore()

    def _see_producers(self, actor: PartitionActor) -> None:
        for producer_id in actor.log.producers.entries:
            self.producer_ids.saw(producer_id)

    async def move_producers_apart(self, promoted: Iterable[PartitionActor]) -> None:
        """Let producers go on with ids that the source of these mirrors has not given out (see `ProducerIds`). It is on the
        device when this returns. Raises RequestError."""
        for actor in promoted:
            self._see_producers(actor)
        await self.transactions.ids.see_producers()
        await self.producer_ids.move_apart()

    async def _load_late(self, actor: PartitionActor) -> None:
        """A log that could not be read at the start is served now."""
        self._see_producers(actor)
        topic_partition = actor.topic_partition
        if topic_partition.topic == OFFSETS_TOPIC:
            await self.committed_offsets.topic.load_partition(topic_partition)
            self.group_coordinator.restore()
        elif topic_partition.topic == TRANSACTIONS_TOPIC:
            await self.transactions.ids.load_partition(topic_partition)
        elif topic_partition.topic == STAGE_COMMITS_TOPIC:
            await self.stage_commits.load_log()
        elif topic_partition.topic == SHARE_GROUP_STATE_TOPIC:
            await self.share_state.load()

    async def run(self) -> None:
        """Run the periodic work until `stop`. The jobs do not wait for each other: each may take long."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.group_coordinator.run)
                    for name, period_s, job in (
                        ("stage-commits", OVERDUE_CHECK_S, partial(self._look_after_stages, nursery)),
                        ("hanging-transactions", HANGING_CHECK_S, partial(self.hanging.begin_overdue, nursery)),
                        ("offset-expiry", EXPIRY_CHECK_S, self._expire),
                        ("transaction-timeout", OVERDUE_CHECK_S, partial(self.transactions.begin_overdue, nursery)),
                    ):
                        nursery.start_soon(self.errors.repeat, name, partial(_then_sleep, job, period_s))
        finally:
            self._stopped.set()

    async def _look_after_stages(self, nursery: trio.Nursery) -> None:
        self.stage_commits.begin_overdue(nursery)
        await self.stage_commits.expire_stages()

    async def _expire(self) -> None:
        for name, expire, expired in (
            ("offset-expiry", self.group_coordinator.expire, "%d committed offsets have expired"),
            ("transactional-id-expiry", self.transactions.expire_ids, "%d transactional ids have expired"),
            (
                "stage-commit-expiry",
                self.stage_commits.expire,
                "the last commits of %d applications that stage records have expired",
            ),
        ):
            with self.errors.isolate(name):
                if count := await expire():
                    LOGGER.info(expired, count)

    async def stop(self) -> None:
        """End `run`; a step that it is in the middle of is done first. Members that wait are sent away. Cancelled: the step
        continues until the logs are given up."""
        self.group_coordinator.close()
        self._scope.cancel()
        await self._stopped.wait()


async def _then_sleep(job: Callable[[], Awaitable[object]], period_s: float) -> None:
    await job()
    await trio.sleep(period_s)


@asynccontextmanager
async def open_coordinators(manager: LogManager, now_ms: NowMs, group_configs: GroupConfigs) -> AsyncIterator[Coordinators]:
    """Loaded, running coordinators for the time of the block."""
    coordinators = Coordinators.of(manager, now_ms, group_configs)
    await coordinators.load(manager)
    manager.nursery.start_soon(coordinators.run)
    try:
        yield coordinators
    finally:
        with trio.CancelScope(shield=True, deadline=manager.coordinators_stop_by()) as in_time:
            await coordinators.stop()
        if in_time.cancelled_caught:
            LOGGER.error("coordinators did not finish before the stop deadline: abandoning their step")


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
        """Return whether the producer's open transaction on the partition belongs to a transactional id, as far as is known;
        otherwise it is hanging."""
        return self._transactions.ids.may_be_open(producer_id, topic_partition)

    async def abort_hanging(self, topic_partition: TopicPartition, producer_id: int) -> int:
        """Abort what a producer has open on a partition and no transactional id has; answers where it began. Raises
        RequestError."""
        return await self._hanging.abort(topic_partition, producer_id)


@attrs.frozen(eq=False, repr=False)
class OffsetCommits:
    """The committed offsets of groups. The `GroupCoordinator` owns the members."""

    _committed: CommittedOffsets
    _coordinator: GroupCoordinator
    _transactions: TransactionCoordinator

    async def commit(
        self,
        group: str,
        offsets: Sequence[Commit | tuple[TopicPartition, int, str | None]],
        *,
        transaction: tuple[str, int, int] | None = None,
        member: CommittingMember = NO_MEMBER,
    ) -> list[RequestError | None]:
        """Keep the offsets (of the record to be read next, with a note) of a group; one answer for each, in order.

        `transaction`, (transactional id, producer id, epoch): they count when it commits, and never if it aborts. `member`: who
        commits; without membership one can commit for groups without members, or in a transaction. Raises RequestError when
        none of them could be kept.
        """
        commits = [Commit(*each) for each in offsets]
        for commit in commits:
            if not -INT64_MAX - 1 <= commit.offset <= INT64_MAX:
                raise InvalidRequestError(f"offset {commit.offset} of {commit.topic_partition} does not fit 64 bits")
        if transaction is None:
            return await self._coordinator.commit(group, commits, member)
        transactional_id, producer_id, producer_epoch = transaction
        await self.join_transaction(transactional_id, producer_id, producer_epoch, group)
        return await self._coordinator.commit(group, commits, member, producer_id=producer_id, producer_epoch=producer_epoch)

    def try_commit(self, group: str, commits: Sequence[Commit], member: CommittingMember, answer: AnswerCommit) -> bool:
        """`commit` outside of a transaction, on the spot: what that answers or raises is given to `answer`, now or when it is
        stored. False, and nothing has happened: await `commit`. Raises RequestError."""
        return self._coordinator.try_commit(group, commits, member, answer)

    async def fetch(
        self, group: str, partitions: Sequence[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> list[tuple[TopicPartition, int, str]]:
        """(partition, committed offset, note) for these partitions, -1 where there is none; None: all that the group has.

        With `require_stable`, an offset that an open transaction may still change raises UNSTABLE_OFFSET_COMMIT. Raises
        RequestError.
        """
        return self._committed.fetch(group, partitions, require_stable=require_stable)

    def committed(self, group: str, partitions: Sequence[TopicPartition] | None = None) -> list[GroupOffset]:
        """Return the group's committed offsets for these partitions, in order, and which may still change. None means all
        partitions. Raises RequestError."""
        return self._committed.committed(group, partitions)

    def committed_partitions(self, group: str) -> list[TopicPartition]:
        """All partitions for which the group has committed something, in order. Raises RequestError."""
        return self._committed.committed_partitions(group)

    async def delete(self, group: str, partitions: Sequence[TopicPartition]) -> list[RequestError | None]:
        """Forget offsets of a group; one answer for each, in order. Those of topics that its members read stay
        (GROUP_SUBSCRIBED_TO_TOPIC). Raises RequestError for all of them."""
        return await self._coordinator.delete_offsets(group, partitions)

    # ---- in a transaction ------------------------------------------------------------------------------------------------

    async def join_transaction(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        """Let the offsets of a group join the producer's transaction; `commit` does it by itself. Raises RequestError."""
        check_group(group)
        await self._committed.topic.ensure()
        partition = self._committed.topic.partition_of(group)
        await self._transactions.add_partitions(transactional_id, producer_id, producer_epoch, [partition])

    def check_in_transaction(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        """Raises RequestError unless the offsets of a group have joined the producer's open transaction."""
        partition = self._committed.topic.partition_of(group)
        self._transactions.check_joined(transactional_id, producer_id, producer_epoch, [partition])
