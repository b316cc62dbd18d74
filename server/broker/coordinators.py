"""The life of the coordinators: they are loaded before the broker serves, looked after while it runs, and stopped before the
logs are (Kafka: GroupCoordinatorService, TransactionCoordinator).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Self

import attrs
import trio

from ...protocol.coordinator.offsets import OFFSETS_TOPIC
from ...protocol.coordinator.share_group_records import SHARE_GROUP_STATE_TOPIC
from ...protocol.coordinator.stage_commits import STAGE_COMMITS_TOPIC
from ...protocol.coordinator.transactions import TRANSACTIONS_TOPIC
from ...protocol.types import TopicPartition
from ..actors.coordinators.committed_offsets import CommittedOffsets
from ..actors.coordinators.hanging_transactions import HangingTransactions
from ..actors.coordinators.producer_ids import ProducerIds
from ..actors.coordinators.transaction_coordinator import TransactionCoordinator
from ..actors.disk.task_errors import TaskErrors
from ..actors.manager.log_manager import LogManager
from ..actors.manager.state.group_configs import GroupConfigs
from ..actors.partition.partition import PartitionActor
from ..actors.stages.stage_commits import StageCommits
from ..groups.coordinators.group_coordinator import GroupCoordinator
from ..sharing.state_log import ShareStateLog
from ..system.clock import NowMs

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
        """What is due from time to time, until `stop`. None of it waits for the rest: each may take long."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._look_after_stages, nursery)
                    nursery.start_soon(self.group_coordinator.run)
                    nursery.start_soon(self._look_after_hanging, nursery)
                    nursery.start_soon(self._look_after_expiry)
                    await self._look_after_transactions(nursery)
        finally:
            self._stopped.set()

    async def _look_after_stages(self, nursery: trio.Nursery) -> None:

        async def step() -> None:
            self.stage_commits.begin_overdue(nursery)
            await self.stage_commits.expire_stages()
            await trio.sleep(OVERDUE_CHECK_S)

        await self.errors.repeat("stage-commits", step)

    async def _look_after_hanging(self, nursery: trio.Nursery) -> None:

        async def step() -> None:
            await self.hanging.begin_overdue(nursery)
            await trio.sleep(HANGING_CHECK_S)

        await self.errors.repeat("hanging-transactions", step)

    async def _look_after_expiry(self) -> None:

        async def step() -> None:
            await self._expire()
            await trio.sleep(EXPIRY_CHECK_S)

        await self.errors.repeat("offset-expiry", step)

    async def _look_after_transactions(self, nursery: trio.Nursery) -> None:

        async def step() -> None:
            await self.transactions.begin_overdue(nursery)
            await trio.sleep(OVERDUE_CHECK_S)

        await self.errors.repeat("transaction-timeout", step)

    async def _expire(self) -> None:
        with self.errors.isolate("offset-expiry"):
            if offsets := await self.group_coordinator.expire():
                LOGGER.info("%d committed offsets have expired", offsets)
        with self.errors.isolate("transactional-id-expiry"):
            if ids := await self.transactions.expire_ids():
                LOGGER.info("%d transactional ids have expired", ids)
        with self.errors.isolate("stage-commit-expiry"):
            if applications := await self.stage_commits.expire():
                LOGGER.info("the last commits of %d applications that stage records have expired", applications)

    async def stop(self) -> None:
        """End `run`; a step that it is in the middle of is done first. Members that wait are sent away. Cancelled: the step
        continues until the logs are given up."""
        self.group_coordinator.close()
        self._scope.cancel()
        await self._stopped.wait()


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
            LOGGER.error("a step of the coordinators takes too long for the stop and is given up with the logs")
