"""The seam to the operating system: every byte that storage reads or writes passes here.

`FileSystem` is the contract, `OsFileSystem` the real one. Tests put others in its place: one that keeps only what was
synced, one that refuses writes. All calls block and raise OSError; none of them knows what a log is.

Linux offers `RWF_NOWAIT` (a read that never waits for the device). Where it is missing, `read_cached` declines. Syncs are those
of `system.syncs`.

Opening files, which are regular ones, and making files and directories with a mode, whatever the umask of the process is;
what is there already keeps its own. A pipe or a device under a file's name is an error at once: to open one can wait for ever,
and to read one has no end. Nothing is made through a symbolic link.

A mount that knows no modes (vfat, some network mounts) gives what it gives.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from ....protocol.limits import MIB
from ....protocol.types import Bytes
from ...config import DataPermissions
from ...system import syncs
from ...system.block_devices import WholeSync, lies_in_memory, open_whole_sync
from ..errors import FileTooLargeError

IOV_MAX: Final = 1024
"""Linux refuses more buffers in one call (UIO_MAXIOV)."""

PIECE_BYTES: Final = MIB

READ: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
WRITE: Final = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
CREATE: Final = WRITE | os.O_CREAT

_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
"""EACCES too: security modules refuse links to whom they allow copies. Where writing is refused as well, the copy says so."""
_SYSTEM: Final[Any] = os
"""Without types: not every platform has all names."""
_DONT_NEED: Final[int] = getattr(os, "POSIX_FADV_DONTNEED", 0)
_UNSUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class FileSystem(Protocol):
    """Files addressed by descriptor and position, directories by path."""

    @property
    def writes_at_once(self) -> bool:
        """Return whether the event loop may do a small write itself: only the device could delay it."""
        ...

    @property
    def is_instant(self) -> bool:
        """Return whether there is no device, so that an operation takes less time than a handover to a thread."""
        ...

    @property
    def is_dead(self) -> bool:
        """Return whether a test has ended it, as SIGKILL ends a process; later failures are then not reported."""
        ...

    def open(self, path: str, flags: int) -> int: ...
    def close(self, fd: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def read(self, fd: int, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def read_cached(self, fd: int, size: int, position: int) -> Bytes | None:
        """Exactly `size` bytes when they can be had without waiting for the device, else None."""
        ...

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        """All of `buffers`, one after the other, from `position` on."""
        ...

    def truncate(self, fd: int, size: int) -> None: ...
    def allocate(self, fd: int, size: int) -> None:
        """Reserve device space for the first `size` bytes and make the file that long."""
        ...

    def sync(self, fd: int) -> None:
        """Force data, and the size needed to read it back, to the device."""
        ...

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        """Drop all whole pages in [start, stop) (None: to the end) that nobody maps from the page cache. Dirty ones are written
        to the device before, whether that succeeds or not."""
        ...

    def forget_clean(self, fd: int, start: int, stop: int | None = None) -> None:
        """The same for pages that are not dirty, of which none need be written before."""
        ...

    def whole_sync(self, path: str) -> WholeSync | None:
        """Return the means to sync the whole file system that holds `path`, or None where the platform has none. The caller
        closes it."""
        ...

    def restrict(self, fd: int) -> None:
        """Let nobody but the file's owner read or write it."""
        ...

    def map(self, fd: int, size: int) -> Bytes:
        """A read-only view of the first `size` (> 0) bytes that shows later writes."""
        ...

    def rename(self, source: str, target: str) -> None: ...
    def link(self, source: str, target: str) -> None:
        """Give a file a second name on the same device."""
        ...

    def unlink(self, path: str) -> None: ...
    def list_directory(self, path: str) -> list[str]: ...
    def is_directory(self, path: str) -> bool: ...
    def file_size(self, path: str) -> int | None:
        """Size of the file, None when there is none."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return the time of the last change of the file's content, in ms since the epoch."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...
    def free_bytes(self, path: str) -> int:
        """Bytes that an unprivileged process may still write on the device that holds `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Size of the device that holds `path`."""
        ...

    def make_directory(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None:
        """Force names (creations, renames, deletions) in the directory to the device."""
        ...


class OsFileSystem:
    """The operating system's files. New files and directories get the modes of `permissions`. It has no state that changes, so
    worker threads share one."""

    permissions: DataPermissions = DataPermissions.OWNER
    syncs_together: bool = False

    def __init__(self, permissions: DataPermissions = DataPermissions.OWNER, *, syncs_together: bool = False) -> None:
        """`syncs_together`: whoever has many files to sync may have all of the device synced instead."""
        self.permissions = permissions
        self.syncs_together = syncs_together

    @property
    def writes_at_once(self) -> bool:
        return True

    @property
    def is_instant(self) -> bool:
        return False

    @property
    def is_dead(self) -> bool:
        return False

    def open(self, path: str, flags: int) -> int:
        return open_file(path, flags, self.permissions.file_mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(fd, missing, position + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_cached(self, fd: int, size: int, position: int) -> Bytes | None:
        try:
            flag = _SYSTEM.RWF_NOWAIT
        except AttributeError:
            return None
        buffer = bytearray(size)
        try:
            count = os.preadv(fd, [buffer], position, flag)
        except BlockingIOError:
            return None
        except OSError as exc:
            if exc.errno not in _UNSUPPORTED:
                raise
            if not lies_in_memory(os.fstat(fd).st_dev):
                raise CachedReadUnsupportedError from exc
            count = os.preadv(fd, [buffer], position)
        return buffer if count == size else None

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        while buffers:
            given = buffers[:IOV_MAX]
            written = os.pwritev(fd, given, position)
            position += written
            is_whole = written == sum(map(len, given))
            buffers = buffers[IOV_MAX:] if is_whole else _behind(buffers, written)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        syncs.sync_file(fd)

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        if not hasattr(os, "posix_fadvise"):
            return
        with contextlib.suppress(OSError):
            os.fsync(fd)
        self.forget_clean(fd, start, stop)

    def forget_clean(self, fd: int, start: int, stop: int | None = None) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, start, 0 if stop is None else stop - start, _DONT_NEED)

    def whole_sync(self, path: str) -> WholeSync | None:
        return open_whole_sync(path) if self.syncs_together else None

    def restrict(self, fd: int) -> None:
        os.fchmod(fd, 0o600)

    def map(self, fd: int, size: int) -> Bytes:
        return mmap.mmap(fd, size, prot=mmap.PROT_READ)  # type: ignore[return-value]

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize

    def make_directory(self, path: str) -> None:
        make_directories(path, self.permissions.directory_mode)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, READ)
        try:
            syncs.sync_directory(fd)
        finally:
            os.close(fd)


class CachedReadUnsupportedError(Exception):
    """The mount does not know RWF_NOWAIT: do not ask again for this file."""


@contextlib.contextmanager
def opened(fs: FileSystem, path: str, flags: int = READ) -> Iterator[int]:
    """A descriptor for the time of the block. Raises OSError that names the file, also what the block raises."""
    fd = fs.open(path, flags)
    try:
        yield fd
    except OSError as exc:
        if exc.filename is None and exc.errno is not None:
            exc.filename = path  # a read knows its descriptor only; people need the name
        raise
    finally:
        fs.close(fd)


def read_file(fs: FileSystem, path: str, *, max_bytes: int) -> bytes:
    """The whole file; OSError as `open` raises it, FileTooLargeError when it is larger than `max_bytes`."""
    with opened(fs, path) as fd:
        size = fs.size(fd)
        if size > max_bytes:
            raise FileTooLargeError(f"{path} has {size} bytes, at most {max_bytes} are read. Replace it with the right file")
        return fs.read(fd, size, 0)


def read_at(fs: FileSystem, path: str, position: int, size: int) -> bytes:
    """Up to `size` bytes of a file that nobody keeps open; fewer only at its end. Raises OSError."""
    with opened(fs, path) as fd:
        return fs.read(fd, size, position)


def pieces(fs: FileSystem, fd: int, position: int, size: int) -> Iterator[bytes]:
    """Bytes of a file, as far as there are so many, in pieces of PIECE_BYTES."""
    end = position + size
    while position < end and (piece := fs.read(fd, min(PIECE_BYTES, end - position), position)):
        yield piece
        position += len(piece)


def write_pieces(fs: FileSystem, path: str, flags: int, content: Iterable[Bytes], *, durable: bool = True) -> int:
    """Write pieces into a file, one behind the other, and force it to the device; answers how many bytes they have."""
    position = 0
    with opened(fs, path, flags) as fd:
        for piece in content:
            fs.write(fd, [piece], position)
            position += len(piece)
        if durable:
            fs.sync(fd)
    return position


def sync_file(fs: FileSystem, path: str) -> None:
    """Force a file that nobody keeps open to the device. Raises OSError."""
    with opened(fs, path) as fd:
        fs.sync(fd)


def link_file(fs: FileSystem, source: str, target: str) -> bool:
    """Create a hard link. Return False where the file system cannot, so that the caller copies. Raises OSError for other
    failures."""
    try:
        fs.link(source, target)
    except OSError as exc:
        if exc.errno in _NO_LINK:
            return False
        raise
    return True


def replace_file(fs: FileSystem, path: str, data: bytes, *, durable: bool = True, private: bool = False) -> None:
    """Put `data` at `path` so that a crash leaves the old content or the new: `.tmp`, sync, rename, directory sync.

    `durable=False` leaves out both syncs, for directories that do not outlive their process. `private`: nobody but the owner
    may read it.
    """
    temporary = path + ".tmp"
    try:
        fd = fs.open(temporary, CREATE | os.O_EXCL)
    except FileExistsError:  # a leftover, or somebody's link: nothing is written through that
        fs.unlink(temporary)
        fd = fs.open(temporary, CREATE | os.O_EXCL)
    try:
        if private:
            fs.restrict(fd)
        fs.write(fd, [data], 0)
        if durable:
            fs.sync(fd)
    except OSError as exc:
        exc.filename = exc.filename or temporary  # a write knows its descriptor only; people need the name
        raise
    finally:
        fs.close(fd)
    fs.rename(temporary, path)
    if durable:
        fs.sync_directory(os.path.dirname(path))


def _behind(buffers: Sequence[Bytes], written: int) -> list[Bytes]:
    """Return the rest of the buffers after the first `written` bytes."""
    left: list[Bytes] = []
    for buffer in buffers:
        if written < len(buffer):
            left.append(memoryview(buffer)[written:])
        written = max(0, written - len(buffer))
    return left


def open_file(path: str, flags: int, mode: int | None) -> int:
    """Open a file, or make it with `mode` (None: as the umask has it) where `flags` ask for that. Raises OSError."""
    if not flags & os.O_CREAT:
        return open_regular(path, flags)
    flags |= os.O_NOFOLLOW
    if mode is None:
        return open_regular(path, flags, 0o666)
    try:
        fd = os.open(path, flags | os.O_EXCL, mode)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return open_regular(path, flags, mode)
    if stat.S_IMODE(os.fstat(fd).st_mode) != mode:
        with contextlib.suppress(OSError):
            os.fchmod(fd, mode)
    return fd


def open_regular(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a regular file; OSError for anything else. (O_NONBLOCK means nothing to a regular file.)"""
    fd = os.open(path, flags | os.O_NONBLOCK, mode)
    if not stat.S_ISREG(kind := os.fstat(fd).st_mode):
        os.close(fd)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, "is a directory" if stat.S_ISDIR(kind) else "is not a regular file", path)
    return fd


def make_directories(path: str, mode: int | None) -> None:
    """Make a directory, and those above it that are missing, unless it is there. Raises OSError."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path.rstrip("/"))
    if parent and not os.path.exists(parent):
        make_directories(parent, mode)
    try:
        os.mkdir(path, 0o777 if mode is None else mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    if mode is not None and stat.S_IMODE(os.stat(path).st_mode) != mode:
        with contextlib.suppress(OSError):
            os.chmod(path, mode)
