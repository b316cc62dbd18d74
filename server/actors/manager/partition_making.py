"""Making the partitions of a topic: in threads, many in one hop, and what is to be on the device is brought there for all of
them at once.

Nobody knows of the topic before all of it is there, and `topics-in-creation.json` says so to the next start: in which order
their files reach the device is no matter.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from ....protocol.types import TopicPartition
from ...config import LogConfig
from ...storage.directory.log_directory import LogDirectory
from ...storage.directory.partition_directory import create_partition, delete_directory
from ...storage.directory.topics_file import Topic
from ...storage.disk.filesystem_layers import LaterSyncs, RememberedNames
from ...storage.disk.paths import partition_directory
from ...storage.errors import LogDirectoryError
from ...storage.log.log import Log
from ...storage.recovery.recovery import OpenLog
from ...system.clock import NowMs
from .log_directories import LogDirectories

LOGGER: Final = logging.getLogger(__name__)

MADE_PER_HOP: Final = 16
"""Enough to forget the hop, few enough to let others have the interpreter."""
SYNCING: Final = 4
"""Threads that sync side by side, where not everything can be synced at once: the journal takes what comes together."""


@attrs.define(eq=False, repr=False)
class Made:
    """A partition that is there, but may not be on the device."""

    number: int
    log: Log
    directory: LogDirectory
    syncs: LaterSyncs


@attrs.define(eq=False, repr=False)
class PartitionMaker:
    """What was made so far. Used once, and by one task."""

    directories: LogDirectories
    now_ms: NowMs
    topic: Topic
    config: LogConfig
    made: list[Made] = attrs.field(factory=list)
    leaves_something: bool = False
    """Whether something of what was refused could not be removed."""
    _loads: Counter[int] = attrs.field(factory=Counter)

    async def make(self, first: int) -> None:
        """Make the partitions from `first` on; on the device when this returns, but for the names of their directories.
        Raises OSError when no directory takes one, StorageError; then `made` are those that are there."""
        self._loads = self.directories.loads()
        for start in range(first, self.topic.partitions, MADE_PER_HOP):
            numbers = range(start, min(start + MADE_PER_HOP, self.topic.partitions))
            await self.directories.disk.call(self._make_some, numbers)
        for directory in list(self.directories.live):
            await self._sync(directory, [each for each in self.made if each.directory is directory])

    async def _sync(self, directory: LogDirectory, made: Sequence[Made]) -> None:
        disk = self.directories.disk
        if not made or await disk.call_briefly(directory.sync_all_instead, sum(len(each.syncs) for each in made)):
            return
        step = max(1, min(MADE_PER_HOP, len(made) // SYNCING))
        remaining = iter(range(0, len(made), step))
        refused: list[tuple[Made, OSError]] = []

        async def work() -> None:
            for start in remaining:
                refused.extend(await disk.call(_sync_each, made[start : start + step]))

        async with trio.open_nursery() as nursery:
            for _ in range(SYNCING):
                nursery.start_soon(work)
        for each, error in refused:
            await disk.call(self._make_elsewhere, each, error)

    # ---- in threads --------------------------------------------------------------------------------------------------------

    def _make_some(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._make(number, self.directories.by_load(self._loads))

    def _make(self, number: int, places: Sequence[LogDirectory], refused: OSError | None = None) -> Made:
        """In the first place that takes it. Raises the OSError of the last one, LogDirectoryError when there is none."""
        topic_partition = TopicPartition(self.topic.name, number)
        for directory in places:
            syncs = LaterSyncs(self.directories.disk.fs)
            request = OpenLog(
                topic_partition=topic_partition,
                directory=f"{directory.path}/{partition_directory(topic_partition)}",
                config=self.config,
                now_ms=self.now_ms,
                was_clean=True,
                sync_metadata=self.directories.config.durable,
                max_producers=self.directories.config.max_producers_per_partition,
            )
            try:
                log = create_partition(RememberedNames(syncs.fs, request.directory).fs, request, self.topic.topic_id)
            except OSError as exc:
                refused = self._refuse(directory, request.directory, topic_partition, exc)
            else:
                self.made.append(Made(number, log, directory, syncs))
                self._loads[id(directory)] += 1
                return self.made[-1]
        raise refused or LogDirectoryError("no log directory is in service")

    def _make_elsewhere(self, made: Made, error: OSError) -> None:
        """Give up one that could not be forced to the device, and make it in another directory."""
        self.made.remove(made)
        self._loads[id(made.directory)] -= 1
        self._refuse(made.directory, made.log.directory, made.log.topic_partition, error)
        others = [each for each in self.directories.by_load(self._loads) if each is not made.directory]
        again = self._make(made.number, others, error)
        again.syncs.sync_now()

    def _refuse(self, directory: LogDirectory, path: str, topic_partition: TopicPartition, error: OSError) -> OSError:
        LOGGER.error("%s cannot be made in %s: %s", topic_partition, directory.path, error)
        self.leaves_something = not remove_partition(self.directories, directory, path) or self.leaves_something
        return error


def remove_partition(directories: LogDirectories, directory: LogDirectory, path: str) -> bool:
    """Whether a partition's directory could be removed for good. Blocks."""
    try:
        delete_directory(directories.disk.fs, path)
        directory.sync_names()
    except OSError as exc:
        LOGGER.error("%s could not be removed: %s; the next start tries again", path, exc)
        return False
    return True


def _sync_each(made: Sequence[Made]) -> list[tuple[Made, OSError]]:
    """Those that could not be forced to the device."""
    refused = []
    for each in made:
        try:
            each.syncs.sync_now()
        except OSError as exc:
            refused.append((each, exc))
    return refused
