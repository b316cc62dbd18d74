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
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

GRACE_S: Final = 2.0
"""What ends by itself gets this long: a thread past its last statement, a descriptor that a thread is closing."""

_POLL_S: Final = 0.005
_IDLE_TRIO_WORKER: Final = re.compile(r"Trio thread \d+")

FileKey = tuple[int, int, int]
"""Descriptor, device, inode: stays the same when the file is renamed or unlinked."""


@attrs.frozen(kw_only=True)
class Resources:
    files: Mapping[FileKey, str]
    threads: frozenset[threading.Thread]
    children: Mapping[int, str]


def snapshot() -> Resources:
    return Resources(files=_open_files(), threads=frozenset(_busy_threads()), children=_children())


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
    files = [f"fd {key[0]} -> {what}" for key, what in after.files.items() if key not in before.files]
    threads = [f"thread {thread.name!r}" for thread in after.threads - before.threads]
    children = [f"child process {pid}: {what}" for pid, what in after.children.items() if pid not in before.children]
    return files + sorted(threads) + children


def _open_files() -> dict[FileKey, str]:
    folder = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"
    files: dict[FileKey, str] = {}
    for name in os.listdir(folder):
        try:
            status = os.fstat(int(name))
        except OSError:  # the descriptor of this very listing is closed by now
            continue
        files[int(name), status.st_dev, status.st_ino] = _target(f"{folder}/{name}", status)
    return files


def _target(link: str, status: os.stat_result) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return f"mode {status.st_mode:o}, inode {status.st_ino}"


def _busy_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if not _IDLE_TRIO_WORKER.fullmatch(thread.name)]


def _children() -> dict[int, str]:
    """Processes whose parent is this one, zombies included: nobody has waited for those."""
    children: dict[int, str] = {}
    for listing in Path("/proc/self/task").glob("*/children"):
        try:
            pids = listing.read_text().split()
        except OSError:  # that thread ended while we looked
            continue
        children.update((int(pid), _command(pid)) for pid in pids)
    return children


def _command(pid: str) -> str:
    try:
        return Path("/proc", pid, "comm").read_text().strip()
    except OSError:
        return "ended"
