"""CPU seconds of a JVM and of the Python workers below it, from /proc (Linux).

Workers come and go. What a process that has ended used is in its parent's count once the parent has waited for it, so the
sum over what is there now, of its own time and that of the children it has waited for, is what the tree has used. Spark's
Python daemon does not wait for its workers: the time of a worker that ended is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_NAME: Final = 0
_PARENT: Final = 2
_TIMES: Final = slice(12, 16)
"""Fields of /proc/PID/stat, from the name on: utime, stime, cutime, cstime."""


def tree_cpu_s(root: int) -> float:
    """Return the CPU seconds of a process and of everything below it, since they began."""
    return sum(tree_cpu_by_program(root).values())


def tree_cpu_by_program(root: int) -> dict[str, float]:
    """Return the CPU seconds of a process and of everything below it, by program: `java` or `python`."""
    fields = _stats()
    below: dict[int, list[int]] = {}
    for pid, each in fields.items():
        below.setdefault(int(each[_PARENT]), []).append(pid)
    ticks: dict[str, int] = {}
    todo = [root]
    while todo:
        pid = todo.pop()
        todo += below.get(pid, [])
        if pid in fields:
            program = "java" if fields[pid][_NAME] == "java" else "python"
            ticks[program] = ticks.get(program, 0) + sum(map(int, fields[pid][_TIMES]))
    return {program: count / TICKS_PER_S for program, count in ticks.items()}


def cpu_used_s(root: int, action: Callable[[], object]) -> float:
    """Return the CPU seconds of the tree while `action` ran; 10 ms at least, the clock's step."""
    before = tree_cpu_s(root)
    action()
    return max(tree_cpu_s(root) - before, 1 / TICKS_PER_S)


def _stats() -> dict[int, list[str]]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = path.read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
        except OSError:
            continue
        found[int(path.parent.name)] = [name, *fields.split()]
    return found
