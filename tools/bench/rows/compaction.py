"""Rows 13 and 14: how fast the cleaner's process compacts, and what appenders notice of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from ....protocol.limits import MIB
from ..loads.beside import ROUNDS, Appenders, beside_lines, sync_all
from ..loads.compaction import fill_keyed, run_cleaner, write_keyed_log
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, at_least, at_most
from ..measuring.server import Server, serving
from ..measuring.wire import Wire

LARGE: Final = (1024, 1_000_000_000)
SMALL: Final = (100, 50_000_000)
MAP_MIB: Final = 16
"""630,000 keys: all that the log has. The default is 128 MiB, of which a log takes what its records could need."""
PROCESS_MIB: Final = 32
"""An interpreter with the storage's modules, what was read at once, indexes that are written."""
SAMPLES: Final = 2

BESIDE_BYTES: Final = 200_000_000
BESIDE_VALUE_BYTES: Final = 1024
SEGMENT_BYTES: Final = 64 * MIB
SETTINGS: Final = {"cleaner_backoff_ms": 50, "cleaner_dedupe_buffer_bytes": MAP_MIB * MIB}
CORES: Final = 3


def compaction(bench: Bench) -> RowResult:
    """Uncompressed, half as many keys as records. All of the log is dirty: read twice, 43% of it is written and synced."""
    lines: list[Line] = []
    for value_bytes, full_bytes in (LARGE, SMALL):
        total_bytes = bench.scale.count(full_bytes, least=100_000)
        with bench.workspace() as directory:
            bench.say(f"writing records of {value_bytes} B")
            written = run_load(
                write_keyed_log,
                directory=directory,
                total_bytes=total_bytes,
                value_bytes=value_bytes,
                map_bytes=MAP_MIB * MIB,
            )
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
    return RowResult(13, "compaction, process start to its end", lines)


def appends_beside_compaction(bench: Bench) -> RowResult:
    """`fsync`; appenders at a fixed rate to a topic of their own, one topic after the other is compacted beside them."""
    bench = bench.with_rounds(ROUNDS)
    with bench.workspace() as directory, serving(directory, durability="fsync", settings=SETTINGS) as server:
        appenders = Appenders(bench, server)
        appenders.create_topic()
        topics = _fill_topics(bench, server)
        samples = bench.interleave(
            {
                "alone": appenders.alone,
                "beside": lambda: _beside(appenders, server, next(topics)),
            }
        )
    cores = len(os.sched_getaffinity(0))
    has_core = cores >= CORES
    target = at_most(2, "x") if has_core else None
    note = "" if has_core else f"<= 2 x with a core free; here server, appenders and cleaner have {cores} cores"
    size = bench.scale.count(BESIDE_BYTES, least=1_000_000)
    return RowResult(
        14,
        f"appenders' p99 during a compaction of {size / 1e6:,.0f} MB of {BESIDE_VALUE_BYTES} B records",
        beside_lines("compaction", samples["beside"], samples["alone"], target, note),
    )


def _fill_topics(bench: Bench, server: Server) -> Iterator[str]:
    names = [f"keyed-{number}" for number in range(bench.scale.rounds + 1)]
    size = bench.scale.count(BESIDE_BYTES, least=1_000_000)
    for name in names:
        bench.say(f"filling {name}")
        with Wire(server.address) as wire:
            segment_bytes = min(SEGMENT_BYTES, size // 3)
            wire.create_topic(name, retention_ms="-1", segment_bytes=str(segment_bytes), min_cleanable_dirty_ratio="0")
        run_load(fill_keyed, address=server.address, topic=name, total_bytes=size, value_bytes=BESIDE_VALUE_BYTES)
    sync_all()
    return iter(names)


def _beside(appenders: Appenders, server: Server, topic: str) -> float:
    """The cleaner is done with the topic when it says so: a small one's process may have ended before anybody looks for it."""
    rounds = _rounds(server)

    def begin() -> None:
        with Wire(server.address) as wire:
            wire.alter_topic(topic, cleanup_policy="compact")

    return appenders.beside(begin, lambda: _rounds(server) > rounds and not server.children())


def _rounds(server: Server) -> int:
    with Wire(server.address) as wire:
        return int(wire.call("statistics", {})["statistics"]["cleaner"]["rounds"])
