"""CPU seconds of a JVM and of the Python workers below it, from /proc (Linux).

Workers come and go. What a process that has ended used is in its parent's count once the parent has waited for it, so the
sum over what is there now, of its own time and that of the children it has waited for, is what the tree has used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)
"""Fields of /proc/PID/stat behind the name: utime, stime, cutime, cstime."""


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a process and of everything below it, since they began."""
    fields = _stats()
    below: dict[int, list[int]] = {}
    for pid, each in fields.items():
        below.setdefault(int(each[_PARENT]), []).append(pid)
    ticks, todo = 0, [root]
    while todo:
        pid = todo.pop()
        todo += below.get(pid, [])
        if pid in fields:
            ticks += sum(map(int, fields[pid][_TIMES]))
    return ticks / TICKS_PER_S


def cpu_used_s(root: int, action: Callable[[], object]) -> float:
    """Return the CPU seconds of the tree while `action` ran; 10 ms at least, the clock's step."""
    before = tree_cpu_s(root)
    action()
    return max(tree_cpu_s(root) - before, 1 / TICKS_PER_S)


def _stats() -> dict[int, list[str]]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(path.parent.name)] = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
    return found
