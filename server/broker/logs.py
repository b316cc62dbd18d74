"""Logs apart from appends and reads: delete records, expire and compact segments; and the log directories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
import trio

from ...protocol.errors import RequestError
from ...protocol.types import TopicPartition
from ..logs.compaction import Compaction
from ..logs.log_manager import LogManager
from ..partitions.partition import PartitionActor, PartitionStatistics
from ..storage.directory.log_directory import LogDirectory
from ..storage.log.changes import raise_leader_epoch
from ..storage.log.log import LogSnapshot

PARTITIONS_PER_TURN: Final = 256


@attrs.frozen(kw_only=True)
class LogDescription:
    """A log at one moment, for people who look at it."""

    snapshot: LogSnapshot
    recovery_point: int
    """Up to where, exclusive, it is on the device."""
    clean_up_to: int | None
    """Up to where it is compacted; None where it was not, or that is not known yet."""
    waiting: RequestError | None
    """Why it takes no appends though it is read."""


@attrs.frozen(eq=False, repr=False)
class Logs:
    """See the module. Every method but `apply_retention` is about one partition, or a list of them."""

    _manager: LogManager
    _compaction: Compaction

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete the records below `before_offset` (-1: below the high watermark) and answer the log start offset. Readers
        do not see them any more, also after a power cut; the files go later. Raises RequestError."""
        [answer] = await self.delete_records_of([(topic_partition, before_offset)])
        if isinstance(answer, RequestError):
            raise answer
        return answer

    async def delete_records_of(self, wanted: Sequence[tuple[TopicPartition, int]]) -> list[int | RequestError]:
        """`delete_records` for many partitions, answered in the order asked; each succeeds or fails alone. A hundred cost
        little more than one: what a log directory knows of its logs is written once."""
        return await self._manager.retention.delete_records(wanted)

    def actor(self, topic_partition: TopicPartition) -> PartitionActor:
        """Return the owner of a partition's log, for brokers of tests. Raises RequestError."""
        return self._manager.topics.actor(topic_partition)

    async def raise_leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Begin the next leader epoch of a partition, as a new leader does, and answer it. Raises RequestError."""
        return await self._manager.topics.actor(topic_partition).perform(raise_leader_epoch)

    async def apply_retention(self) -> int:
        """Apply retention now, and answer how many segments were taken out."""
        return await self._manager.retention.run_pass()

    async def compact(self, topic_partition: TopicPartition) -> int:
        """Compact a partition now, its newest records too, however little of it is dirty; answers how many rounds that took.
        What is undecided or younger than min.compaction.lag.ms stays. Raises RequestError: it is not compacted."""
        return await self._compaction.compact(topic_partition)

    def describe(self, topic_partition: TopicPartition) -> LogDescription:
        """The partition's log as it is now; nothing is read. Raises RequestError."""
        actor = self._manager.topics.actor(topic_partition)
        log = actor.log
        return LogDescription(
            snapshot=actor.snapshot(),
            recovery_point=log.recovery_point,
            clean_up_to=self._compaction.clean_up_to(log),
            waiting=log.waiting,
        )

    def statistics(self, topic_partition: TopicPartition) -> PartitionStatistics:
        """Return the counters of the partition's actor since the start. Raises RequestError."""
        return self._manager.topics.actor(topic_partition).statistics()


@attrs.frozen(kw_only=True)
class DirectoryDescription:
    """A log directory."""

    path: str
    partitions: int
    error: str | None
    """Why it is out of service, None when it serves."""
    stray: tuple[str, ...]
    """Directories in it that were found at the start and left alone."""
    free_bytes: int | None
    """What its device had left a second ago; None without a reserve."""
    reserve_bytes: int
    """Below how much that is too little; 0 without a reserve."""
    is_refusing: bool
    """Whether appends are refused because that is below the reserve."""
    given_up_segments: int
    """Segments deleted since the start to keep the reserve."""
    given_up_bytes: int


@attrs.frozen(kw_only=True)
class DirectoryContents:
    """The contents of a log directory and the size of its device; -1 where a size is unknown."""

    path: str
    in_service: bool
    sizes: dict[TopicPartition, int] = attrs.field(factory=dict)
    """Bytes of the log of each partition that is served."""
    total_bytes: int = -1
    usable_bytes: int = -1


@attrs.frozen(eq=False, repr=False)
class Directories:
    """Every configured log directory, those that failed too."""

    _manager: LogManager

    def describe(self) -> list[DirectoryDescription]:
        """Return the state of each directory: whether it serves, its stray logs and its disk reserve."""
        manager = self._manager
        directories, spaces, loads = manager.log_directories, manager.guard.spaces, manager.log_directories.loads()
        in_service = {directory.path: directory for directory in directories.live}
        described = []
        for path in manager.config.data_dirs:
            space = spaces.get(path) if path in in_service else None
            described.append(
                DirectoryDescription(
                    path=path,
                    partitions=loads[id(in_service[path])] if path in in_service else 0,
                    error=directories.failed.get(path),
                    stray=tuple(directories.stray.get(path, ())),
                    free_bytes=None if space is None else space.free_bytes,
                    reserve_bytes=0 if space is None else space.reserve_bytes,
                    is_refusing=space is not None and space.is_refusing,
                    given_up_segments=0 if space is None else space.given_up_segments,
                    given_up_bytes=0 if space is None else space.given_up_bytes,
                )
            )
        return described

    async def contents(self) -> list[DirectoryContents]:
        """The partitions that are served from each, their sizes, and the room on its device."""
        manager, contents = self._manager, []
        in_service = {directory.path: directory for directory in manager.log_directories.live}
        for path in manager.config.data_dirs:
            directory = in_service.get(path)
            if directory is None:
                contents.append(DirectoryContents(path=path, in_service=False))
            else:
                total, usable = await manager.disk.call(_room, directory, at=path)
                sizes = await self._sizes(directory)
                contents.append(
                    DirectoryContents(path=path, in_service=True, sizes=sizes, total_bytes=total, usable_bytes=usable)
                )
        return contents

    async def feed_watchdog(self) -> None:
        """Return when each directory in service has forced a small write to its device. Raises LogDirectoryError when the last
        one could not."""
        await self._manager.log_directories.feed_watchdog(self._manager.now_ms())

    def of(self, topic_partition: TopicPartition) -> str:
        """The log directory that holds a partition. Raises RequestError."""
        return self._manager.topics.partition(topic_partition).directory.path

    async def _sizes(self, directory: LogDirectory) -> dict[TopicPartition, int]:
        sizes: dict[TopicPartition, int] = {}
        for number, hosted in enumerate(self._manager.topics.hosted(), 1):
            if not number % PARTITIONS_PER_TURN:
                await trio.lowlevel.checkpoint()
            if hosted.directory is directory and hosted.actor.log.offline is None:
                sizes[hosted.actor.topic_partition] = hosted.actor.log.size_in_bytes
        return sizes


def _room(directory: LogDirectory) -> tuple[int, int]:
    """Blocks."""
    try:
        return directory.total_bytes(), directory.free_bytes()
    except OSError:
        return -1, -1
