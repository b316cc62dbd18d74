"""The wear that logs cause on flash devices: bytes written to disks for each appended byte, the time until
disks are worn out or full, and the longest loss window.

All counters are read every LOOK_S, and on request; a thread reads those of the kernel. The counter of a disk covers all
processes that write to it, the counter of a process covers all that the process writes. Of several disks under a directory the
most written one represents all. RECENT_LOOKS and DAY_LOOKS looks are kept of each directory and of the process.

Rates over the last minutes or the last day, from counters that are read from time to time. Pure: the caller passes the time.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import attrs
import trio

from ..loop.procedures import in_turns
from ..storage.directory.log_directory import LogDirectory
from ..system.block_devices import (
    PROCESS_IO,
    SYSFS,
    BlockDevice,
    FlashHealth,
    device_of,
    flash_health,
    lifetime_written_bytes,
    process_written_bytes,
    written_bytes,
)
from .log_manager import LogManager

LOOK_S: Final = 10.0
RECENT_S: Final = 600.0
"""What the present rate is taken over."""
RECENT_LOOKS: Final = 60
DAY_S: Final = 86_400.0
"""What the days that are left are reckoned from, or the time since the start."""
DAY_LOOKS: Final = 144
LOGS_PER_TURN: Final = 64


@attrs.frozen(kw_only=True)
class DirectoryWear:
    """A log directory and the disk below it. None: there is no such disk, or it does not tell, or it cannot be said yet."""

    path: str
    device: BlockDevice | None
    disk_written_bytes: int | None
    """Since the disk is there: mostly since the machine was started."""
    lifetime_written_bytes: int | None
    """To the file system since it was made."""
    health: FlashHealth
    recent: Rates
    days_left: float | None
    """Until `disk_endurance_bytes` are written, at the rate of the last day."""


@attrs.frozen(kw_only=True)
class WearStatistics:
    """Everything at one moment."""

    process_written_bytes: int | None
    """Since the process began."""
    process: Rates
    longest_unsynced_ms: float
    """The longest loss window of any log since the start."""
    directories: tuple[DirectoryWear, ...]


@attrs.frozen(kw_only=True)
class _Told:
    """The kernel's data about one directory."""

    device: BlockDevice | None = None
    free_bytes: int | None = None
    written_bytes: int | None = None
    lifetime_written_bytes: int | None = None
    health: FlashHealth = attrs.field(factory=FlashHealth)


@attrs.define(eq=False, repr=False)
class _History:
    """Looks at one directory, or at the process."""

    recent: Looks = attrs.field(factory=lambda: Looks(RECENT_S, RECENT_LOOKS))
    day: Looks = attrs.field(factory=lambda: Looks(DAY_S, DAY_LOOKS))

    def add(self, look: Look) -> None:
        self.recent.add(look)
        self.day.add(look)


@attrs.define(eq=False, repr=False)
class Wear:
    """Owner of the looks. `run` is its task."""

    manager: LogManager
    sysfs: str = SYSFS
    process_io: str = PROCESS_IO
    _histories: dict[str, _History] = attrs.field(factory=dict)
    """By path of the log directory; the process' under ""."""
    _appended: dict[str, int] = attrs.field(factory=dict)
    """By path, since the start. What a topic had appended is not lost with it."""
    _sums: dict[str, int] = attrs.field(factory=dict)
    """What the logs that are there had appended at the last look."""
    _longest_unsynced_ms: float = 0.0
    _looking: trio.Lock = attrs.field(factory=trio.Lock)
    """One look at a time: each compares with the one before."""

    async def run(self) -> None:
        """Look again and again, until cancelled; for the first time when the start is over."""

        async def step() -> None:
            await trio.sleep(LOOK_S)
            await self.look()

        await self.manager.disk.errors.repeat("wear", step)

    async def look(self) -> WearStatistics:
        """Everything as it is now."""
        async with self._looking:
            await self._look_at_logs()
            written, told = await self.manager.disk.call_briefly(self._ask_kernel, list(self.manager.log_directories.live))
            now, total = trio.current_time(), sum(self._appended.values())
            process, _ = self._rates("", Look(at_s=now, written_bytes=written, appended_bytes=total))
            return WearStatistics(
                process_written_bytes=written,
                process=process,
                longest_unsynced_ms=self._longest_unsynced_ms,
                directories=tuple(self._directory(now, path, told) for path in told),
            )

    async def _look_at_logs(self) -> None:
        sums = dict.fromkeys((directory.path for directory in self.manager.log_directories.live), 0)
        async for hosted in in_turns(self.manager.topics.hosted(), LOGS_PER_TURN):
            path = hosted.directory.path
            sums[path] = sums.get(path, 0) + hosted.actor.appended_bytes
            self._longest_unsynced_ms = max(self._longest_unsynced_ms, hosted.actor.longest_unsynced_ms)
        for path, total in sums.items():
            self._appended[path] = self._appended.get(path, 0) + max(0, total - self._sums.get(path, 0))
        self._sums = sums

    def _ask_kernel(self, directories: list[LogDirectory]) -> tuple[int | None, dict[str, _Told]]:
        """Read the bytes that the process has written, and the kernel's data about each directory. Blocks."""
        told: dict[str, _Told] = {}
        for each in directories:
            told[each.path] = _Told()
            with self.manager.disk.errors.isolate("wear", each.path):
                told[each.path] = self._ask_of(each)
        return process_written_bytes(self.process_io), told

    def _ask_of(self, directory: LogDirectory) -> _Told:
        device = device_of(directory.path, sysfs=self.sysfs)
        try:
            free = directory.free_bytes()
        except OSError:
            free = None
        if device is None:
            return _Told(free_bytes=free)
        counted = [(written_bytes(disk, sysfs=self.sysfs), disk) for disk in device.disks]
        written, disk = max(counted, key=lambda each: -1 if each[0] is None else each[0])
        return _Told(
            device=device,
            free_bytes=free,
            written_bytes=written,
            lifetime_written_bytes=lifetime_written_bytes(device.name, sysfs=self.sysfs),
            health=flash_health(disk, sysfs=self.sysfs),
        )

    def _directory(self, now: float, path: str, all_told: dict[str, _Told]) -> DirectoryWear:
        told = all_told[path]
        beside = [other for other, each in all_told.items() if other == path or _is_same_disk(each.device, told.device)]
        look = Look(
            at_s=now,
            written_bytes=told.written_bytes,
            appended_bytes=sum(self._appended.get(other, 0) for other in beside),
            room_bytes=None if told.free_bytes is None else told.free_bytes - self.manager.guard.reserve_of(path),
        )
        recent, day = self._rates(path, look)
        so_far = max((each for each in (told.lifetime_written_bytes, told.written_bytes) if each is not None), default=None)
        return DirectoryWear(
            path=path,
            device=told.device,
            disk_written_bytes=told.written_bytes,
            lifetime_written_bytes=told.lifetime_written_bytes,
            health=told.health,
            recent=recent,
            days_left=days_to_endurance(self.manager.config.disk_endurance_bytes, so_far, day.written_per_s),
        )

    def _rates(self, name: str, look: Look) -> tuple[Rates, Rates]:
        """Keep a look; what happened lately, and in the last day."""
        history = self._histories.setdefault(name, _History())
        history.add(look)
        return history.recent.until(look), history.day.until(look)


def _is_same_disk(one: BlockDevice | None, other: BlockDevice | None) -> bool:
    return one is not None and other is not None and not set(one.disks).isdisjoint(other.disks)


LEAST_S: Final = 1.0
"""Less time says nothing."""
FORECAST_S: Final = RECENT_S / 2
"""The least history for a forecast of a full disk: seconds of load say nothing about days."""


@attrs.frozen(kw_only=True)
class Look:
    """The values of counters at one moment. None: the system does not report them."""

    at_s: float
    written_bytes: int | None
    """To a disk, or by the process."""
    appended_bytes: int
    """To logs, since the start."""
    room_bytes: int | None = None
    """What can still be written until appends are refused."""


@attrs.define(eq=False, repr=False)
class Looks:
    """Those of the last `span_s`, `most` at most, evenly. Owner: who looks."""

    span_s: float
    most: int
    _kept: deque[Look] = attrs.field(factory=deque)

    def add(self, look: Look) -> None:
        """Keep a look, unless the last one is too young; those behind the span go, but for one at its very end."""
        kept = self._kept
        if not kept or look.at_s - kept[-1].at_s >= self.span_s / self.most:
            kept.append(look)
        while len(kept) > 1 and look.at_s - kept[1].at_s >= self.span_s:
            kept.popleft()

    def until(self, look: Look) -> Rates:
        """Return the rates from the oldest kept look up to this one."""
        return Rates.between(self._kept[0] if self._kept else look, look)

    def __len__(self) -> int:
        return len(self._kept)


@attrs.frozen(kw_only=True)
class Rates:
    """The rates between two looks. None: unknown."""

    written_per_s: float | None = None
    written_per_appended: float | None = None
    """Bytes to the disk for each byte that was appended; None while nothing is."""
    full_in_s: float | None = None
    """Until no space is left; None while the space does not shrink, and with less history than FORECAST_S."""

    @classmethod
    def between(cls, before: Look, after: Look) -> Rates:
        seconds = after.at_s - before.at_s
        if seconds < LEAST_S:
            return cls()
        written = _growth(before.written_bytes, after.written_bytes)
        appended = after.appended_bytes - before.appended_bytes
        return cls(
            written_per_s=None if written is None else written / seconds,
            written_per_appended=None if written is None or appended <= 0 else written / appended,
            full_in_s=_full_in_s(before.room_bytes, after.room_bytes, seconds),
        )


def _growth(before: int | None, after: int | None) -> int | None:
    """None also where a counter fell: it is another disk's."""
    return None if before is None or after is None or after < before else after - before


def _full_in_s(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or after >= before or seconds < FORECAST_S:
        return None
    return max(0, after) * seconds / (before - after)


def days_to_endurance(endurance_bytes: int, written_bytes: int | None, written_per_s: float | None) -> float | None:
    """Return how many days a disk with this endurance in bytes lasts at this rate; None: unknown, or indefinitely."""
    if not endurance_bytes or written_bytes is None or not written_per_s:
        return None
    return max(0, endurance_bytes - written_bytes) / written_per_s / 86_400
