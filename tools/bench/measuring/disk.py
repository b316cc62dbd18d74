"""Measure syncs of the disk without a server: the bare loop that a row is compared with."""

from __future__ import annotations

import os
import tempfile
import time

RECORD: bytes = bytes(200)


def sync_times_s(directory: str, *, count: int) -> list[float]:
    """How long each `fdatasync` took after an append of 200 bytes to a new file, which is gone afterwards."""
    sync = getattr(os, "fdatasync", os.fsync)
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        fd = file.fileno()
        for number in range(count):
            os.pwrite(fd, RECORD, number * len(RECORD))
            started = time.perf_counter()
            sync(fd)
            times.append(time.perf_counter() - started)
    return times


def sync_rate(*, directory: str, count: int) -> dict[str, float]:
    """Appends of 200 bytes per second, each followed by its `fdatasync`."""
    started = time.perf_counter()
    sync_times_s(directory, count=count)
    return {"rate": count / (time.perf_counter() - started)}
