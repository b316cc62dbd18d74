"""Force a file to its device: every sync that a guarantee rests on passes here.

| system | call | what it forces |
|---|---|---|
| Linux | fdatasync(2) | data, and the size needed to read it back; the device's cache too |
| macOS | fcntl(2) with F_FULLFSYNC | the same with all metadata. fsync(2) there leaves the data in the device's cache |
| others | fsync(2) | as the system has it |

File systems without F_FULLFSYNC (network mounts, exFAT) refuse it, and get fsync(2).
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

_WITHOUT_FULL_SYNC: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS})


def sync_file(fd: int) -> None:
    """Force the data of a file, and the size needed to read it back, to the device. Raises OSError."""
    if not _sync_fully(fd):
        getattr(os, "fdatasync", os.fsync)(fd)


def sync_directory(fd: int) -> None:
    """Force the names in a directory to the device. Raises OSError."""
    if not _sync_fully(fd):
        os.fsync(fd)


def _sync_fully(fd: int) -> bool:
    """Return False where the system, or the file system, has no full sync. An error of the device is raised."""
    command = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        return False
    try:
        fcntl.fcntl(fd, command)
    except OSError as exc:
        if exc.errno in _WITHOUT_FULL_SYNC:
            return False
        raise
    return True
