"""Row 6: reading a partition of 1 KB records as batches, against a loop that sends the same file."""

from __future__ import annotations

from typing import Final

from ..loads.fetch import fetch, receive_file
from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, at_least, ratio
from ..measuring.server import serving
from ..measuring.wire import batch_of

RECORD_BYTES: Final = 1000
BATCH_RECORDS: Final = 100
BATCHES_A_FETCH: Final = 10
IN_FLIGHT: Final = 4
FILE_BATCHES: Final = 2_500
FETCHES: Final = 3_000


def fetch_throughput(bench: Bench) -> RowResult:
    """One connection; both receivers take the bytes in the same loop, in a process of their own."""
    batches = max(1, bench.scale.count(FILE_BATCHES // BATCHES_A_FETCH, least=2)) * BATCHES_A_FETCH
    fetches = bench.scale.count(FETCHES, least=8)
    max_bytes = BATCHES_A_FETCH * len(batch_of(BATCH_RECORDS, RECORD_BYTES))
    with bench.workspace() as directory, serving(directory) as server:
        bench.say("filling the log")
        run_load(
            fill,
            address=server.address,
            topic="f",
            partitions=1,
            batches=batches,
            records=BATCH_RECORDS,
            value_bytes=RECORD_BYTES,
        )

        def ours() -> float:
            answer = run_load(
                fetch,
                address=server.address,
                topic="f",
                records=batches * BATCH_RECORDS,
                step=BATCHES_A_FETCH * BATCH_RECORDS,
                max_bytes=max_bytes,
                in_flight=IN_FLIGHT,
                requests=fetches,
            )
            return float(answer["mb_per_s"])

        def bare() -> float:
            path = f"{server.data}/f-0/00000000000000000000.log"
            return float(run_load(receive_file, path=path, total_bytes=fetches * max_bytes)["mb_per_s"])

        samples = bench.interleave({"fetch": ours, "bare": bare})
    return RowResult(
        6,
        "fetch, records of 1 KB in batches, one connection",
        [
            Line(f"fetch of {max_bytes / 1e6:.2f} MB, {IN_FLIGHT} in flight", "MB/s", samples["fetch"]),
            Line("bare loop: pread, send, 1 MiB pieces", "MB/s", samples["bare"]),
            ratio("fetch / bare loop", samples["fetch"], samples["bare"], at_least(0.3, "x")),
        ],
    )
