"""Row 17: what exactly-once costs: idempotent producers beside plain ones, read_committed beside read_uncommitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..loads.fetch import fetch
from ..loads.produce import produce, produce_idempotent
from ..loads.records import produce_records
from ..loads.transactions import ABORTED_EVERY, fill_transactions
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, ratio
from ..measuring.server import Server, serving
from ..measuring.wire import Wire, batch_of

API_RECORDS: Final = 40_000
API_BYTES: Final = 1000
SMALL_REQUESTS: Final = 6_000
SMALL_BYTES: Final = 100
IN_FLIGHT: Final = 32

TRANSACTIONS: Final = 100
TRANSACTION_BATCHES: Final = 20
BATCH_RECORDS: Final = 100
RECORD_BYTES: Final = 1000
BATCHES_A_FETCH: Final = 10
FETCHES: Final = 1_000
FETCHES_IN_FLIGHT: Final = 4
NEVER_MS: Final = str(2**53)
"""Markers carry the time of now, other than the records."""


def exactly_once(bench: Bench) -> RowResult:
    """`os`, one connection. The log that is read has transactions of 20 batches of 100 records of 1 KB, a tenth aborted."""
    with bench.workspace() as directory, serving(directory) as server:
        with Wire(server.address) as wire:
            for topic in ("plain", "idempotent", "transactions"):
                wire.create_topic(topic, retention_ms="-1", segment_ms=NEVER_MS)
        transactions = bench.scale.count(TRANSACTIONS, least=ABORTED_EVERY)
        bench.say("filling a log with transactions")
        filled = run_load(
            fill_transactions,
            address=server.address,
            topic="transactions",
            transactions=transactions,
            batches=TRANSACTION_BATCHES,
            records=BATCH_RECORDS,
            value_bytes=RECORD_BYTES,
        )
        samples = bench.interleave(
            {**_producers(bench, server), **_readers(bench, server, filled["end_offset"] - TRANSACTION_BATCHES * BATCH_RECORDS)}
        )
    return RowResult(17, "what exactly-once costs, os, one connection", _lines(samples))


def _producers(bench: Bench, server: Server) -> dict[str, Callable[[], float]]:
    records = bench.scale.count(API_RECORDS, least=100)
    shape = {"in_flight": IN_FLIGHT, "records": 1, "value_bytes": SMALL_BYTES}
    shape["requests"] = bench.scale.count(SMALL_REQUESTS, least=IN_FLIGHT)

    def rate(load: Callable[..., Any], topic: str, **arguments: Any) -> Callable[[], float]:
        return lambda: float(run_load(load, address=server.address, topic=topic, **arguments)["rate"])

    api = {"value_bytes": API_BYTES, "records": records}
    return {
        "API plain": rate(produce_records, "plain", enable_idempotence=False, **api),
        "API idempotent": rate(produce_records, "idempotent", enable_idempotence=True, **api),
        "batches plain": rate(produce, "plain", connections=1, **shape),
        "batches idempotent": rate(produce_idempotent, "idempotent", **shape),
    }


def _readers(bench: Bench, server: Server, records: int) -> dict[str, Callable[[], float]]:
    max_bytes = BATCHES_A_FETCH * len(batch_of(BATCH_RECORDS, RECORD_BYTES))

    def rate(isolation: str) -> Callable[[], float]:
        def read() -> float:
            answer = run_load(
                fetch,
                address=server.address,
                topic="transactions",
                records=records,
                step=BATCHES_A_FETCH * BATCH_RECORDS,
                max_bytes=max_bytes,
                least_bytes=max_bytes * 8 // 10,
                in_flight=FETCHES_IN_FLIGHT,
                requests=bench.scale.count(FETCHES, least=8),
                isolation=isolation,
            )
            return float(answer["mb_per_s"])

        return read

    return {isolation: rate(isolation) for isolation in ("read_uncommitted", "read_committed")}


def _lines(samples: dict[str, list[float]]) -> list[Line]:
    lines = []
    for kind, what in (
        ("API", f"Producer API, records of {API_BYTES} B"),
        ("batches", f"prebuilt batches of one record of {SMALL_BYTES} B, {IN_FLIGHT} in flight"),
    ):
        plain, idempotent = samples[f"{kind} plain"], samples[f"{kind} idempotent"]
        lines.append(Line(f"{what}, plain", "records/s", plain))
        lines.append(Line(f"{what}, idempotent", "records/s", idempotent))
        lines.append(ratio(f"idempotent / plain, {kind}", idempotent, plain))
    uncommitted, committed = samples["read_uncommitted"], samples["read_committed"]
    lines.append(Line("fetch of 1 MB, read_uncommitted", "MB/s", uncommitted))
    lines.append(Line("fetch of 1 MB, read_committed", "MB/s", committed))
    lines.append(ratio("read_committed / read_uncommitted", committed, uncommitted))
    return lines
