"""The guard of the disks: what happens when a log directory's device has less left than `disk_reserve_bytes`, or all logs
together have more than `log_max_bytes`.

First the files go that retention has taken out and that wait for `file.delete.delay.ms`. Then the topics with
`disk.full.policy=drop-oldest` give up their oldest inactive segments, whichever partition they are in (`oldest_first` says in
which order), until there is room again. If there are none, or if no space comes of it, appends of
clients are refused with POLICY_VIOLATION, for all topics, until there is room: not KAFKA_STORAGE_ERROR, which clients would
send again for minutes, because a full disk waits for a person. Reads, deletions and the server's own topics go on; the reserve
is for them.

It is looked once a second, and earlier when appends may have used up half of a reserve. What a look finds is granted to the
appends of a directory (`backpressure.Room`), down to a quarter of its reserve: an append that would go below waits for a
look of its own, which makes room for it or lets it be refused. So no append of a client finds a device full, however fast it
comes. Every change of state is a log line with figures, and `statistics` says how things stand.

Logs whose holds are at their bounds are looked at too: see `space.holds`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf
from typing import Final

import attrs
import trio

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.limits import MIB
from ..config import DiskFullPolicy
from ..loop.procedures import in_turns
from ..partitions.backpressure import Room
from ..storage.directory.log_directory import LogDirectory
from ..storage.disk.paths import is_internal
from ..storage.log.log import Log
from ..storage.log.retention import oldest_first
from .log_directories import LogDirectories
from .log_retention import LOOKS_PER_TURN, LogRetention
from .topics import HostedPartition, Topics

LOGGER: Final = logging.getLogger(__name__)

MOST_FRUITLESS: Final = 10
"""Rounds in a row in which segments are given up and no space comes of it (a backup's hard links hold it) before that ends."""
MOST_RESERVE_BYTES: Final = 64 * MIB
SHARE_OF_DEVICE: Final = 100
"""With `disk_reserve_bytes=-1` the reserve is 1 % of the device, at most 64 MiB. It need not hold what producers send, whose
appends are gated, but indexes, checkpoints and the server's own topics, for as long as it takes a person to come."""
FLOOR: Final = 4
"""The part of a reserve that no append of a client touches."""


@attrs.define(eq=False, repr=False)
class GuardedSpace:
    """The guard's view of one directory, or of all logs together. Owner: the guard."""

    reserve_bytes: int = 0
    free_bytes: int = 0
    is_refusing: bool = False
    given_up_segments: int = 0
    """How many segments were given up since the start."""
    given_up_bytes: int = 0
    last_bytes: int = 0
    """Of the last round."""
    fruitless: int = 0
    """How often in a row segments were given up and no space came of it."""
    wanted_bytes: int = 0
    """Of the append for which there was no room when refusing began."""


@attrs.define(eq=False, repr=False)
class DiskGuard:
    """Owner of the refusals, and of what is granted to appends. Owned by the log manager; `check` and `watch` are run by its
    maintenance."""

    directories: LogDirectories
    topics: Topics
    retention: LogRetention
    reserve_bytes: int
    """-1: by the size of the device."""
    log_max_bytes: int = 0
    """0: no bound."""
    spaces: dict[str, GuardedSpace] = attrs.field(factory=dict)
    """By path of the log directory; of those that have a reserve."""
    total: GuardedSpace = attrs.field(factory=GuardedSpace)
    """Of all logs together; its free bytes are those to `log_max_bytes`."""
    _is_watching: bool = False
    _has_refused: bool = False
    _looking: trio.Lock = attrs.field(factory=trio.Lock)
    """One look at a time: each of two would give up all that is missing."""

    async def watch(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look, and again when appends ask for it, until cancelled; from then on there is room for everything."""
        rooms = self.directories.disk.rooms
        self._is_watching = True
        try:
            while True:
                with self.directories.disk.errors.isolate("disk-guard"):
                    try:
                        await self.check()
                    except OSError as exc:
                        LOGGER.error("cannot read free space: %s", exc)
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await rooms.asked()
        finally:
            self._is_watching = False
            rooms.open_others(set())

    async def check(self) -> None:
        """Look at every directory in service, and at what groups hold, and act. Raises an OSError once all had their turn."""
        refused: OSError | None = None
        async with self._looking:
            live = list(self.directories.live)
            for directory in live:
                self._room(directory).begin_look()
            of_all, all_exhausted = await self._check_total([self._room(directory).wanted_bytes for directory in live])
            for directory in live:
                room = self._room(directory)
                left, ask_below, is_exhausted = inf, -inf, False
                with self.directories.disk.errors.isolate("disk-guard", directory.path):
                    try:
                        left, ask_below, is_exhausted = await self._check(directory, room.wanted_bytes)
                    except OSError as exc:
                        refused = exc
                if self._is_watching:
                    left = min(left, of_all / len(live))
                    room.grant(left, ask_below=ask_below, is_exhausted=is_exhausted or all_exhausted)
            self.directories.disk.rooms.open_others({directory.path for directory in live})
            self._refuse()
            await self._check_holds()
        if refused is not None:
            raise refused

    def reserve_of(self, path: str) -> int:
        """Of a log directory; 0 without one, or while its device has not been looked at."""
        known = self.spaces.get(path)
        return max(0, self.reserve_bytes) if known is None else known.reserve_bytes

    async def _check_total(self, wanted: Sequence[int]) -> tuple[float, bool]:
        """Return how many bytes all logs together may grow, and whether no more space can be freed."""
        space = self.total
        if not self.log_max_bytes:
            return inf, False
        # Each directory is granted its part of what is left.
        wanted_bytes = max(wanted, default=0) * len(wanted)
        space.wanted_bytes = wanted_bytes or (space.wanted_bytes if space.is_refusing else 0)
        space.free_bytes = self.log_max_bytes - await self._size_of_all()
        if space.free_bytes < space.wanted_bytes and await self.retention.make_room():
            space.free_bytes = self.log_max_bytes - await self._size_of_all()
        missing = space.wanted_bytes - space.free_bytes
        before, given_up = space.free_bytes, await self._give_up(space, missing)
        if missing > 0:
            space.free_bytes = self.log_max_bytes - await self._size_of_all()
        if given_up:
            self._note(space, space.free_bytes - before + sum(self._room(each).taken_bytes for each in self.directories.live))
            LOGGER.warning(
                "all logs together had %d bytes, above log_max_bytes=%d: dropped the %d oldest segments of topics "
                "with disk.full.policy=drop-oldest, %d bytes left in the logs",
                self.log_max_bytes - before,
                self.log_max_bytes,
                given_up,
                self.log_max_bytes - space.free_bytes,
            )
        has_made_room = given_up > 0 or space.free_bytes > before
        is_refusing = space.free_bytes < max(space.wanted_bytes, 0) and (not has_made_room or space.is_refusing)
        self._change(space, "all logs together", "log_max_bytes", is_refusing=is_refusing)
        return space.free_bytes, missing > 0 and (not has_made_room or space.fruitless >= MOST_FRUITLESS)

    async def _check(self, directory: LogDirectory, wanted_bytes: int) -> tuple[float, float, bool]:
        """Check a directory: at most one round of giving up, because deleted files become free a moment later. Returns the
        bytes that may be appended, the rest below which another check is due, and whether no more space can be freed."""
        reserve = await self._reserve_of(directory)
        if not reserve:
            return inf, -inf, False
        space, floor = self.spaces.setdefault(directory.path, GuardedSpace(reserve)), reserve // FLOOR
        most = max(reserve, wanted_bytes + floor if wanted_bytes else 0)
        free = await self._free_bytes(directory)
        if free < most and (await self.retention.unlink_of(directory) or await self.retention.make_room()):
            free = await self._free_bytes(directory)
        before, missing = free, most - free
        given_up = await self._give_up(space, missing, directory)
        if missing > 0:  # also when nothing was given up: retention may have taken out what was to be
            free = await self._free_bytes(directory)
        if given_up:
            self._note(space, free - before + self._room(directory).taken_bytes)
            LOGGER.warning(
                "%s had %d bytes free, below disk_reserve_bytes=%d: dropped the %d oldest segments of topics with "
                "disk.full.policy=drop-oldest, %d bytes free now",
                directory.path,
                before,
                reserve,
                given_up,
                free,
            )
        space.free_bytes = free
        has_made_room = given_up > 0 or free > before
        is_refusing = free < reserve and (not has_made_room or space.is_refusing)
        self._change(space, directory.path, "disk_reserve_bytes", is_refusing=is_refusing)
        return free - floor, reserve // 2 - floor, missing > 0 and (not has_made_room or space.fruitless >= MOST_FRUITLESS)

    async def _reserve_of(self, directory: LogDirectory) -> int:
        if self.reserve_bytes >= 0:
            return self.reserve_bytes
        known = self.spaces.get(directory.path)
        if known is not None:
            return known.reserve_bytes
        total = await self.directories.disk.call(directory.total_bytes, at=directory.path)
        return min(MOST_RESERVE_BYTES, total // SHARE_OF_DEVICE)

    async def _free_bytes(self, directory: LogDirectory) -> int:
        return await self.directories.disk.call(directory.free_bytes, at=directory.path)

    async def _size_of_all(self) -> int:
        return sum([hosted.actor.log.size_in_bytes async for hosted in in_turns(self.topics.hosted(), LOOKS_PER_TURN)])

    async def _give_up(self, space: GuardedSpace, missing: int, directory: LogDirectory | None = None) -> int:
        """Take the oldest segments out, of one directory or of all, that make up what is missing; answers how many."""
        if missing <= 0:
            space.fruitless = 0
            return 0
        if space.fruitless >= MOST_FRUITLESS:
            return 0
        holds = self.retention.holds
        willing = [
            hosted
            for hosted in self.topics.hosted()
            if (directory is None or hosted.directory is directory)
            and hosted.actor.config.disk_full_policy is DiskFullPolicy.DROP_OLDEST
            and not is_internal(hosted.actor.topic_partition.topic)
            and hosted.actor.log.offline is None
            and holds.may_judge(hosted.actor.log)
        ]
        logs = [hosted.actor.log for hosted in willing]
        while True:
            offsets = oldest_first(logs, missing, [holds.held_from(log) for log in logs])
            chosen = [(willing[place], offset) for place, offset in sorted(offsets.items())]
            if not await self.retention.confirm(chosen):
                break
        size = sum(_size_below(logs[place], offset) for place, offset in offsets.items())
        given_up = await self.retention.give_up(chosen)
        space.given_up_segments += given_up
        space.last_bytes = size
        space.given_up_bytes += size if given_up else 0
        return given_up

    @staticmethod
    def _note(space: GuardedSpace, most_freed: int) -> None:
        """Note whether a round freed at least half of the bytes that it gave up. Appends may take freed bytes at once, so
        `most_freed` includes those that they have taken since the check began. Waiting appends take none, so a round without
        effect shows in the end."""
        space.fruitless = 0 if 2 * most_freed >= space.last_bytes > 0 else space.fruitless + 1

    def _room(self, directory: LogDirectory) -> Room:
        return self.directories.disk.rooms.of(directory.path)

    def _change(self, space: GuardedSpace, what: str, key: str, *, is_refusing: bool) -> None:
        """Say it when appends are refused from now on, or taken again."""
        bound = self.log_max_bytes if space is self.total else space.reserve_bytes
        if is_refusing and not space.is_refusing:
            LOGGER.error(
                "%s: %d bytes free, below %s=%d: refusing appends. Free space, or set disk.full.policy=drop-oldest "
                "for topics that may lose their oldest records.",
                what,
                space.free_bytes,
                key,
                bound,
            )
        elif space.is_refusing and not is_refusing:
            LOGGER.warning("%s: %d bytes free, above %s=%d: accepting appends again", what, space.free_bytes, key, bound)
        space.is_refusing = is_refusing

    def _refuse(self) -> None:
        """Refuse appends where there is no room, or take them again; also to partitions that were made since."""
        refuses = self.total.is_refusing or any(space.is_refusing for space in self.spaces.values())
        if refuses or self._has_refused:
            for hosted in self.topics.hosted():
                hosted.refusal = None if is_internal(hosted.actor.topic_partition.topic) else self._refusal(hosted)
        self._has_refused = refuses

    def _refusal(self, hosted: HostedPartition) -> RequestError | None:
        space = self.spaces.get(hosted.directory.path)
        if space is not None and space.is_refusing:
            what = (
                f"the device of {hosted.directory.path} has {space.free_bytes} bytes left, below "
                f"disk_reserve_bytes={space.reserve_bytes}"
            )
        elif self.total.is_refusing:
            what = (
                f"all logs together have {self.log_max_bytes - self.total.free_bytes} bytes, at "
                f"log_max_bytes={self.log_max_bytes}"
            )
        else:
            return None
        return RequestError(
            f"{hosted.actor.topic_partition}: {what}. Nothing of the append is stored. Free space on the server, "
            "then send it again",
            ErrorCode.POLICY_VIOLATION,
        )

    async def _check_holds(self) -> None:
        """Refuse appends to logs whose holds are at their bounds, where that is their topic's policy."""
        now_ms, holds, by_time = self.retention.now_ms(), self.retention.holds, self.retention.trusts_clock
        async for hosted in in_turns(self.topics.hosted(), LOOKS_PER_TURN):
            log = hosted.actor.log
            if not log.config.retention_hold_groups and hosted.hold_refusal is None:
                continue
            with self.directories.disk.errors.isolate("disk-guard", log.topic_partition):
                refusal = None if log.offline is not None else holds.refusal(log, now_ms, by_time=by_time)
                if refusal is not None and hosted.hold_refusal is None:
                    LOGGER.error("%s", refusal.message)
                elif refusal is None and hosted.hold_refusal is not None:
                    below = "%s: the records held are below the bounds of their hold again: accepting appends"
                    LOGGER.warning(below, log.topic_partition)
                hosted.hold_refusal = refusal


def _size_below(log: Log, offset: int) -> int:
    return sum(segment.size for segment in log.segments if segment.base_offset < offset)
