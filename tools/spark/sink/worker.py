"""The setup of a Python worker of Spark: settles its memory, and drops connections that its parent process had open.

Spark's daemon forks a worker from itself and the worker calls `gc.collect()` after every task; with numpy and pyarrow loaded
that costs 40 ms of CPU each time. `gc.freeze()` takes what is there now out of the collector's sight (2.9 ms; spark.md,
decision 4). A connection that was open when a process forked is used by both, so each process makes its own.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """A resource that `PerProcess` keeps."""

    def close(self) -> None:
        """Give it up."""


K = TypeVar("K")
C = TypeVar("C", bound=Closable)

_settled_in: int | None = None


def settle() -> None:
    """Called by a task before it reads or writes; once in a process, and not outside of Spark's tasks: a program of a user's
    may count on its collector."""
    global _settled_in
    if _settled_in == os.getpid() or not _is_task():
        return
    import pyarrow as pa

    pa.set_cpu_count(1)  # one task is one core
    gc.collect()
    gc.freeze()
    _settled_in = os.getpid()


def _is_task() -> bool:
    from pyspark import TaskContext

    return TaskContext.get() is not None


class PerProcess(Generic[K, C]):
    """Things that this process has opened, by key; the oldest is closed when there are more than `limit`.

    Owner: the module that makes it, one thread. What the parent process had is closed here without a word to the other side: it
    is a copy of the descriptor.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pid = os.getpid()
        self._kept: dict[K, C] = {}

    def get(self, key: K, make: Callable[[], C]) -> C:
        """Return the resource kept under this key; create it when none is kept."""
        self._notice_fork()
        if key not in self._kept:
            while len(self._kept) >= self._limit:
                self._kept.pop(next(iter(self._kept))).close()
            self._kept[key] = make()
        return self._kept[key]

    def drop(self, key: K) -> None:
        """Close what is kept under this key, if anything."""
        self._notice_fork()
        if (kept := self._kept.pop(key, None)) is not None:
            kept.close()

    def close(self) -> None:
        """Close everything."""
        for key in list(self._kept):
            self.drop(key)

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self.close()
