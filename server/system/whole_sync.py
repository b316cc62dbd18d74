"""Forcing a whole file system to the device at once (syncfs(2)), where thousands of files would be forced one by one.

Each `fsync` of a new or grown file is a commit of the journal and a flush of the device: 0.3 ms on a good one, and half of
that on the processor. For 5,000 partitions that is 20,000 of them; `syncfs` is one.

It counts only where it says what failed. The kernel remembers for each open descriptor which errors of its file system it was
told of (Linux 5.8), so the descriptor is opened before anything is written; that the journal failed is told since Linux 5.17;
file systems that lie over others pass on nothing. After an error it is not asked again: it would not be told twice.

It writes what everybody has changed, not this server alone. So it is only taken where less is dirty than the single syncs cost.

Which file systems are mounted, and which lie in memory: what is there can be read at once, though tmpfs does not know
RWF_NOWAIT.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

from ...protocol.limits import KIB

TELLS_ERRORS: Final = (5, 17)
KNOWN: Final = frozenset({"ext4", "xfs"})
FEWEST: Final = 8
"""Single syncs that it is worth asking for."""
WORTH_BYTES: Final = 128 * KIB
"""What a device writes in the time of one sync."""
MEMORY: Final = "/proc/meminfo"


class WholeSync(Protocol):
    """Stands for a file system, from before it is written to."""

    def sync_instead(self, syncs: int) -> bool:
        """Force everything to the device in place of so many syncs. False: that would not be cheaper, or not all may be there,
        and each has to be done by itself. Blocks."""
        ...

    def close(self) -> None: ...


class DeviceSync:
    """A `WholeSync` that uses the system. Only one thread may use it at a time: of two simultaneous calls only one would get an
    error."""

    def __init__(self, path: str, syncfs: Callable[[int], None], dirty_bytes: Callable[[], int]) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._syncfs, self._dirty_bytes = syncfs, dirty_bytes
        self._has_failed = False

    def sync_instead(self, syncs: int) -> bool:
        if self._has_failed or syncs < FEWEST or self._dirty_bytes() > syncs * WORTH_BYTES:
            return False
        try:
            self._syncfs(self._fd)
        except OSError:
            self._has_failed = True
            return False
        return True

    def close(self) -> None:
        os.close(self._fd)


def open_whole_sync(path: str) -> DeviceSync | None:
    """For the file system that holds `path`; None where a whole one cannot be forced, or would not tell of errors."""
    if sys.platform != "linux" or _kernel() < TELLS_ERRORS or file_system_type(os.stat(path).st_dev) not in KNOWN:
        return None
    syncfs = _system_call()
    return None if syncfs is None else DeviceSync(path, syncfs, dirty_bytes)


def dirty_bytes() -> int:
    """Return the bytes that the kernel has yet to write, for all devices; sys.maxsize where the system does not report them."""
    try:
        with open(MEMORY, encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return sum(int(fields[name].split()[0]) * KIB for name in ("Dirty", "Writeback"))
    except (OSError, KeyError, ValueError):
        return sys.maxsize


def _kernel() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return () if found is None else tuple(map(int, found.groups()))


@cache
def _system_call() -> Callable[[int], None] | None:
    import ctypes  # not needed but for this

    try:
        function = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None

    def syncfs(fd: int) -> None:
        if function(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return syncfs


MOUNTS: Final = "/proc/self/mountinfo"
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def lies_in_memory(device: int) -> bool:
    """Return whether a device, as in `st_dev`, is a mount in memory; False where the system does not report it. Pages that were
    swapped out count as memory: a machine that swaps waits everywhere."""
    return file_system_type(device) in IN_MEMORY


@functools.cache
def file_system_type(device: int) -> str:
    """Return the file system type of a device, as in `st_dev`; "" where the system does not report it.

    Source: proc_pid_mountinfo(5). The third field is the device, the first one after the single dash is the file system's type.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return ""
    found = (fields[fields.index("-") + 1] for fields in lines if fields[2:3] == [number] and "-" in fields)
    return next(found, "")
