"""Broker statistics: logs, lags of groups, the device, the tasks in the background.

Each request collects them from integers that their owners keep anyway; meanwhile other tasks run. Counters count from the
start. Lists have a limit, so that neither a response nor a time series database grows with the number of topics and groups
that clients create; totals count everything.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
import trio

from ...protocol.errors import RequestError
from ...protocol.types import TopicPartition
from ..logs.cleaner_process import CleanerCounters
from ..logs.compaction import Scrub, ScrubStatistics
from ..logs.gap_passes import GapCounts
from ..logs.log_manager import LogManager
from ..logs.topics import HostedTopic, OfflinePartition
from ..logs.wear import Wear, WearStatistics
from ..partitions.disk import Disk, DiskStatistics
from ..partitions.partition import PartitionActor
from ..storage.log.derived_files import NOTHING_DROPPED, Dropped
from ..system.clock import ServerClock
from .coordinators import Coordinators
from .logs import Directories, DirectoryDescription
from .mirroring import Mirroring, MirrorProgress

MAX_TOPICS: Final = 500
MAX_PARTITIONS: Final = 1_000
MAX_LAGS: Final = 1_000
"""Told one by one: the first topics and partitions by name, the groups' partitions with the largest lags."""
MAX_OFFSETS: Final = 100_000
"""Committed offsets that are looked at for lags; those of groups behind in the alphabet are left out."""
LOGS_PER_TURN: Final = 64
OFFSETS_PER_TURN: Final = 256


@attrs.frozen(kw_only=True)
class PartitionFigures:
    """The figures of a partition; an offline one has its reason in `error`, and its other fields mean nothing."""

    topic: str
    partition: int
    error: str | None = None
    log_start_offset: int = -1
    high_watermark: int = -1
    log_end_offset: int = -1
    size_bytes: int = 0
    segments: int = 0
    unsynced_records: int = 0
    unsynced_ms: float = 0.0
    longest_unsynced_ms: float = 0.0
    """The largest that `unsynced_ms` has been since the start."""
    waiting_appends: int = 0
    dropped: Dropped = NOTHING_DROPPED


@attrs.define(kw_only=True)
class TopicFigures:
    """All partitions of one topic together. Changed while it is added up, then left alone."""

    topic: str
    partitions: int = 0
    offline: int = 0
    waiting: int = 0
    """Read, but closed to appends until there is space."""
    records: int = 0
    """Offsets between start and end; compaction and transactions leave some of them out."""
    appended_records: int = 0
    """Log end offsets, so the records since the topic was made."""
    size_bytes: int = 0
    appended_bytes: int = 0
    fetched_bytes: int = 0
    dropped_records: int = 0
    """Went though a group of `retention.hold.groups` had not committed them; since the logs were made."""
    dropped_bytes: int = 0
    gaps: int = 0
    """Ranges of offsets that damage took out, of those that are not deleted yet."""
    gap_records: int = 0
    """The offsets in them."""
    open_gaps: int = 0
    """Those of the ranges that nobody has accepted."""
    gap_passes: int = 0
    """Ranges that clients have passed over since the start, each once a client."""
    gap_refusals: int = 0
    """The same for those that a client was refused to pass over."""
    unsynced_ms: float = 0.0
    """The largest of any partition."""


@attrs.frozen
class GroupLag:
    """The committed offset of a group in a partition. Its lag counts the records that it has not read and that still exist."""

    group: str
    topic_partition: TopicPartition
    offset: int
    lag: int


@attrs.frozen(kw_only=True)
class DirectorySpace:
    """A log directory and its device."""

    description: DirectoryDescription
    free_bytes: int
    total_bytes: int


@attrs.frozen(kw_only=True)
class LogBound:
    """All logs together, and what keeps them small."""

    max_bytes: int
    """`log_max_bytes`; 0: no bound."""
    is_refusing: bool
    given_up_segments: int
    """Since the start, because the logs were above the bound."""
    given_up_bytes: int


@attrs.frozen
class ClockStatistics:
    """The server's clock (see `system/clock`)."""

    is_plausible: bool
    """False: the wall clock is wrong, and the server's time continues from the last trusted one."""
    is_trusted: bool
    """False: nothing expires by time."""
    jumps: int
    """Since the start."""
    ahead_ms: int
    """The server's time less the wall clock's."""


@attrs.frozen(kw_only=True)
class BrokerStatistics:
    """Everything at one moment, or nearly."""

    topics: tuple[TopicFigures, ...]
    topic_count: int
    total: TopicFigures
    partitions: tuple[PartitionFigures, ...]
    lags: tuple[GroupLag, ...]
    offset_count: int
    """Committed offsets that were looked at."""
    group_count: int
    total_lag: int
    group_gap_passes: Mapping[tuple[str, str], int]
    """By group and topic: ranges that damage took out and the group has passed over, since the start."""
    unsynced_records: int
    """What a power cut could take back, all partitions together."""
    waiting_appends: int
    open_transactions: int
    disk: DiskStatistics
    task_errors: Mapping[str, int]
    """Unhandled exceptions of background tasks, by task, since the start."""
    directories: tuple[DirectorySpace, ...]
    log_bound: LogBound
    cleaner: CleanerCounters
    scrub: ScrubStatistics
    taken_segments: int
    doomed_segments: int
    """Taken out of their logs and not unlinked yet."""
    wear: WearStatistics
    clock: ClockStatistics
    mirrors: tuple[MirrorProgress, ...]
    """By source: topics that are copied from another server."""


@attrs.define(eq=False, repr=False)
class Collector:
    """A single collection of all statistics. Owner: the task that requests it."""

    manager: LogManager
    coordinators: Coordinators
    topics: list[TopicFigures] = attrs.field(factory=list)
    total: TopicFigures = attrs.field(factory=lambda: TopicFigures(topic=""))
    partitions: list[PartitionFigures] = attrs.field(factory=list)
    unsynced_records: int = 0
    waiting_appends: int = 0
    doomed_segments: int = 0
    _logs: int = 0

    async def collect(
        self, disk: Disk, cleaner: CleanerCounters, scrub: Scrub, wear: Wear, mirroring: Mirroring
    ) -> BrokerStatistics:
        passes = self.manager.gap_passes.counts()
        for hosted in list(self.manager.topics):
            await self._add_topic(hosted, passes)
        names, lags = await self._lags()
        spaces = await disk.call(_spaces, Directories(self.manager).describe())
        return BrokerStatistics(
            topics=tuple(self.topics[:MAX_TOPICS]),
            topic_count=len(self.topics),
            total=self.total,
            partitions=tuple(self.partitions),
            lags=tuple(heapq.nlargest(MAX_LAGS, lags, key=lambda each: each.lag)),
            offset_count=len(lags),
            group_count=names,
            total_lag=sum(each.lag for each in lags),
            group_gap_passes=passes.groups,
            unsynced_records=self.unsynced_records,
            waiting_appends=self.waiting_appends,
            open_transactions=self.coordinators.transactions.ids.open_count + self.coordinators.hanging.count,
            disk=disk.statistics(),
            task_errors=dict(disk.errors.counts),
            directories=spaces,
            log_bound=_log_bound(self.manager),
            cleaner=attrs.evolve(cleaner),
            scrub=scrub.statistics(),
            taken_segments=self.manager.retention.taken_segments,
            doomed_segments=self.doomed_segments,
            wear=await wear.look(),
            clock=_clock(self.manager.clock),
            mirrors=mirroring.progress(),
        )

    # ---- logs ------------------------------------------------------------------------------------------------------------

    async def _add_topic(self, hosted: HostedTopic, passes: GapCounts) -> None:
        name = hosted.topic.name
        topic = TopicFigures(topic=name, gap_passes=passes.passed.get(name, 0), gap_refusals=passes.refused.get(name, 0))
        for number, partition in enumerate(list(hosted.partitions)):
            self._logs += 1
            if not self._logs % LOGS_PER_TURN:
                await trio.lowlevel.checkpoint()
            if isinstance(partition, OfflinePartition):
                self._add_offline(topic, number, partition.error.message)
            elif (offline := partition.actor.log.offline) is not None:
                self._add_offline(topic, number, offline.message)
            else:
                self._add_log(topic, number, partition.actor)
        self.topics.append(topic)
        _add(self.total, topic)

    def _add_offline(self, topic: TopicFigures, number: int, why: str) -> None:
        topic.partitions += 1
        topic.offline += 1
        if len(self.partitions) < MAX_PARTITIONS:
            self.partitions.append(PartitionFigures(topic=topic.topic, partition=number, error=why))

    def _add_log(self, topic: TopicFigures, number: int, actor: PartitionActor) -> None:
        log, done, size = actor.log, actor.statistics(), actor.log.size_in_bytes
        unsynced = max(0, log.log_end_offset - log.recovery_point)
        self.unsynced_records += unsynced
        self.waiting_appends += done.waiting_commands
        self.doomed_segments += len(log.doomed)
        topic.partitions += 1
        topic.waiting += log.waiting is not None
        topic.records += log.log_end_offset - log.log_start_offset
        topic.appended_records += log.log_end_offset
        topic.size_bytes += size
        topic.appended_bytes += done.appended_bytes
        topic.fetched_bytes += done.fetched_bytes
        topic.dropped_records += log.derived.dropped.records
        topic.dropped_bytes += log.derived.dropped.size_bytes
        for gap in log.gaps:
            if gap.end_offset > log.log_start_offset:
                topic.gaps += 1
                topic.gap_records += gap.end_offset - max(gap.start_offset, log.log_start_offset)
                topic.open_gaps += not gap.is_accepted
        topic.unsynced_ms = max(topic.unsynced_ms, done.unsynced_ms)
        if len(self.partitions) < MAX_PARTITIONS:
            self.partitions.append(
                PartitionFigures(
                    topic=topic.topic,
                    partition=number,
                    log_start_offset=log.log_start_offset,
                    high_watermark=log.high_watermark,
                    log_end_offset=log.log_end_offset,
                    size_bytes=size,
                    segments=len(log.segments),
                    unsynced_records=unsynced,
                    unsynced_ms=done.unsynced_ms,
                    longest_unsynced_ms=done.longest_unsynced_ms,
                    waiting_appends=done.waiting_commands,
                    dropped=log.derived.dropped,
                )
            )

    # ---- groups ----------------------------------------------------------------------------------------------------------

    async def _lags(self) -> tuple[int, list[GroupLag]]:
        """Return the number of groups, and their lags."""
        offsets = self.coordinators.committed_offsets
        names, looked = sorted(offsets.topic.names()), 0
        lags: list[GroupLag] = []
        for name in names:
            try:
                committed = offsets.fetch(name, None, require_stable=False)
            except RequestError:
                continue
            for topic_partition, offset, _ in committed:
                looked += 1
                if looked > MAX_OFFSETS:
                    return len(names), lags
                if not looked % OFFSETS_PER_TURN:
                    await trio.lowlevel.checkpoint()
                lag = self._lag(topic_partition, offset)
                if lag is not None:
                    lags.append(GroupLag(name, topic_partition, offset, lag))
        return len(names), lags

    def _lag(self, topic_partition: TopicPartition, offset: int) -> int | None:
        try:
            log = self.manager.topics.actor(topic_partition).log
        except RequestError:
            return None
        return max(0, log.high_watermark - max(offset, log.log_start_offset))


def _add(total: TopicFigures, topic: TopicFigures) -> None:
    for name in _SUMS:
        setattr(total, name, getattr(total, name) + getattr(topic, name))
    total.unsynced_ms = max(total.unsynced_ms, topic.unsynced_ms)


_SUMS: Final = [field.name for field in attrs.fields(TopicFigures) if field.name not in ("topic", "unsynced_ms")]


def _log_bound(manager: LogManager) -> LogBound:
    total = manager.guard.total
    return LogBound(
        max_bytes=manager.config.log_max_bytes,
        is_refusing=total.is_refusing,
        given_up_segments=total.given_up_segments,
        given_up_bytes=total.given_up_bytes,
    )


def _spaces(directories: Iterable[DirectoryDescription]) -> tuple[DirectorySpace, ...]:
    """Blocks. A device that does not answer has 0 of 0 bytes."""
    spaces = []
    for directory in directories:
        free = total = 0
        if directory.error is None:
            try:
                told = os.statvfs(directory.path)
                free, total = told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize
            except OSError:
                pass
        spaces.append(DirectorySpace(description=directory, free_bytes=free, total_bytes=total))
    return tuple(spaces)


def _clock(clock: ServerClock) -> ClockStatistics:
    return ClockStatistics(clock.is_plausible, clock.is_trusted, clock.jumps, clock.now_ms() - clock.wall_ms())
