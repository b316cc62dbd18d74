"""Resident memory of a server that does nothing, new and with many partitions."""

from __future__ import annotations

from typing import Final

from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, at_most
from ..measuring.server import serving

PARTITIONS: Final = 1000
SHAPE: Final = {"batches": 10, "records": 100, "value_bytes": 1000}


def idle_memory(bench: Bench) -> RowResult:
    """1,000 partitions with a megabyte each, written at 100 records of 1 KB a batch; then the same after a restart."""
    partitions = bench.scale.count(PARTITIONS, least=4)
    target = at_most(96, "MiB")
    with bench.workspace() as directory:
        with serving(directory) as server:
            bench.say("new server")
            fresh = server.idle_memory_mib()
            bench.say(f"filling {partitions} partitions")
            filled = run_load(fill, address=server.address, topic="t", partitions=partitions, **SHAPE)
            full = server.idle_memory_mib()
        with serving(directory) as server:
            bench.say("restarted server")
            restarted = server.idle_memory_mib()
    held = f"{partitions:,} partitions, {filled['bytes'] / 1e9:.2g} GB"
    return RowResult(
        "resident memory of triolog serve, idle",
        [
            Line("new", "MiB", [fresh["VmRSS"]], at_most(40, "MiB"), _parts(fresh)),
            Line(f"{held}, just written", "MiB", [full["VmRSS"]], target, _parts(full)),
            Line(f"{held}, restarted", "MiB", [restarted["VmRSS"]], target, _parts(restarted)),
        ],
    )


def _parts(memory: dict[str, float]) -> str:
    return f"{memory['RssAnon']:.0f} anonymous, {memory['RssFile']:.0f} file, peak {memory['VmHWM']:.0f}"
