"""The guard of the whole disk: what happens when a log directory's device has less left than `disk_reserve_bytes`.

First the topics with `disk.full.policy=drop-oldest` give up their oldest inactive segments, whichever partition they are in,
until the reserve is there again. If there are none, or if no space comes of it, appends of clients are refused with
POLICY_VIOLATION, for all topics, until there is room: not KAFKA_STORAGE_ERROR, which clients would send again for minutes,
because a full disk waits for a person. Reads, deletions and the server's own topics go on; the reserve is for them.

Free space is looked at once a second, so the reserve should hold several seconds of appends. Every change of state is a log
line with figures, and `statistics` says how things stand.
"""

from __future__ import annotations

import logging
from typing import Final

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError
from ...config import DiskFullPolicy
from ...storage.directory.log_directory import LogDirectory
from ...storage.disk.paths import is_internal
from ...storage.log.retention import oldest_first
from .log_directories import LogDirectories
from .log_retention import LOOKS_PER_TURN, LogRetention
from .topics import HostedPartition, Topics

LOGGER: Final = logging.getLogger(__name__)

MOST_FRUITLESS: Final = 10
"""Rounds in a row in which segments are given up and no space comes of it (a backup's hard links hold it) before that ends."""


@attrs.define(eq=False)
class GuardedSpace:
    """What the guard knows of one directory. Owner: the guard."""

    free_bytes: int = 0
    is_refusing: bool = False
    given_up_segments: int = 0
    """How many segments were given up for the reserve since the start."""
    fruitless: int = 0
    """How often in a row segments were given up and no space came of it."""


@attrs.define(eq=False)
class DiskGuard:
    """Owner of the refusals. Owned by the log manager; `check` is run by its maintenance."""

    directories: LogDirectories
    topics: Topics
    retention: LogRetention
    reserve_bytes: int
    spaces: dict[str, GuardedSpace] = attrs.field(factory=dict)
    """By path of the log directory; empty while no reserve is configured."""
    _looking: trio.Lock = attrs.field(factory=trio.Lock)
    """One look at a time: each of two would give up all that is missing."""

    async def check(self) -> None:
        """Look at every directory in service, and at what groups hold, and act. Raises an OSError once all had their turn."""
        refused: OSError | None = None
        async with self._looking:
            for directory in list(self.directories.live) if self.reserve_bytes else ():
                try:
                    await self._check(directory, self.spaces.setdefault(directory.path, GuardedSpace()))
                except OSError as exc:
                    refused = exc
            await self._check_holds()
        if refused is not None:
            raise refused

    async def _check_holds(self) -> None:
        """Refuse appends to logs whose holds are at their bounds, where that is their topic's policy."""
        now_ms, holds, by_time = self.retention.now_ms(), self.retention.holds, self.retention.trusts_clock
        for number, hosted in enumerate(self.topics.hosted()):
            if number % LOOKS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            log = hosted.actor.log
            refusal = None if log.offline is not None else holds.refusal(log, now_ms, by_time=by_time)
            if refusal is not None and hosted.hold_refusal is None:
                LOGGER.error("%s", refusal.message)
            elif refusal is None and hosted.hold_refusal is not None:
                LOGGER.warning("%s: what is held has gone below the bounds of its hold: appends are taken", log.topic_partition)
            hosted.hold_refusal = refusal

    async def _check(self, directory: LogDirectory, space: GuardedSpace) -> None:
        """One look: at most one round of giving up, because what is deleted becomes free a moment later."""
        free = await self._free_bytes(directory)
        given_up = 0
        if free >= self.reserve_bytes:
            space.fruitless = 0
        elif space.fruitless < MOST_FRUITLESS:
            given_up = await self._give_up(directory, self.reserve_bytes - free)
        if given_up:
            before, free = free, await self._free_bytes(directory)
            space.given_up_segments += given_up
            space.fruitless = 0 if free > before else space.fruitless + 1
            LOGGER.warning(
                "%s had %d bytes left, below disk_reserve_bytes=%d: the %d oldest segments of topics with "
                "disk.full.policy=drop-oldest were given up, %d bytes are left now",
                directory.path,
                before,
                self.reserve_bytes,
                given_up,
                free,
            )
        space.free_bytes = free
        is_refusing = free < self.reserve_bytes and (not given_up or space.is_refusing)
        if is_refusing != space.is_refusing:
            space.is_refusing = is_refusing
            self._say(directory, free, is_refusing=is_refusing)
        self._refuse(directory, free if is_refusing else None)

    async def _free_bytes(self, directory: LogDirectory) -> int:
        return await self.directories.disk.call(directory.free_bytes)

    async def _give_up(self, directory: LogDirectory, needed_bytes: int) -> int:
        """Take the oldest segments out that make up the bytes; answers how many."""
        willing = [
            hosted
            for hosted in self.topics.hosted()
            if hosted.directory is directory
            and hosted.actor.config.disk_full_policy is DiskFullPolicy.DROP_OLDEST
            and not is_internal(hosted.actor.topic_partition.topic)
            and hosted.actor.log.offline is None
            and self.retention.holds.may_judge(hosted.actor.log)
        ]
        logs = [hosted.actor.log for hosted in willing]
        offsets = oldest_first(logs, needed_bytes, [self.retention.holds.held_from(log) for log in logs])
        return await self.retention.give_up([(willing[place], offset) for place, offset in sorted(offsets.items())])

    def _say(self, directory: LogDirectory, free: int, *, is_refusing: bool) -> None:
        if is_refusing:
            LOGGER.error(
                "%s has %d bytes left, below disk_reserve_bytes=%d: appends to its partitions are refused; free space, or set "
                "disk.full.policy=drop-oldest for topics that may lose their oldest records",
                directory.path,
                free,
                self.reserve_bytes,
            )
        else:
            LOGGER.warning(
                "%s has %d bytes left, disk_reserve_bytes=%d is there again: appends are taken",
                directory.path,
                free,
                self.reserve_bytes,
            )

    def _refuse(self, directory: LogDirectory, free: int | None) -> None:
        """Refuse appends to the partitions of a directory, or (None) take them again; also those that were made since."""
        for hosted in self.topics.hosted():
            if hosted.directory is directory:
                hosted.refusal = None if free is None else self._refusal(hosted, directory, free)

    def _refusal(self, hosted: HostedPartition, directory: LogDirectory, free: int) -> RequestError | None:
        partition = hosted.actor.topic_partition
        if is_internal(partition.topic):
            return None
        return RequestError(
            f"{partition}: the device of {directory.path} has {free} bytes left, below "
            f"disk_reserve_bytes={self.reserve_bytes}; "
            "nothing of the append is stored; free space on the server, then send it again",
            ErrorCode.POLICY_VIOLATION,
        )
