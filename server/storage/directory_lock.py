"""The lock on a log directory: file `.lock`, held for the life of the process (Kafka: FileLock).

Two locks are taken on it: `flock`, which also excludes a second owner in the same process, and a record lock, which is what
Kafka takes, so the two never share a directory. A process loses its record locks when it closes *any* descriptor of the
file, which a refused second owner does; where the kernel has them (Linux), the record lock therefore belongs to the open file
and not to the process. The holder writes who it is into the file, for the message that a second one gets. (This file bypasses
the file-system seam: a lock is the kernel's, not storage.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from typing import Final, Self

import attrs

from .checkpoints import LOCK_FILE
from .errors import LogDirectoryError

_OPEN_FILE_LOCK: Final = getattr(fcntl, "F_OFD_SETLK", None)
_WHOLE_FILE: Final = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""`struct flock`: type, whence, start, length (0: to the end), process (0 is demanded of a lock of an open file)."""


@attrs.define(eq=False)
class DirectoryLock:
    """A lock that is held until `release`."""

    path: str
    _fd: int

    @classmethod
    def acquire(cls, directory: str) -> Self:
        """Lock a directory. Raises LogDirectoryError naming the holder when someone has it, OSError when it cannot be."""
        path = f"{directory}/{LOCK_FILE}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _take_record_lock(fd)
            except (BlockingIOError, PermissionError) as exc:
                holder = os.pread(fd, 200, 0).decode("utf-8", "replace").strip() or "another process (Kafka or triolog)"
                raise LogDirectoryError(
                    f"log directory {directory} is locked by {holder}; stop it first, or choose another directory"
                ) from exc
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"triolog, process {os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
        os.close(self._fd)


def _take_record_lock(fd: int) -> None:
    if _OPEN_FILE_LOCK is None:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        fcntl.fcntl(fd, _OPEN_FILE_LOCK, _WHOLE_FILE)
