"""A file system whose operations can be held, counted and failed: the device as a test wants it, on real files.

`hold` makes an operation wait in the thread that runs it until `release`; `fail` makes it raise. Both choose by the name of
the operation and the end of the file's name. Every call is written down in `calls` once it has begun.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Final

import attrs
import trio
from triolog.protocol.types import Bytes
from triolog.server.storage.disk.filesystem import CachedReadUnsupportedError, OsFileSystem

PATIENCE_S: Final = 30.0
"""How long anything held waits for its release: a test that forgot it fails instead of hanging."""


@attrs.frozen
class Call:
    """One operation on one file."""

    operation: str
    path: str
    thread: str


@attrs.define(eq=False)
class Gate:
    """Where operations wait. `arrived` tells how many have come here."""

    operation: str
    suffix: str
    most: int | None = None
    arrived: int = 0
    _entered: int = 0
    _open: threading.Event = attrs.field(factory=threading.Event)
    _token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    _moved: trio.Event = attrs.field(factory=trio.Event)

    def release(self) -> None:
        self._open.set()

    def matches(self, operation: str, path: str) -> bool:
        return operation == self.operation and path.endswith(self.suffix) and self._entered != self.most

    def wait(self) -> None:
        self._entered += 1
        self._token.run_sync_soon(self._arrive)
        if not self._open.wait(PATIENCE_S):
            raise AssertionError(f"{self.operation} of *{self.suffix} was held and never released")

    def _arrive(self) -> None:
        self.arrived += 1
        self._moved.set()
        self._moved = trio.Event()

    async def reached(self, count: int = 1) -> None:
        """Wait until `count` operations have come here."""
        with trio.fail_after(PATIENCE_S):
            while self.arrived < count:
                await self._moved.wait()


@attrs.define(eq=False)
class Failure:
    """What raises instead of doing its work, or after a part of it."""

    operation: str
    suffix: str
    number: int
    times: int | None
    after_bytes: int | None
    seen: int = 0

    def matches(self, operation: str, path: str) -> bool:
        return operation == self.operation and path.endswith(self.suffix) and (self.times is None or self.seen < self.times)


class GateFileSystem(OsFileSystem):
    """The real file system behind gates. Worker threads share it."""

    def __init__(self, *, cached_reads: bool = True) -> None:
        self.calls: list[Call] = []
        self.cached_reads = cached_reads
        """False: nothing is in the page cache, so every read takes a thread."""
        self.lets_write_at_once = False
        """True: small writes need no thread. Behind a closed gate they would hold up everybody."""
        self.refuses_nowait = False
        """True: a mount that does not know RWF_NOWAIT."""
        self.read_bytes = Counter[str]()
        """By the names of files; what came from the page cache at once does not count."""
        self.free: int | None = None
        """What the device has left, None for what it really has."""
        self._gates: list[Gate] = []
        self._failures: list[Failure] = []
        self._paths: dict[int, str] = {}

    @property
    def writes_at_once(self) -> bool:
        return self.lets_write_at_once

    @contextmanager
    def hold(self, operation: str, suffix: str = "", *, most: int | None = None) -> Iterator[Gate]:
        """Operations of that name on files of that suffix wait until the gate is released, or the block ends.

        `most`: so many of them, later ones pass.
        """
        gate = Gate(operation, suffix, most)
        self._gates.append(gate)
        try:
            yield gate
        finally:
            self._gates.remove(gate)
            gate.release()

    def fail(
        self,
        operation: str,
        suffix: str = "",
        *,
        number: int = errno.ENOSPC,
        times: int | None = 1,
        after_bytes: int | None = None,
    ) -> None:
        """Raise OSError(number) the next `times` times (None: always); a write puts `after_bytes` of its bytes down first."""
        self._failures.append(Failure(operation, suffix, number, times, after_bytes))

    def heal(self) -> None:
        self._failures.clear()

    def count(self, operation: str, suffix: str = "") -> int:
        """How often the operation was begun on files of that suffix."""
        return sum(call.operation == operation and call.path.endswith(suffix) for call in list(self.calls))

    @property
    def synced(self) -> list[str]:
        """Names of files that were synced, and paths of directories with a slash behind them, in order."""
        return [
            f"{call.path}/" if call.operation == "sync_directory" else os.path.basename(call.path)
            for call in self.calls
            if call.operation in ("sync", "sync_directory")
        ]

    @property
    def open_paths(self) -> list[str]:
        return list(self._paths.values())

    def _enter(self, operation: str, path: str) -> Failure | None:
        self.calls.append(Call(operation, path, threading.current_thread().name))
        for gate in list(self._gates):
            if gate.matches(operation, path):
                gate.wait()
        for failure in self._failures:
            if failure.matches(operation, path):
                failure.seen += 1
                if failure.after_bytes is None:
                    raise OSError(failure.number, os.strerror(failure.number), path)
                return failure
        return None

    def _path(self, fd: int) -> str:
        return self._paths.get(fd, f"fd {fd}")

    def open(self, path: str, flags: int) -> int:
        self._enter("open", path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        path = self._paths.pop(fd, None)
        assert path is not None, f"descriptor {fd} is closed twice"
        self._enter("close", path)
        super().close(fd)

    def read(self, fd: int, size: int, position: int) -> bytes:
        path = self._path(fd)
        self._enter("read", path)
        data = super().read(fd, size, position)
        self.read_bytes[os.path.basename(path)] += len(data)
        return data

    def read_cached(self, fd: int, size: int, position: int) -> Bytes | None:
        self._enter("read_cached", self._path(fd))
        if self.refuses_nowait:
            raise CachedReadUnsupportedError
        return super().read_cached(fd, size, position) if self.cached_reads else None

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        path = self._path(fd)
        failure = self._enter("write", path)
        if failure is not None:
            assert failure.after_bytes is not None
            super().write(fd, [b"".join(buffers)[: failure.after_bytes]], position)
            raise OSError(failure.number, os.strerror(failure.number), path)
        super().write(fd, buffers, position)

    def free_bytes(self, path: str) -> int:
        self._enter("free_bytes", path)
        return super().free_bytes(path) if self.free is None else self.free


def _gated(operation: str, *, takes_fd: bool) -> Callable[..., Any]:
    """The operation of the real file system behind gates."""
    original = getattr(OsFileSystem, operation)

    def operate(self: GateFileSystem, target: Any, *arguments: Any) -> Any:
        self._enter(operation, self._path(target) if takes_fd else target)
        return original(self, target, *arguments)

    return operate


for _name in ("truncate", "sync", "map"):
    setattr(GateFileSystem, _name, _gated(_name, takes_fd=True))
for _name in ("rename", "link", "unlink", "modified_ms", "make_directory", "sync_directory"):
    setattr(GateFileSystem, _name, _gated(_name, takes_fd=False))


@asynccontextmanager
async def held(
    holding: AbstractContextManager[Gate], call: Callable[..., Awaitable[Any]], *arguments: Any
) -> AsyncIterator[trio.Nursery]:
    """The block begins when `call` has come to where `GateFileSystem.hold` holds it, and lets it go on in the end.

    Behind the block the call has ended, and whatever else was started in the nursery.
    """
    async with trio.open_nursery() as nursery:
        with holding as gate:
            nursery.start_soon(call, *arguments)
            await gate.reached()
            yield nursery
