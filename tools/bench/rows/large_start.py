"""Row 11: starting a server whose log has many segments, after an orderly stop."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

from ....protocol.types import LATEST_TIMESTAMP
from ..loads.stopped import put_sparse_log
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, run_load
from ..measuring.measure import Line, RowResult, at_most
from ..measuring.server import serving
from ..measuring.wire import Wire

SEGMENTS: Final = 1_000
SEGMENT_BYTES: Final = 100_000_000
MOST_READ_SHARE: Final = 1e-4
"""Of the log: 10 MB of 100 GB. One scanned segment would be ten times that."""
TOPIC: Final = "large"


def large_start(bench: Bench) -> RowResult:
    """From before the process is spawned to the answer of what the log's end is; the files are in the page cache."""
    segments = bench.scale.count(SEGMENTS, least=4)
    read: dict[str, list[float]] = {"large": [], "empty": []}
    with bench.workspace() as large, bench.workspace() as empty:
        bench.say(f"generating {segments} segments")
        for directory in (large, empty):
            with serving(directory) as server, Wire(server.address) as wire:
                wire.create_topic(TOPIC, retention_ms="-1")
        made = run_load(put_sparse_log, data=f"{large}/data", topic=TOPIC, segments=segments, segment_bytes=SEGMENT_BYTES)

        def start(name: str, directory: str, end_offset: int) -> float:
            started = time.perf_counter()
            with serving(directory) as server, Wire(server.address) as wire:
                asked = [{"topic": TOPIC, "partition": 0, "timestamp": LATEST_TIMESTAMP}]
                answer = wire.call("offsets_for_times", {"partitions": asked})
                taken = (time.perf_counter() - started) * 1000
                read[name].append(server.bytes_read() / 1e6)
            if answer["partitions"][0]["offset"] != end_offset:
                raise LoadFailedError(f"the log ends at {end_offset}, the server says {answer['partitions'][0]}")
            return taken

        samples = bench.interleave(
            {
                "large": lambda: start("large", large, made["end_offset"]),
                "empty": lambda: start("empty", empty, 0),
                "interpreter": _interpreter_start,
            }
        )
    beyond = [mine - other for mine, other in zip(samples["large"], samples["interpreter"], strict=True)]
    scanned = [mine - other for mine, other in zip(read["large"][1:], read["empty"][1:], strict=True)]
    size_mb = made["size_bytes"] / 1e6
    held = f"{segments:,} segments, {size_mb / 1000:,.3g} GB"
    return RowResult(
        11,
        "triolog serve after a clean stop: process start to the log's end offset",
        [
            Line(held, "ms", samples["large"]),
            Line("an empty log", "ms", samples["empty"]),
            Line("python -c pass", "ms", samples["interpreter"]),
            Line(f"{held}, beyond python -c pass", "ms", beyond, at_most(400, "ms")),
            Line("read by system calls, beyond an empty log", "MB", scanned, at_most(size_mb * MOST_READ_SHARE, "MB")),
        ],
        ["the files are sparse: sizes and indexes are whole, of the batches there are the first and the last of each segment"],
    )


def _interpreter_start() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - started) * 1000
