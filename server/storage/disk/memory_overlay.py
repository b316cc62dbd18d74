"""A file system for logs that wait for space: what is written stays in memory, what is there is read where it lies.

A log whose opening finds no space is opened once more on this one. Its indexes, its small files and every change of a name are
kept here; the device is not changed, and when there is space the log is opened again from what the device has.

| what | where |
|---|---|
| a file that is made, emptied or put in place | memory, against `max_bytes` |
| reads of other files, also under the name they have here | the device |
| a `.log` that is cut | its size here; bytes of the device are never kept |
| a `.log` that is written with the bytes it has | the device, where that takes no space; with others: ENOSPC |
| a control batch behind the end of a `.log`, which covers a gap there | memory, against `max_bytes`; more bytes: ENOSPC |
| what is set aside of a damaged log (`.corrupt-`) | its size only: nobody reads it before the log is opened again |
| syncs of files and directories of the device | the device: what is served must survive a power cut |

One thread at a time changes it (the one that opens logs); others read meanwhile.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Sequence
from typing import Final, TypeVar

import attrs

from ....protocol.types import Bytes
from .filesystem import READ, WRITE, FileSystem, opened
from .paths import CORRUPT_MARK, LOG_SUFFIX

FIRST_DESCRIPTOR: Final = 1 << 30
"""Descriptors of files in memory are numbers from here on, which no system gives to a real one."""
MOST_TAIL_BYTES: Final = 128
"""Behind the end of a log of the device: a control batch of one record."""


@attrs.define(eq=False, repr=False)
class _Memory:
    """A file in memory: `data`, and zeros behind it up to `size`."""

    directory: str
    """Whose bytes they count as."""
    is_kept: bool
    """False: only the size."""
    data: bytearray = attrs.field(factory=bytearray)
    size: int = 0
    modified_ms: int = attrs.field(factory=lambda: time.time_ns() // 1_000_000)
    _mapped: list[bytearray] = attrs.field(factory=list)
    """What maps show. Such a buffer does not grow: a longer one takes its place, and both are written."""

    def missing(self, length: int) -> int:
        """Bytes of memory that it takes to have `length` real ones."""
        return max(0, length - len(self.data)) if self.is_kept else 0

    def reach(self, length: int) -> None:
        if self.missing(length):
            self.data = self.data + bytes(self.missing(length))

    def read(self, size: int, position: int) -> bytes:
        stop = max(position, min(position + size, self.size))
        found = bytes(self.data[position:stop])
        return found + bytes(stop - position - len(found))

    def write(self, data: bytes, position: int) -> None:
        if self.is_kept:
            self.reach(position + len(data))
            for buffer in {id(each): each for each in (self.data, *self._mapped)}.values():
                part = data[: max(0, len(buffer) - position)]
                buffer[position : position + len(part)] = part
        self.size = max(self.size, position + len(data))

    def resize(self, size: int) -> None:
        if size < len(self.data):
            self.data = self.data[:size]
        self.size = size

    def map(self, size: int) -> memoryview:
        self.reach(size)
        if not any(each is self.data for each in self._mapped):
            self._mapped.append(self.data)
        return memoryview(self.data)[:size].toreadonly()


@attrs.define(eq=False, repr=False)
class _Through:
    """A file of the device, under its own name or another one, perhaps cut, perhaps with a few bytes behind its end."""

    path: str
    size: int | None = None
    """How much of the device's file is this one; None: all."""
    tail: bytes = b""
    """What was written behind that; `size` is known then."""


_File = _Memory | _Through
T = TypeVar("T", bound=_File | None)


class MemoryOverlay:
    """`FileSystem` over another one. See the module."""

    def __init__(self, fs: FileSystem, max_bytes: int) -> None:
        self._fs = fs
        self._max_bytes = max_bytes
        self._names: dict[str, dict[str, _File | None]] = {}
        """By directory and name, what is not as the device has it. None: there is no such file here."""
        self._open: dict[int, tuple[_File, bool]] = {}
        """What a descriptor stands for, and whether it may be written."""
        self._descriptors = itertools.count(FIRST_DESCRIPTOR)
        self._taken: dict[str, int] = {}
        """Bytes of memory by directory: all that its files ever took, until it is dropped."""

    def drop(self, directory: str) -> None:
        """Let a directory be as the device has it. What is open stays as it is."""
        self._names.pop(directory, None)
        self._taken.pop(directory, None)

    @property
    def held_bytes(self) -> int:
        """Return the bytes that count against `max_bytes`."""
        return sum(self._taken.values())

    @property
    def writes_at_once(self) -> bool:
        return False

    @property
    def is_instant(self) -> bool:
        return self._fs.is_instant

    @property
    def is_dead(self) -> bool:
        return self._fs.is_dead

    def open(self, path: str, flags: int) -> int:
        is_writable = bool(flags & (os.O_RDWR | os.O_WRONLY))
        file = self._find(path)
        if file is None:
            if not flags & os.O_CREAT or not self._fs.is_directory(os.path.dirname(path)):
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            file = self._put(path, _new(path))
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        elif flags & os.O_TRUNC:
            file = self._put(path, _new(path))
        elif is_writable and isinstance(file, _Through):
            file = self._put(path, file if path.endswith(LOG_SUFFIX) else self._copy(file))
        flags = WRITE if is_writable else READ
        fd = self._fs.open(file.path, flags) if isinstance(file, _Through) else next(self._descriptors)
        self._open[fd] = file, is_writable
        return fd

    def close(self, fd: int) -> None:
        file, _ = self._open.pop(fd, (None, False))
        if not isinstance(file, _Memory):
            self._fs.close(fd)

    def size(self, fd: int) -> int:
        file = self._by_fd(fd)
        if isinstance(file, _Memory):
            return file.size
        return self._fs.size(fd) if file.size is None else file.size + len(file.tail)

    def read(self, fd: int, size: int, position: int) -> bytes:
        file = self._by_fd(fd)
        if isinstance(file, _Through):
            data = self._fs.read(fd, _within(file, size, position), position)
            return data + _of_tail(file, size - len(data), position + len(data)) if file.tail else data
        if not file.is_kept:
            raise self._no_space("memory does not keep bytes that were set aside from a damaged log")
        return file.read(size, position)

    def read_cached(self, fd: int, size: int, position: int) -> Bytes | None:
        file = self._by_fd(fd)
        if isinstance(file, _Through):
            return self._fs.read_cached(fd, size, position) if _within(file, size, position) == size else None
        data = self.read(fd, size, position)
        return data if len(data) == size else None

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        file, data = self._by_fd(fd, writing=True), b"".join(buffers)
        if isinstance(file, _Memory):
            self._take(file, position + len(data))
            file.write(data, position)
        elif self.read(fd, len(data), position) == data:
            if on_device := data[: _within(file, len(data), position)]:
                self._fs.write(fd, [on_device], position)
        elif position == self.size(fd) and len(file.tail) + len(data) <= MOST_TAIL_BYTES:
            self._take_bytes(file.path.rpartition("/")[0], len(data))
            file.size, file.tail = position - len(file.tail), file.tail + data
        else:
            raise self._no_space("memory does not keep bytes of logs")

    def truncate(self, fd: int, size: int) -> None:
        file = self._by_fd(fd, writing=True)
        if isinstance(file, _Memory):
            file.resize(size)
        elif size <= self.size(fd):
            kept = size if file.size is None else min(size, file.size)
            file.size, file.tail = kept, file.tail[: size - kept]
        else:
            raise self._no_space("memory does not keep bytes of logs")

    def allocate(self, fd: int, size: int) -> None:
        if size > self.size(fd):
            self.truncate(fd, size)

    def sync(self, fd: int) -> None:
        if isinstance(self._by_fd(fd), _Through):
            self._fs.sync(fd)

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        if isinstance(self._by_fd(fd), _Through):
            self._fs.forget(fd, start, stop)

    def forget_clean(self, fd: int, start: int, stop: int | None = None) -> None:
        if isinstance(self._by_fd(fd), _Through):
            self._fs.forget_clean(fd, start, stop)

    def whole_sync(self, path: str) -> None:
        """There is no device."""

    def restrict(self, fd: int) -> None:
        """Memory is the process's own; a file of the device keeps the rights that it has."""

    def map(self, fd: int, size: int) -> Bytes:
        file = self._by_fd(fd)
        if isinstance(file, _Through):
            return self._fs.map(fd, size)
        if not 0 < size <= file.size:
            raise ValueError(f"cannot map {size} bytes of a file of {file.size}")
        self._take(file, size)
        return file.map(size)

    def rename(self, source: str, target: str) -> None:
        file = self._find(source)
        if file is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._put(source, None)
        self._put(target, file)

    def link(self, source: str, target: str) -> None:
        raise self._no_space(f"{target} is not created in memory")

    def unlink(self, path: str) -> None:
        if self._find(path) is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._put(path, None)

    def list_directory(self, path: str) -> list[str]:
        names = set(self._fs.list_directory(path))
        for name in self._names.get(path, {}):
            if self._find(f"{path}/{name}") is None:
                names.discard(name)
            else:
                names.add(name)
        return sorted(names)

    def is_directory(self, path: str) -> bool:
        return self._fs.is_directory(path)

    def file_size(self, path: str) -> int | None:
        file = self._find(path)
        if not isinstance(file, _Through):
            return None if file is None else file.size
        return self._fs.file_size(file.path) if file.size is None else file.size + len(file.tail)

    def modified_ms(self, path: str) -> int:
        file = self._find(path)
        return file.modified_ms if isinstance(file, _Memory) else self._fs.modified_ms(path if file is None else file.path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        file = self._find(path)
        if isinstance(file, _Memory):
            file.modified_ms = modified_ms
        else:
            self._fs.set_modified_ms(path if file is None else file.path, modified_ms)

    def free_bytes(self, path: str) -> int:
        return self._fs.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._fs.total_bytes(path)

    def make_directory(self, path: str) -> None:
        if not self._fs.is_directory(path):
            raise self._no_space(f"{path} is not created in memory")

    def remove_directory(self, path: str) -> None:
        raise self._no_space(f"{path} stays unchanged on the device")

    def sync_directory(self, path: str) -> None:
        self._fs.sync_directory(path)

    def _find(self, path: str) -> _File | None:
        directory, _, name = path.rpartition("/")
        names = self._names.get(directory, {})
        file = names[name] if name in names else _Through(path)
        if isinstance(file, _Through) and self._fs.file_size(file.path) is None:
            return None
        return file

    def _put(self, path: str, file: T) -> T:
        directory, _, name = path.rpartition("/")
        self._names.setdefault(directory, {})[name] = file
        return file

    def _take(self, file: _Memory, length: int) -> None:
        """Count what `file` takes to have that many bytes. Raises OSError: ENOSPC."""
        self._take_bytes(file.directory, file.missing(length))

    def _take_bytes(self, directory: str, missing: int) -> None:
        held = self.held_bytes
        if missing and held + missing > self._max_bytes:
            raise self._no_space(f"memory holds {held} bytes instead, and {missing} more would exceed {self._max_bytes}")
        self._taken[directory] = self._taken.get(directory, 0) + missing

    def _copy(self, file: _Through) -> _Memory:
        """A small file of the device that is to be changed."""
        with opened(self._fs, file.path) as fd:
            size = self._fs.size(fd)
            copy = _new(file.path)
            self._take(copy, size)
            copy.write(self._fs.read(fd, size, 0), 0)
            return copy

    def _by_fd(self, fd: int, *, writing: bool = False) -> _File:
        file, is_writable = self._open.get(fd, (None, False))
        if file is None or (writing and not is_writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file

    def _no_space(self, why: str) -> OSError:
        return OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}; {why}")


def _new(path: str) -> _Memory:
    return _Memory(path.rpartition("/")[0], CORRUPT_MARK not in path)


def _within(file: _Through, size: int, position: int) -> int:
    """Return how many of the bytes are before the cut."""
    return size if file.size is None else max(0, min(size, file.size - position))


def _of_tail(file: _Through, size: int, position: int) -> bytes:
    """Bytes from `position` on that lie behind the end of the device's file."""
    at = position - (file.size or 0)
    return file.tail[at : at + size] if at >= 0 else b""
