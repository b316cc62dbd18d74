"""Compaction rows: the throughput of the cleaner's process, and the slowdown of appends while it compacts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final

from ....protocol.limits import MIB
from ..loads import append_on_schedule, fill_keyed, run_cleaner, write_keyed_log
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, LoadProcess, run_load
from ..measuring.machine import usable_cores
from ..measuring.report import Line, RowResult, at_least, at_most, ratio
from ..measuring.server import Server, serving
from ..measuring.wire import Wire

LARGE: Final = (1024, 1_000_000_000)
SMALL: Final = (100, 50_000_000)
MAP_MIB: Final = 16
"""630,000 keys: all that the log has. The default is 128 MiB, of which a log takes what its records could need."""
PROCESS_MIB: Final = 32
"""An interpreter with the storage's modules, what was read at once, indexes that are written."""
SAMPLES: Final = 2

ROUNDS: Final = 3
BESIDE_BYTES: Final = 200_000_000
BESIDE_VALUE_BYTES: Final = 1024
SEGMENT_BYTES: Final = 64 * MIB
SETTINGS: Final = {"cleaner_backoff_ms": 50, "cleaner_dedupe_buffer_bytes": MAP_MIB * MIB}
CORES: Final = 3

APPENDERS: Final[dict[str, Any]] = {"topic": "appended", "connections": 8, "rate": 500.0, "value_bytes": 100}
"""The rate is a third of what one connection gets synced on a slow device: appenders do not queue because of themselves."""
SECONDS: Final = 3.0
POLL_S: Final = 0.2
TIMEOUT_S: Final = 120.0


def compaction(bench: Bench) -> RowResult:
    """Compact uncompressed logs with half as many keys as records: all is read twice, 43% of it is written and synced."""
    lines: list[Line] = []
    for value_bytes, full_bytes in (LARGE, SMALL):
        total_bytes = bench.scale.count(full_bytes, least=100_000)
        with bench.workspace() as directory:
            bench.say(f"writing records of {value_bytes} B")
            log = {"directory": directory, "total_bytes": total_bytes, "value_bytes": value_bytes, "map_bytes": MAP_MIB * MIB}
            written = run_load(write_keyed_log, **log)
            runs = []
            for number in range(min(SAMPLES, bench.scale.rounds)):
                bench.say(f"compacting records of {value_bytes} B, {number + 1}")
                runs.append(run_cleaner(written["job"]))
        what = f"{written['bytes'] / 1e6:,.0f} MB, records of {value_bytes} B"
        speed = [written["bytes"] / run["seconds"] / 1e6 for run in runs]
        memory = [run["memory_mib"] for run in runs]
        note = f"{runs[0]['keys']:,} keys, {runs[0]['written'] / 1e6:,.0f} MB written"
        target = at_least(40, "MB/s") if value_bytes == LARGE[0] else None
        lines.append(Line(what, "MB/s", speed, target, note))
        lines.append(
            Line(f"memory of the process, map of {MAP_MIB} MiB, {what}", "MiB", memory, at_most(MAP_MIB + PROCESS_MIB, "MiB"))
        )
    return RowResult("compaction, process start to its end", lines)


def appends_beside_compaction(bench: Bench) -> RowResult:
    """Append at a fixed rate under `fsync` while one topic after the other is compacted."""
    bench = bench.with_rounds(ROUNDS)
    size = bench.scale.count(BESIDE_BYTES, least=1_000_000)
    with bench.workspace() as directory, serving(directory, durability="fsync", settings=SETTINGS) as server:
        with Wire(server.address) as wire:
            wire.create_topic(APPENDERS["topic"], retention_ms="-1")
        topics = _fill_topics(bench, server, size)
        load = {"address": server.address, **APPENDERS}
        seconds = bench.scale.seconds(SECONDS)
        samples = bench.interleave(
            {
                "alone": lambda: float(run_load(append_on_schedule, seconds=seconds, **load)["p99_ms"]),
                "beside": lambda: _beside(load, server, next(topics)),
            }
        )
    cores = usable_cores()
    has_core = cores >= CORES
    target = at_most(2, "x") if has_core else None
    note = "" if has_core else f"<= 2 x with a core free; here server, appenders and cleaner have {cores} cores"
    title = f"appenders' p99 during a compaction of {size / 1e6:,.0f} MB of {BESIDE_VALUE_BYTES} B records"
    return RowResult(
        title,
        [
            Line("alone", "ms", samples["alone"]),
            Line("during compaction", "ms", samples["beside"]),
            ratio("during compaction / alone", samples["beside"], samples["alone"], target, note),
        ],
    )


def _fill_topics(bench: Bench, server: Server, size: int) -> Iterator[str]:
    names = [f"keyed-{number}" for number in range(bench.scale.rounds + 1)]
    for name in names:
        bench.say(f"filling {name}")
        with Wire(server.address) as wire:
            segment_bytes = min(SEGMENT_BYTES, size // 3)
            wire.create_topic(name, retention_ms="-1", segment_bytes=str(segment_bytes), min_cleanable_dirty_ratio="0")
        run_load(fill_keyed, address=server.address, topic=name, total_bytes=size, value_bytes=BESIDE_VALUE_BYTES)
    os.sync()  # the device has it now: it is not part of what is measured next
    return iter(names)


def _beside(load: dict[str, Any], server: Server, topic: str) -> float:
    """Return the appenders' p99 while `topic` is compacted: the server counts a round, which a short process may hide."""
    rounds, deadline = _rounds(server), time.monotonic() + TIMEOUT_S
    with LoadProcess(append_on_schedule, {**load, "seconds": None}) as appenders, Wire(server.address) as wire:
        appenders.wait_until_started()
        wire.alter_topic(topic, cleanup_policy="compact")
        while _rounds(server) == rounds or server.children():
            if time.monotonic() > deadline:
                raise LoadFailedError(f"the server did not compact {topic} within {TIMEOUT_S:g} s")
            time.sleep(POLL_S)
        return float(appenders.answer()["p99_ms"])


def _rounds(server: Server) -> int:
    with Wire(server.address) as wire:
        return int(wire.call("statistics", {})["statistics"]["cleaner"]["rounds"])
