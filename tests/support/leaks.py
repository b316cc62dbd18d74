"""What a test leaves behind in its own process: open files, threads, child processes.

`snapshot()` before, `leaks_since(before)` after; the autouse fixture in `conftest.py` does both around every test.
Linux shows all of it under /proc. Where a kernel does not list children there, that check says nothing.

An idle worker of trio's thread cache is no leak: trio keeps it for ten seconds to hand it the next job. While it
runs a job it carries the job's name, so a worker that never came back is reported.
"""

from __future__ import annotations

import gc
import os
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

GRACE_S: Final = 2.0
"""What ends by itself gets this long: a thread past its last statement, a descriptor that a thread is closing."""

_POLL_S: Final = 0.005
_DESCRIPTORS: Final = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"
_THREADS: Final = "/proc/self/task"
_IDLE_TRIO_WORKER: Final = re.compile(r"Trio thread \d+")

FileKey = tuple[int, int, int]
"""Descriptor, device, inode: stays the same when the file is renamed or unlinked."""


@attrs.frozen
class Resources:
    """Taken twice for each test, so only what tells one from another: names are looked up for what is reported."""

    files: frozenset[FileKey]
    threads: frozenset[threading.Thread]
    children: frozenset[int]


def snapshot() -> Resources:
    return Resources(_open_files(), frozenset(_busy_threads()), _children())


def leaks_since(before: Resources, *, grace_s: float = GRACE_S) -> list[str]:
    """One line for everything that is there now and was not before, after the grace; [] when nothing is.

    Cyclic garbage is collected before anything is called a leak: a traceback that pytest keeps may hold a descriptor.
    """
    found = _difference(before, snapshot())
    if not found:
        return found
    gc.collect()
    deadline = time.monotonic() + grace_s
    while (found := _difference(before, snapshot())) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _difference(before: Resources, after: Resources) -> list[str]:
    files = [f"fd {key[0]} -> {_target(*key)}" for key in sorted(after.files - before.files)]
    threads = [f"thread {thread.name!r}" for thread in after.threads - before.threads]
    children = [f"child process {pid}: {_command(pid)}" for pid in sorted(after.children - before.children)]
    return files + sorted(threads) + children


def _open_files() -> frozenset[FileKey]:
    files = []
    for name in os.listdir(_DESCRIPTORS):
        try:
            status = os.fstat(int(name))
        except OSError:  # the descriptor of this very listing is closed by now
            continue
        files.append((int(name), status.st_dev, status.st_ino))
    return frozenset(files)


def _target(descriptor: int, _: int, inode: int) -> str:
    try:
        return os.readlink(f"{_DESCRIPTORS}/{descriptor}")
    except OSError:
        return f"inode {inode}"


def _busy_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if not _IDLE_TRIO_WORKER.fullmatch(thread.name)]


def _children() -> frozenset[int]:
    """Processes whose parent is this one, zombies included: nobody has waited for those."""
    children: list[int] = []
    with suppress(FileNotFoundError):  # no Linux
        for thread in os.listdir(_THREADS):  # one that ends while we look has no listing any more
            with suppress(OSError), open(f"{_THREADS}/{thread}/children", "rb", buffering=0) as listing:
                children += map(int, listing.readall().split())
    return frozenset(children)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"
