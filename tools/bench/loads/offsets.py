"""Offset lookups in a large log, inside the process, as a fetch makes them: snapshot, index, headers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import trio

from ....protocol.types import TopicPartition
from ....server.actors.disk.disk import Disk
from ....server.config import LogConfig
from ....server.storage.disk.filesystem import OsFileSystem
from ....server.storage.log.log import Log
from ....server.storage.recovery.recovery import OpenLog, open_log
from ....server.system.clock import system_now_ms
from ..measuring.child import LoadFailedError
from ..measuring.measure import percentile
from .sparse_log import generate


def look_up_offsets(
    *, directory: str, segments: int, segment_bytes: int, targets_per_segment: int, rounds: int
) -> dict[str, Any]:
    """p50 and p99 in microseconds of each round over all targets, after one round that warms."""
    made = generate(directory, segments=segments, segment_bytes=segment_bytes, targets_per_segment=targets_per_segment)
    fs = OsFileSystem()
    request = OpenLog(
        topic_partition=TopicPartition("sparse", 0),
        directory=directory,
        config=LogConfig(),
        now_ms=system_now_ms,
        was_clean=True,
    )
    log = open_log(fs, request)

    async def look_up() -> list[list[float]]:
        disk = Disk(fs)
        try:
            return [await _round(disk, log, made.targets) for _ in range(1 + rounds)][1:]
        finally:
            await disk.files.close_all()

    times = trio.run(look_up)
    return {
        "p50_us": [percentile(each, 0.5) for each in times],
        "p99_us": [percentile(each, 0.99) for each in times],
        "targets": len(made.targets),
        "size_bytes": made.size_bytes,
        "entries": made.entries,
    }


async def _round(disk: Disk, log: Log, targets: Sequence[int]) -> list[float]:
    times = []
    for offset in targets:
        started = time.perf_counter_ns()
        snapshot = log.snapshot()
        found = await disk.read(snapshot.segment(snapshot.slot_of(offset)).translate_offset(offset))
        times.append((time.perf_counter_ns() - started) / 1000)
        if found is None or not found.header.base_offset <= offset <= found.header.last_offset:
            raise LoadFailedError(f"the lookup of offset {offset} found {found}")
    return times
