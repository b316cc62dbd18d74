"""Row 3: resident memory of a server that does nothing, new and with many partitions."""

from __future__ import annotations

from .bench import Bench
from .child import run_load
from .measure import Line, RowResult, at_most
from .produce_load import fill
from .server import serving

PARTITIONS = 1000
BATCHES = 10
RECORDS = 100
RECORD_BYTES = 1000


def idle_memory(bench: Bench) -> RowResult:
    """1,000 partitions with a megabyte each, written at 100 records of 1 KB a batch; then the same after a restart."""
    partitions = bench.scale.count(PARTITIONS, least=4)
    target = at_most(96, "MiB")
    with bench.workspace() as directory:
        with serving(directory) as server:
            bench.say("new server")
            fresh = server.idle_memory_mib()
            bench.say(f"filling {partitions} partitions")
            filled_bytes = run_load(
                fill,
                address=server.address,
                topic="t",
                partitions=partitions,
                batches=BATCHES,
                records=RECORDS,
                value_bytes=RECORD_BYTES,
            )["bytes"]
            full = server.idle_memory_mib()
        with serving(directory) as server:
            bench.say("restarted server")
            restarted = server.idle_memory_mib()
    held = f"{partitions:,} partitions, {filled_bytes / 1e9:.2g} GB"
    return RowResult(
        3,
        "resident memory of triolog serve, idle",
        [
            Line("new", "MiB", [fresh["VmRSS"]], at_most(40, "MiB"), _parts(fresh)),
            Line(f"{held}, just written", "MiB", [full["VmRSS"]], target, _parts(full)),
            Line(f"{held}, restarted", "MiB", [restarted["VmRSS"]], target, _parts(restarted)),
        ],
    )


def _parts(memory: dict[str, float]) -> str:
    return f"{memory['RssAnon']:.0f} anonymous, {memory['RssFile']:.0f} file, peak {memory['VmHWM']:.0f}"
