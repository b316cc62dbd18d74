"""The broker, opened on its log directories, and what it says of itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs

from ...protocol.types import TopicPartition
from ..actors.compaction import Compaction
from ..actors.coordinators import Coordinators, open_coordinators
from ..actors.descriptions import (
    DirectoryContents,
    DirectoryDescription,
    describe_directories,
    directory_contents,
)
from ..actors.descriptors import DescriptorBudget
from ..actors.disk import Disk, DiskStatistics
from ..actors.log_manager import open_log_manager
from ..actors.log_opening import Report
from ..actors.maintenance import run_maintenance
from ..actors.partition import PartitionStatistics
from ..actors.scrub import Scrub, ScrubStatistics
from ..actors.security import Security, open_security
from ..actors.segment_leases import SegmentLeases
from ..actors.statistics import BrokerStatistics, Collector
from ..broker_config import BrokerConfig
from ..clock import NowMs, system_now_ms
from ..open_files import log_file_budget
from ..storage.filesystem import FileSystem, OsFileSystem
from .appends import AppendCalls
from .groups import GroupCalls
from .stages import StageCalls
from .topics import TopicCalls

T = TypeVar("T")


@attrs.define(eq=False)
class Broker(AppendCalls, TopicCalls, GroupCalls, StageCalls):
    """See the package. Each base has the calls of one kind, `Reader` those that read. Use `open_broker_core`; every method
    belongs to the trio thread that runs it."""

    config: BrokerConfig
    _now_ms: NowMs
    _coordinators: Coordinators
    _scrub: Scrub
    _leases: SegmentLeases
    _compaction: Compaction
    security: Security
    """Who may log in, and who may do what."""

    async def in_steps(self, work: Generator[None, None, T]) -> T:
        """What `work` returns. Where it pauses others have their turn, and of what is large one is done at a time."""
        return await self._disk.compute(work)

    def now_ms(self) -> int:
        """The server's wall clock, ms since the epoch."""
        return self._now_ms()

    @property
    def cluster_id(self) -> str:
        return self._manager.cluster_id

    @property
    def node_id(self) -> int:
        return self._manager.node_id

    # ---- what it says of itself --------------------------------------------------------------------------------------------

    async def statistics(self) -> BrokerStatistics:
        """Everything in numbers, for metrics and for people who watch. Takes 5 us for each partition, in turns."""
        return await Collector(self._manager, self._coordinators).collect(self._disk, self._compaction.counters, self._scrub)

    def partition_statistics(self, topic_partition: TopicPartition) -> PartitionStatistics:
        return self._manager.topics.actor(topic_partition).statistics()

    def disk_statistics(self) -> DiskStatistics:
        return self._disk.statistics()

    def scrub_statistics(self) -> ScrubStatistics:
        return self._scrub.statistics()

    def log_directories(self) -> list[DirectoryDescription]:
        """Every log directory: whether it serves, what lies there unserved, and how its reserve stands."""
        return describe_directories(self._manager)

    async def directory_contents(self) -> list[DirectoryContents]:
        """Every log directory: the partitions that are served from it, their sizes, and the room on its device."""
        return await directory_contents(self._manager)

    def directory_of(self, topic_partition: TopicPartition) -> str:
        """The log directory that holds a partition. Raises RequestError."""
        return self._manager.topics.partition(topic_partition).directory.path


@asynccontextmanager
async def open_broker_core(
    config: BrokerConfig, *, fs: FileSystem | None = None, now_ms: NowMs = system_now_ms, report: Report | None = None
) -> AsyncIterator[Broker]:
    """A broker on its log directories, without listeners. Leaving the block stops it in order. `report` is told how far the
    start is.

    Raises StorageError or OSError when the directories cannot be used.
    """
    disk = Disk(fs or OsFileSystem(config.data_permissions), DescriptorBudget(log_file_budget(config.max_connections)))
    async with open_log_manager(config, disk, now_ms, report=report) as manager:
        manager.nursery.start_soon(run_maintenance, manager)
        compaction = Compaction(manager)
        manager.nursery.start_soon(compaction.run)
        security = await open_security(manager)
        scrub = Scrub(manager)
        manager.nursery.start_soon(scrub.run)
        leases = SegmentLeases(manager)
        await leases.load()
        manager.nursery.start_soon(leases.run)
        async with open_coordinators(manager, now_ms) as coordinators:
            yield Broker(manager, disk, config, now_ms, coordinators, scrub, leases, compaction, security)
