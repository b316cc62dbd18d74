"""The broker, opened on its log directories, composed of its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Final, Self, TypeVar

import attrs
import trio

from ..config.broker_config import BrokerConfig
from ..groups.coordinators.group_coordinator import GroupCoordinator
from ..logs.cleaner_process import OpenChild, open_child_process
from ..logs.compaction import Compaction, Scrub
from ..logs.configs import BrokerConfigs, ClientMetrics, GroupConfigs
from ..logs.gap_passes import Gaps
from ..logs.log_manager import LogManager, open_log_manager, run_maintenance
from ..logs.log_opening import Report
from ..logs.reader import LogReader
from ..logs.security import Security, open_security
from ..logs.segment_leases import SegmentLeases
from ..logs.wear import Wear
from ..logs.writer import LogWriter
from ..partitions.disk import Disk
from ..partitions.open_files import DescriptorBudget
from ..sharing.dead_letters import DeadLetterQueues
from ..sharing.partitions import SharePartitions
from ..sharing.state.values import ShareConfig
from ..sharing.views import ShareViews
from ..stages.stage_commits import StageCommits
from ..stages.stages import Stages
from ..storage.disk.filesystem import FileSystem, OsFileSystem
from ..system.client_memory import ClientMemory
from ..system.clock import NowMs, ServerClock, system_now_ms
from ..system.open_files import log_file_budget
from ..telemetry.instances import ClientInstances, Collected, Telemetry
from ..telemetry.otlp import load_otlp
from ..transactions.transaction_coordinator import TransactionCoordinator
from .coordinators import Coordinators, OffsetCommits, Producers, open_coordinators
from .logs import Directories, Logs
from .mirroring import Mirroring
from .share_fetches import ShareFetches
from .statistics import BrokerStatistics, Collector
from .topics import TopicAdmin

T = TypeVar("T")

SHARE_VERSION: Final = "share.version"
FIRST_WITH_QUEUES: Final = 2
"""The level of the feature from which on there are dead-letter queues (KIP-1191)."""


@attrs.frozen(eq=False, repr=False)
class Broker:
    """The interface for listeners and embedders, grouped by subject. Use `open_broker_core`. Everything here belongs to the
    trio thread that runs it. A call that fails raises RequestError."""

    cluster_id: str
    node_id: int
    now_ms: NowMs
    """The server's wall clock, ms since the epoch."""
    topics: TopicAdmin
    logs: Logs
    gaps: Gaps
    """What damage took out of them."""
    writer: LogWriter
    reader: LogReader
    groups: GroupCoordinator
    """Members of groups."""
    group_configs: GroupConfigs
    """What groups are configured with."""
    broker_configs: BrokerConfigs
    """Which of the server's keys were set while it runs."""
    client_metrics: ClientMetrics
    """Which metrics of clients are wanted."""
    telemetry: Telemetry
    """What has come of them."""
    offsets: OffsetCommits
    """What groups have committed."""
    shares: SharePartitions
    """What share groups have begun in partitions."""
    share_fetches: ShareFetches
    share_views: ShareViews
    producers: Producers
    transactions: TransactionCoordinator
    stages: Stages
    """Records that are staged and in no log yet."""
    stage_commits: StageCommits
    leases: SegmentLeases
    """Of segment files, for readers that share the directory."""
    directories: Directories
    scrub: Scrub
    wear: Wear
    """Of the disks below the log directories."""
    mirroring: Mirroring
    """Topics that are copied from another server."""
    disk: Disk
    security: Security
    """Who may log in, and who may do what."""
    _manager: LogManager
    _coordinators: Coordinators
    _compaction: Compaction

    @classmethod
    def of(
        cls,
        manager: LogManager,
        coordinators: Coordinators,
        compaction: Compaction,
        *,
        scrub: Scrub,
        wear: Wear,
        leases: SegmentLeases,
        security: Security,
        group_configs: GroupConfigs,
        broker_configs: BrokerConfigs,
        client_metrics: ClientMetrics,
    ) -> Self:
        committed, transactions = coordinators.committed_offsets, coordinators.transactions
        reader = LogReader(manager, manager.disk)
        writer = LogWriter(manager, manager.now_ms)

        def config_of(group: str) -> ShareConfig:
            config = ShareConfig.of(group_configs.of_group(group))
            has_queues = broker_configs.levels.get(SHARE_VERSION, FIRST_WITH_QUEUES) >= FIRST_WITH_QUEUES
            return config if has_queues else attrs.evolve(config, dead_letter_topic="")

        shares = SharePartitions(
            coordinators.share_state,
            manager.topics,
            reader.offset_for_time,
            manager.now_ms,
            config_of,
            write_dead_letters=DeadLetterQueues(manager, reader, writer, config_of).write,
            memory=manager.client_memory,
            max_sessions=manager.config.group_share_max_share_sessions,
        )
        share_coordinator = coordinators.group_coordinator.share
        share_coordinator.states = shares
        return cls(
            cluster_id=manager.log_directories.cluster_id,
            node_id=manager.log_directories.node_id,
            now_ms=manager.now_ms,
            topics=TopicAdmin(manager, committed, shares),
            logs=Logs(manager, compaction),
            gaps=Gaps(manager.topics, manager.gap_passes),
            writer=writer,
            reader=reader,
            groups=coordinators.group_coordinator,
            group_configs=group_configs,
            broker_configs=broker_configs,
            client_metrics=client_metrics,
            telemetry=Telemetry(
                ClientInstances(
                    manager.config.telemetry_max_bytes,
                    lambda: (client_metrics.subscriptions, client_metrics.version),
                    manager.client_memory.account("client instances"),
                ),
                Collected(account=manager.client_memory.account("client metrics")),
            ),
            offsets=OffsetCommits(committed, coordinators.group_coordinator, transactions),
            shares=shares,
            share_fetches=ShareFetches(shares, manager.topics, reader, manager.gap_passes),
            share_views=ShareViews(share_coordinator.partitions, shares, manager.topics, manager.now_ms),
            producers=Producers(manager, coordinators.producer_ids, transactions, coordinators.hanging),
            transactions=transactions,
            stages=coordinators.stage_commits.stages,
            stage_commits=coordinators.stage_commits,
            leases=leases,
            directories=Directories(manager),
            scrub=scrub,
            wear=wear,
            mirroring=Mirroring(manager, coordinators),
            disk=manager.disk,
            security=security,
            manager=manager,
            coordinators=coordinators,
            compaction=compaction,
        )

    @property
    def config(self) -> BrokerConfig:
        """As it is now."""
        return self._manager.config

    @property
    def client_memory(self) -> ClientMemory:
        """Return the accounts of memory held on behalf of clients."""
        return self._manager.client_memory

    def configure(self, config: BrokerConfig) -> None:
        """Have another configuration: it may differ from the one so far in LIVE_KEYS."""
        self.broker_configs.configure(config)

    async def in_steps(self, work: Generator[None, None, T]) -> T:
        """Run `work` and return its result. Other tasks run where it pauses, and only one large computation runs at a time."""
        return await self.disk.compute(work)

    async def statistics(self) -> BrokerStatistics:
        """Everything in numbers, for metrics and for people who watch. Takes 5 us for each partition, in turns."""
        collector = Collector(self._manager, self._coordinators)
        return await collector.collect(self.disk, self._compaction.counters, self.scrub, self.wear, self.mirroring)


@asynccontextmanager
async def open_broker_core(
    config: BrokerConfig,
    *,
    fs: FileSystem | None = None,
    now_ms: NowMs = system_now_ms,
    clock: ServerClock | None = None,
    open_child: OpenChild | None = None,
    report: Report | None = None,
) -> AsyncIterator[Broker]:
    """A broker on its log directories, without listeners. Leaving the block stops it in order. `open_child` starts what
    compacts and scrubs; without one these are processes, or where `fs` is not the system's nobody. `report` is told how far the
    start is. `clock`: checks the wall clock; without one the server's time is `now_ms`, whatever it says.

    Raises StorageError or OSError when the directories cannot be used.
    """
    fs = fs or OsFileSystem(config.data_permissions, syncs_together=True)
    if open_child is None and isinstance(fs, OsFileSystem):
        open_child = open_child_process
    disk = Disk(fs, DescriptorBudget(log_file_budget(config.max_connections)))
    clock = clock or ServerClock(now_ms, trio.current_time, is_checked=False)
    async with open_log_manager(config, disk, clock, report=report) as manager:
        await manager.nursery.start(run_maintenance, manager)
        compaction = Compaction(manager, open_child)
        manager.nursery.start_soon(compaction.run)
        security = await open_security(manager)
        group_configs = await GroupConfigs.open(manager)
        broker_configs = await BrokerConfigs.open(manager)
        client_metrics = await ClientMetrics.open(manager)
        if config.telemetry_enable:
            load_otlp()
        scrub = Scrub(manager, open_child)
        manager.nursery.start_soon(scrub.run)
        wear = Wear(manager)
        manager.nursery.start_soon(wear.run)
        leases = SegmentLeases(manager)
        await leases.load()
        manager.nursery.start_soon(leases.run)
        async with open_coordinators(manager, manager.now_ms, group_configs) as coordinators:
            broker = Broker.of(
                manager,
                coordinators,
                compaction,
                scrub=scrub,
                wear=wear,
                leases=leases,
                security=security,
                group_configs=group_configs,
                broker_configs=broker_configs,
                client_metrics=client_metrics,
            )
            manager.nursery.start_soon(broker.shares.run)
            try:
                yield broker
            finally:
                with trio.CancelScope(shield=True, deadline=manager.coordinators_stop_by()):
                    await broker.shares.stop()
