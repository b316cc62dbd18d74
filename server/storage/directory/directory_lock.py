"""The lock on a log directory, held for the life of the process: of the directory, and of `.lock` in it (Kafka: FileLock).

| lock | on | keeps out |
|---|---|---|
| `flock` | the directory | a second triolog, in the same process too, and when somebody has removed `.lock` |
| `flock` | `.lock` | the same where directories have no locks (NFS) |
| record lock | `.lock` | Kafka, which takes that one |

A process loses its record locks when it closes *any* descriptor of the file, which a refused second owner does; where the
kernel has them (Linux), the record lock therefore belongs to the open file and not to the process. The holder writes who it is
into the file, for the message that a second one gets. (This file bypasses the file-system seam: a lock is the kernel's, not
storage.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import Final, Self

import attrs

from ..disk.checkpoints import LOCK_FILE
from ..disk.filesystem import open_file, open_regular
from ..errors import LogDirectoryError, is_out_of_space

_OPEN_FILE_LOCK: Final = getattr(fcntl, "F_OFD_SETLK", None)
_WHOLE_FILE: Final = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""`struct flock`: type, whence, start, length (0: to the end), process (0 is demanded of a lock of an open file)."""
_NO_LOCK: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
"""Where directories cannot be locked: NFS turns `flock` into a record lock, for which a file has to be open for writing."""


@attrs.define(eq=False, repr=False)
class DirectoryLock:
    """A lock that is held until `release`."""

    path: str
    _fd: int
    _directory_fd: int

    @classmethod
    def acquire(cls, directory: str) -> Self:
        """Lock a directory. Raises LogDirectoryError naming the holder when someone has it, OSError when it cannot be."""
        path = f"{directory}/{LOCK_FILE}"
        with contextlib.ExitStack() as on_failure:
            directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            on_failure.callback(os.close, directory_fd)
            with _saying_who(directory, path):
                _lock_directory(directory_fd)
            fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            on_failure.callback(os.close, fd)
            with _saying_who(directory, path):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _take_record_lock(fd)
            _sign(fd)
            on_failure.pop_all()
        return cls(path, fd, directory_fd)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
        os.close(self._fd)
        os.close(self._directory_fd)


@contextlib.contextmanager
def _saying_who(directory: str, path: str) -> Iterator[None]:
    """Let a lock that is refused be a LogDirectoryError with the holder's name, as far as it can be told."""
    try:
        yield
    except (BlockingIOError, PermissionError) as exc:
        said = b""
        with contextlib.suppress(OSError):
            said = _said(path)
        holder = said.decode("utf-8", "replace").strip() or "another process (Kafka or triolog)"
        raise LogDirectoryError(
            f"log directory {directory} is locked by {holder}; stop it first, or choose another directory"
        ) from exc


def _said(path: str) -> bytes:
    fd = open_regular(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, 200, 0)
    finally:
        os.close(fd)


def _lock_directory(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno not in _NO_LOCK:
            raise


def _sign(fd: int) -> None:
    """Say who holds it. On a full device it says nothing: the lock is the kernel's."""
    os.ftruncate(fd, 0)
    try:
        os.pwrite(fd, f"triolog, process {os.getpid()}\n".encode(), 0)
    except OSError as exc:
        if not is_out_of_space(exc):
            raise


def _take_record_lock(fd: int) -> None:
    if _OPEN_FILE_LOCK is None:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        fcntl.fcntl(fd, _OPEN_FILE_LOCK, _WHOLE_FILE)
