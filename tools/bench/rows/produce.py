"""Small appends that are synced before their answer: what a group commit makes of the syncs that the device can do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ..loads.produce import produce
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.machine import sync_rate
from ..measuring.measure import Line, RowResult, at_least, ratio
from ..measuring.server import Server, serving
from ..measuring.wire import Wire

SHAPES: Final = {(50, 1): (20_000, 8.0), (8, 64): (60_000, 30.0)}
"""By connections and requests in flight on each: how many to send, and the thousand records a second to reach."""
BARE_SYNCS: Final = 3_000
NOTE: Final = "the targets hold where one fdatasync takes 0.12 ms: see the bare loop"


def synced_appends(bench: Bench) -> RowResult:
    """Single records of 100 B to one partition, `fsync`, against a bare loop."""
    with bench.workspace() as directory, serving(directory, durability="fsync") as server:
        with Wire(server.address) as wire:
            wire.create_topic("small", retention_ms="-1")
        syncs = bench.scale.count(BARE_SYNCS, least=20)
        measures: dict[str, Callable[[], float]] = {
            "bare": lambda: float(run_load(sync_rate, directory=directory, count=syncs)["rate"]),
            **{_name(*shape): partial(_rate, bench, server, *shape) for shape in SHAPES},
        }
        samples = bench.interleave(measures)
    lines = [Line("bare loop: append 200 B, fdatasync", "syncs/s", samples["bare"])]
    for shape, (_, target) in SHAPES.items():
        ours = samples[_name(*shape)]
        lines.append(Line(_name(*shape), "records/s", ours, at_least(target * 1000, "records/s")))
        lines.append(ratio(f"{_name(*shape)} / bare fdatasync", ours, samples["bare"]))
    return RowResult("produce, records of 100 B one by one, fsync", lines, [NOTE])


def _rate(bench: Bench, server: Server, connections: int, in_flight: int) -> float:
    full, _ = SHAPES[connections, in_flight]
    shape = {"connections": connections, "in_flight": in_flight, "records": 1, "value_bytes": 100}
    requests = bench.scale.count(full, least=connections * in_flight)
    return float(run_load(produce, address=server.address, topic="small", requests=requests, **shape)["rate"])


def _name(connections: int, in_flight: int) -> str:
    return f"{connections} connections, {in_flight} in flight"
