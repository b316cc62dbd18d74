"""Which file systems are mounted, and which lie in memory: what is there can be read at once, though tmpfs does not know
RWF_NOWAIT."""

from __future__ import annotations

import functools
import os
from typing import Final

MOUNTS: Final = "/proc/self/mountinfo"
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def lies_in_memory(device: int) -> bool:
    """Whether a device, as `st_dev` has it, is a mount in memory; False where the system does not tell. Pages that were swapped
    out count as memory: a machine that swaps waits everywhere."""
    return file_system_type(device) in IN_MEMORY


@functools.cache
def file_system_type(device: int) -> str:
    """What is mounted on a device, as `st_dev` has it; "" where the system does not tell.

    Source: proc_pid_mountinfo(5). The third field is the device, the first one behind the single dash the file system's type.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(MOUNTS, encoding="utf-8", errors="replace") as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return ""
    found = (fields[fields.index("-") + 1] for fields in lines if fields[2:3] == [number] and "-" in fields)
    return next(found, "")
