"""Row 9: what readers who look up by time do to the latency of appenders."""

from __future__ import annotations

from typing import Any, Final

from ..loads.open_loop import append_on_schedule, look_up_on_schedule, lookup_capacity
from ..loads.produce import fill, produce
from ..measuring.bench import Bench
from ..measuring.child import LoadProcess, run_load
from ..measuring.measure import Line, RowResult, at_most, ratio
from ..measuring.server import Server, serving

SHARE: Final = 0.2
"""Of the capacity measured first, for readers and for appenders: neither queues because of itself."""
BATCHES: Final = 5_000
BATCH_RECORDS: Final = 10
RECORD_BYTES: Final = 100
CONNECTIONS: Final = 8
CAPACITY_REQUESTS: Final = 20_000
SECONDS: Final = 4.0


def appends_beside_lookups(bench: Bench) -> RowResult:
    """Same partition, `fsync`. Appenders and readers are open loops in processes of their own, alone and together in turn."""
    batches = bench.scale.count(BATCHES, least=20)
    requests = bench.scale.count(CAPACITY_REQUESTS, least=64)
    records = batches * BATCH_RECORDS
    with bench.workspace() as directory, serving(directory, durability="fsync") as server:
        bench.say("filling the log")
        run_load(
            fill,
            address=server.address,
            topic="t",
            partitions=1,
            batches=batches,
            records=BATCH_RECORDS,
            value_bytes=RECORD_BYTES,
        )
        lookups = bench.repeat("capacity of lookups", lambda: _lookup_capacity(server, records, requests))
        appends = bench.repeat("capacity of appends", lambda: _append_capacity(server, requests))
        capacity = {"lookups": Line("lookups", "", lookups).median, "appends": Line("appends", "", appends).median}
        beside: list[dict[str, float]] = []

        def alone() -> float:
            return _append(bench, server, capacity["appends"] * SHARE)

        def together() -> float:
            arguments = {"topic": "t", "connections": CONNECTIONS, "rate": capacity["lookups"] * SHARE, "records": records}
            with LoadProcess(look_up_on_schedule, {"address": server.address, **arguments}) as readers:
                readers.wait_until_started()
                p99 = _append(bench, server, capacity["appends"] * SHARE)
                beside.append(readers.answer())
            return p99

        samples = bench.interleave({"alone": alone, "with readers": together})
    return RowResult(
        9,
        "appenders' p99 while readers look up by time",
        [
            Line("capacity: lookups by time", "lookups/s", lookups),
            Line(f"capacity: appends, fsync, {CONNECTIONS} connections", "records/s", appends),
            Line("appenders' p99 alone", "ms", samples["alone"]),
            Line("appenders' p99 with readers", "ms", samples["with readers"]),
            ratio("with readers / alone", samples["with readers"], samples["alone"], at_most(1.5, "x")),
            Line("readers' p99 meanwhile", "ms", [each["p99_ms"] for each in beside[1:]]),
        ],
        [
            f"readers and appenders ask at {SHARE:.0%} of their capacity: {capacity['lookups'] * SHARE:,.0f} lookups/s, "
            f"{capacity['appends'] * SHARE:,.0f} records/s"
        ],
    )


def _append(bench: Bench, server: Server, rate: float) -> float:
    answer: dict[str, Any] = run_load(
        append_on_schedule,
        address=server.address,
        topic="t",
        connections=CONNECTIONS,
        rate=rate,
        seconds=bench.scale.seconds(SECONDS),
        value_bytes=RECORD_BYTES,
    )
    return float(answer["p99_ms"])


def _lookup_capacity(server: Server, records: int, requests: int) -> float:
    answer = run_load(
        lookup_capacity,
        address=server.address,
        topic="t",
        connections=CONNECTIONS,
        in_flight=4,
        records=records,
        requests=requests,
    )
    return float(answer["rate"])


def _append_capacity(server: Server, requests: int) -> float:
    answer = run_load(
        produce,
        address=server.address,
        topic="t",
        connections=CONNECTIONS,
        in_flight=1,
        records=1,
        value_bytes=RECORD_BYTES,
        requests=requests // 2,
    )
    return float(answer["rate"])
