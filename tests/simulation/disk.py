"""The world's disk: the file system of the power-cut tests, behind threads that take as long as a device would."""

from __future__ import annotations

import random
from typing import Final

import attrs
import trio

from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import START_MS

PAGE_BYTES: Final = 512
"""Small, so that what is torn is torn often."""


class SimulatedDisk(CrashFileSystem):
    """A device that keeps its users waiting, so that what touches it goes through threads as on a real one."""

    is_instant = False

    def _another(self) -> SimulatedDisk:
        return SimulatedDisk(page_bytes=self._page_bytes)


@attrs.define(eq=False)
class Device:
    """Which file system is there now, and how quick it is. Owner: the world."""

    rng: random.Random
    data: str
    """The log directory. It is there in the system too, empty, to be locked."""
    clock_ms: int = START_MS
    """Of the wall clock when the world began."""
    fs: CrashFileSystem = attrs.field(init=False)
    latency_s: float = 0.001
    """Of what runs in a thread, at most twice that."""

    def __attrs_post_init__(self) -> None:
        self.fs = SimulatedDisk(page_bytes=PAGE_BYTES)
        self.fs.make_directory(self.data)
        self.fs.sync_all()

    def now_ms(self) -> int:
        return self.clock_ms + int(trio.current_time() * 1000)

    def latency(self) -> float:
        return self.rng.uniform(0, 2 * self.latency_s)

    def end_process(self) -> None:
        """What was written is there for the next process, synced or not; the one that is gone does nothing any more."""
        before, self.fs = self.fs, self.fs.copy()
        before.cut_after(0)

    def cut_power(self) -> None:
        """Of what was not synced anything may be left."""
        self.fs = self.fs.crash(self.rng)
