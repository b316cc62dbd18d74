"""The world's disk: the file system of the power-cut tests, behind threads that take as long as a device would.

There are one or two log directories, each a device of its own that can fail for good.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import trio
from triolog.protocol.types import Bytes

from tests.simulation.device import moments
from tests.support.crash_fs import CHANGING, CrashFileSystem, PowerCut
from tests.support.crash_nodes import Directory, File, Node, files_below
from tests.support.logs import START_MS

PAGE_BYTES: Final = 512
"""Small, so that what is torn is torn often."""

FORGETS: Final = 0.2
"""How often a file of which not all could be written reads differently the next time."""

NOTICED_S: Final = 10.0


class SimulatedDisk(CrashFileSystem):
    """A device that keeps its users waiting, so that what touches it goes through threads as on a real one."""

    is_instant = False

    def __init__(self, *, page_bytes: int, clock: Callable[[], float], rng: random.Random) -> None:
        super().__init__(page_bytes=page_bytes)
        self._clock = clock
        self._rng = rng
        self.broken: str | None = None
        """A directory in which nothing works any more."""
        self.off_at: float | None = None
        """When the power was cut."""
        self.has_forgotten = False
        """Whether in this life something reads differently that could not be written."""
        self.changes = 0
        """Operations so far that change something."""
        self.cut_operation = ""
        """In front of which the power was cut."""
        self._paths: dict[int, str] = {}
        self._awaited: tuple[str, int] | None = None

    def _another(self) -> SimulatedDisk:
        another = SimulatedDisk(page_bytes=self._page_bytes, clock=self._clock, rng=self._rng)
        another.broken = self.broken
        return another

    def cut_at(self, moment: str, changes: int) -> None:
        """Like `cut_after`, counted from the next `moment` of `MOMENTS` on."""
        self._awaited = moment, changes

    def _see(self, moment: str | None) -> None:
        if self._awaited is not None and self._awaited[0] == moment:
            self.cut_after(self._awaited[1])
            self._awaited = None

    def _enter(self, operation: str, size: int = 0) -> Any:
        try:
            found = super()._enter(operation, size)
        except PowerCut:
            if self.off_at is None:
                self.off_at, self.cut_operation = self._clock(), operation
            raise
        self.changes += operation in CHANGING
        return found

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        """The write in which a process is killed may have been done up to any page."""
        was_off = self.is_off
        if self._awaited is not None:
            self._see(moments.of_write(self._paths.get(fd, ""), buffers))
        try:
            super().write(fd, buffers, position)
        except PowerCut:
            data = b"".join(buffers)
            pages = range(position // self._page_bytes + 1, -(-(position + len(data)) // self._page_bytes))
            if not was_off and self.broken is None and pages and (done := self._rng.choice((0, *pages))):
                self._by_fd(fd, writing=True).change((position, data[: done * self._page_bytes - position]))
            raise

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Pages that could not be written are clean to the kernel: it forgets them when it needs the memory."""
        data = super().read(fd, size, position)
        file = self._by_fd(fd)
        if file.lost and self._rng.random() < FORGETS:
            self.has_forgotten = True
            file.drop_caches(self._rng, self._page_bytes)
        return data

    def owes_pages(self) -> bool:
        """Whether there is a file of which the device has not taken all that it was asked to."""
        return any(file.lost or file.lost_sizes for file in files_below(self._root))

    def fail_directory(self, path: str) -> None:
        """For good: what was not synced may be there or not, and every operation is refused."""
        for file in files_below(self._directory(path)):
            file.fail_write_back(errno.EIO, self._page_bytes)
        self.broken = path

    def replug_directory(self, rng: random.Random) -> None:
        """It works again, is mounted anew, and has what was brought to it."""
        path, self.broken = self.broken, None
        for file in files_below(self._directory(path)) if path is not None else ():
            file.drop_caches(rng, self._page_bytes)
            file.error_seen = True

    def open(self, path: str, flags: int) -> int:
        if self._awaited is not None and flags & os.O_CREAT and self._find(path) is None:
            self._see(moments.of_creation(path))
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def rename(self, source: str, target: str) -> None:
        if self._awaited is not None:
            self._see(moments.of_rename(source, target))
        super().rename(source, target)

    def close(self, fd: int) -> None:
        super().close(fd)
        self._paths.pop(fd, None)

    def make_directory(self, path: str) -> None:
        self._check(path)
        super().make_directory(path)

    def _check(self, path: str) -> None:
        if self.broken is not None and f"{path}/".startswith(f"{self.broken}/"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _by_fd(self, fd: int, *, writing: bool = False) -> File:
        if self.broken is not None:
            self._check(self._paths.get(fd, ""))
        return super()._by_fd(fd, writing=writing)

    def _find(self, path: str) -> Node | None:
        self._check(path)
        return super()._find(path)

    def _parent(self, path: str) -> tuple[Directory, str]:
        self._check(path)
        return super()._parent(path)


@attrs.define(eq=False)
class Device:
    """Which file system is there now, and how quick it is. Owner: the world."""

    rng: random.Random
    directories: Sequence[str]
    """The log directories. They are there in the system too, empty, to be locked."""
    clock_ms: int = START_MS
    """Of the wall clock when the world began."""
    clock: trio.abc.Clock | None = None
    fs: SimulatedDisk = attrs.field(init=False)
    latency_s: float = 0.001
    """Of what runs in a thread, at most twice that."""
    slowest_s: float = 0.001
    """The largest that has been since the last loss."""
    failures: set[tuple[str, str]] = attrs.field(factory=set)
    """What was ordered to fail in this life: operations and errors."""
    broken_at: float = 0.0
    """When a directory failed."""

    def __attrs_post_init__(self) -> None:
        self.fs = SimulatedDisk(page_bytes=PAGE_BYTES, clock=lambda: self.time(), rng=self.rng)
        for path in self.directories:
            self.fs.make_directory(path)
        self.fs.sync_all()

    def time(self) -> float:
        """Also for threads that are not trio's."""
        if self.clock is None:
            self.clock = trio.lowlevel.current_clock()
        return self.clock.current_time()

    def without_paths(self, text: str) -> str:
        """The same text in every run."""
        for number, path in enumerate(self.directories):
            text = text.replace(path, f"/data{number}")
        return text

    def now_ms(self) -> int:
        return self.clock_ms + int(trio.current_time() * 1000)

    def latency(self) -> float:
        return self.rng.uniform(0, 2 * self.latency_s)

    def slow_down(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.slowest_s = max(self.slowest_s, latency_s)

    def fail_directory(self, path: str) -> None:
        self.broken_at = self.time()
        self.fs.fail_directory(path)

    def is_long_broken(self) -> bool:
        """Whether whoever writes checkpoints has met the failure."""
        return self.time() - self.broken_at > NOTICED_S

    def end_process(self) -> None:
        """What was written is there for the next process, synced or not; the one that is gone does nothing any more."""
        before, self.fs = self.fs, self.fs.copy()
        before.cut_after(0)

    def cut_power(self, left: str = "") -> None:
        """Of what was not synced anything may be left. `left`: nothing (`sure`), all but the first page of each file that has
        changed in several (`hole`), or one of the many things that can be (a number)."""
        if left == "hole":
            self.fs = self.fs.crash(None, holes=True)
        elif left == "sure":
            self.fs = self.fs.crash(None)
        else:
            self.fs = self.fs.crash(random.Random(f"left {left}") if left else self.rng)
