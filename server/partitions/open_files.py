"""Files and maps that are open right now: opened when an operation needs them, under the budget of descriptors; leased, and so
kept open, while an operation relies on them; closed in a thread, since the last close of a deleted segment can take long.

The budget of file descriptors and maps (CPython's `mmap` keeps a duplicate of its descriptor, so a map counts as one).

A thousand partitions have five each and a process may have 1,024. So idle files are closed and idle maps dropped, and whoever
needs one again opens it: nothing but time is lost. Idle is found by second chance: every use sets a mark, the sweep clears
it, and takes what it finds without one. A file with a lease is never taken.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import attrs
import trio

from ...protocol.types import Bytes
from ..storage.disk.diskops import FileHandle, Map, Mapped, Open
from ..storage.disk.filesystem import FileSystem
from ..storage.indexes.index import AbstractIndex
from ..system.open_files import default_max_connections, log_file_budget
from .task_errors import TaskErrors

CLOSE_BACKLOG: Final = 16
"""Idle descriptors that wait to be closed; past it whoever opens a file closes them first, so that the budget holds."""
FILES_OF_OPENER: Final = 4


@attrs.define(eq=False, repr=False)
class OpenFiles:
    """Owner: a disk, in the trio thread. `run_closer` is its task."""

    fs: FileSystem
    budget: DescriptorBudget
    hop: Callable[..., Awaitable[Any]]
    """Calls a function in a thread."""
    errors: TaskErrors = attrs.field(factory=TaskErrors)
    _to_close: list[int] = attrs.field(factory=list)
    """Only the thread that closes them takes them out: a task that is cancelled before its thread begins leaves them there."""
    _closing: trio.Event = attrs.field(factory=trio.Event)
    _closers: int = 0
    _none_closes: trio.Event = attrs.field(factory=trio.Event)
    _leases: int = 0
    _idle: trio.Event = attrs.field(factory=trio.Event)

    @contextlib.contextmanager
    def leased(self, files: Sequence[FileHandle]) -> Iterator[None]:
        """Keep files open within the block, those that are and those that are opened there."""
        for file in files:
            file.leases += 1
            file.used = True
        self._leases += 1
        try:
            yield
        finally:
            for file in files:
                file.leases -= 1
                if file.is_released:
                    self._close_released(file)
            self._leases -= 1
            if not self._leases:
                self._idle.set()

    async def open(self, file: FileHandle) -> None:
        """Open a file, unless somebody else does meanwhile. Raises OSError."""
        await self._close_backlog()
        fd = await self.hop(Open(file).run, self.fs)
        if file.fd is None:
            self.adopt(file, fd)
        else:
            self._close_soon([fd])

    def adopt(self, file: FileHandle, fd: int) -> None:
        """Take a descriptor into the budget."""
        file.fd = fd
        self._close_soon(self.budget.admit(file))

    async def map(self, operation: Map) -> Bytes:
        """Map an index. Raises OSError."""
        await self._close_backlog()
        view: Bytes = await self.hop(operation.run, self.fs)
        mapped = operation.mapped
        if mapped.buffer is None and not mapped.file.is_released:  # of readers that came at once the first one's map is kept
            self._close_soon(self.budget.admit(mapped))
        return view

    def release(self, files: Sequence[FileHandle], indexes: Sequence[AbstractIndex]) -> None:
        """Close files and drop maps for good; the files of `indexes` are among them. A read that still runs, or begins later,
        keeps its file till it ends."""
        for index in indexes:
            index.file.is_released = True
            index.buffer = None
            self.budget.forget(index)
        for file in files:
            file.is_released = True
            self._close_released(file)

    def _close_released(self, file: FileHandle) -> None:
        if file.leases:
            return
        self.budget.forget(file)
        if file.fd is not None:
            self._close_soon([file.fd])
            file.fd = None

    def _close_soon(self, fds: Sequence[int]) -> None:
        if fds:
            self._to_close.extend(fds)
            self._closing.set()

    async def run_closer(self) -> None:
        """Close what has become idle, in a thread, until cancelled."""
        await self.errors.repeat("file-closer", self._close_next)

    async def _close_next(self) -> None:
        await self._closing.wait()
        self._closing = trio.Event()
        await self._close_waiting()

    async def close_all(self) -> None:
        """Close every descriptor that is left, once the operations that rely on one have ended."""
        while self._leases:
            self._idle = trio.Event()
            await self._idle.wait()
        self._to_close.extend(self.budget.clear())
        await self._close_waiting()

    async def _close_backlog(self) -> None:
        if len(self._to_close) > self.budget.at_a_time(CLOSE_BACKLOG, FILES_OF_OPENER):
            await self._close_waiting()

    async def close_released(self) -> None:
        """Close the released files before it returns, except files that are still read. A device gets the space of deleted
        files back when the last descriptor closes."""
        await self._close_waiting()
        while self._closers:
            self._none_closes = trio.Event()
            await self._none_closes.wait()

    async def _close_waiting(self) -> None:
        if self._to_close:
            self._closers += 1
            try:
                await self.hop(_close_each, self.fs, self._to_close)
            finally:
                self._closers -= 1
                if not self._closers:
                    self._none_closes.set()


def _close_each(fs: FileSystem, fds: list[int]) -> None:
    """Beside other threads that do the same: each takes what the others have not."""
    with contextlib.suppress(IndexError):
        while True:
            fd = fds.pop()
            with contextlib.suppress(OSError):
                fs.close(fd)


Holder = FileHandle | Mapped


def default_budget() -> int:
    """Beside as many connections as there are by default."""
    return log_file_budget(default_max_connections())


@attrs.define(eq=False, repr=False)
class DescriptorBudget:
    """The current holders of descriptors. Owner: the disk, in the trio thread."""

    limit: int = attrs.field(factory=default_budget)
    _holders: OrderedDict[Holder, None] = attrs.field(factory=OrderedDict)
    """The next candidate for the sweep first."""

    @property
    def held(self) -> int:
        """Descriptors that open files and maps take, including files and maps that their log has closed and may open again."""
        return len(self._holders)

    def at_a_time(self, most: int, files: int) -> int:
        """`most` users of so many files each, or as many as a small budget has room for; never so few that one file that hangs
        holds up the rest."""
        return max(2, min(most, self.limit // files))

    def admit(self, holder: Holder) -> list[int]:
        """Count a file that was just opened or an index that was just mapped; answers descriptors to close for it.

        Room is made among the others: the newcomer stays.
        """
        to_close = self._make_room() if len(self._holders) >= self.limit else []
        self._holders[holder] = None
        holder.used = True
        return to_close

    def forget(self, holder: Holder) -> None:
        """The file will not be opened, or the index mapped, again: keep nothing of it. Its owner closes the descriptor."""
        self._holders.pop(holder, None)

    def _make_room(self) -> list[int]:
        to_close: list[int] = []
        for _ in range(2 * len(self._holders)):
            if len(self._holders) < self.limit:
                break
            holder, _ = self._holders.popitem(last=False)
            if not _is_open(holder):
                continue
            if holder.used or (isinstance(holder, FileHandle) and holder.leases):
                holder.used = False
                self._holders[holder] = None
            elif isinstance(holder, FileHandle):
                assert holder.fd is not None
                to_close.append(holder.fd)
                holder.fd = None
            else:
                holder.buffer = None
        return to_close

    def clear(self) -> list[int]:
        """Give everything back; answers the descriptors to close."""
        to_close = [holder.fd for holder in self._holders if isinstance(holder, FileHandle) and holder.fd is not None]
        for holder in self._holders:
            if isinstance(holder, FileHandle):
                holder.fd = None
            else:
                holder.buffer = None
        self._holders.clear()
        return to_close


def _is_open(holder: Holder) -> bool:
    return holder.fd is not None if isinstance(holder, FileHandle) else holder.buffer is not None
