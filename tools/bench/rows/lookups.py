"""Rows 7, 8 and 27: lookups by offset in a large log, by time over a socket, and a range of times."""

from __future__ import annotations

from typing import Final

from ..loads.offsets import look_up_offsets
from ..loads.produce import fill
from ..loads.times import fill_flights, filter_all, look_up_times, read_range
from ..measuring.bench import Bench
from ..measuring.child import LoadFailedError, run_load
from ..measuring.measure import Line, RowResult, at_least, at_most, ratio
from ..measuring.server import serving

SEGMENTS: Final = 10
SEGMENT_BYTES: Final = 2**30
TARGETS_PER_SEGMENT: Final = 1_000

BATCH_RECORDS: Final = 10
RECORD_BYTES: Final = 100
ONE_PARTITION_BATCHES: Final = 20_000
PARTITIONS: Final = 1_000
MANY_PARTITION_BATCHES: Final = 20
SINGLE_LOOKUPS: Final = 5_000
WIDE_LOOKUPS: Final = 20


def offset_lookup(bench: Bench) -> RowResult:
    """Ten segments of 1 GiB with an index entry for every batch; the lookups start from a snapshot, as a fetch does."""
    with bench.workspace() as directory:
        bench.say("generating the log and looking up")
        answer = run_load(
            look_up_offsets,
            directory=directory,
            segments=bench.scale.count(SEGMENTS, least=2),
            segment_bytes=bench.scale.count(SEGMENT_BYTES, least=2**20),
            targets_per_segment=bench.scale.count(TARGETS_PER_SEGMENT, least=20),
            rounds=bench.scale.rounds,
        )
    return RowResult(
        7,
        f"offset lookup in a sparse log of {answer['size_bytes'] / 2**30:.2f} GiB, warm, in-process",
        [
            Line("p50", "us", answer["p50_us"]),
            Line("p99", "us", answer["p99_us"], at_most(50, "us")),
        ],
        [f"{answer['targets']:,} offsets a round, {answer['entries']:,} index entries a segment"],
    )


def times_lookup(bench: Bench) -> RowResult:
    """Random times; one connection, one request at a time; 1,000 partitions are answered by at most 16 reader tasks."""
    partitions = bench.scale.count(PARTITIONS, least=4)
    one, many = bench.scale.count(ONE_PARTITION_BATCHES, least=50), MANY_PARTITION_BATCHES
    with bench.workspace() as directory, serving(directory) as server:
        for topic, width, batches in (("one", 1, one), ("many", partitions, many)):
            bench.say(f"filling {width} partitions")
            run_load(
                fill,
                address=server.address,
                topic=topic,
                partitions=width,
                batches=batches,
                records=BATCH_RECORDS,
                value_bytes=RECORD_BYTES,
            )
        bench.say("looking up")
        single = run_load(
            look_up_times,
            address=server.address,
            topic="one",
            partitions=1,
            records=one * BATCH_RECORDS,
            requests=bench.scale.count(SINGLE_LOOKUPS, least=20),
            rounds=bench.scale.rounds,
        )
        wide = run_load(
            look_up_times,
            address=server.address,
            topic="many",
            partitions=partitions,
            records=many * BATCH_RECORDS,
            requests=bench.scale.count(WIDE_LOOKUPS, least=3),
            rounds=bench.scale.rounds,
        )
    return RowResult(
        8,
        "offsets for times over the socket, warm, batches of 10 records",
        [
            Line("one partition, p50", "ms", single["p50_ms"], at_most(0.15, "ms")),
            Line("one partition, p99", "ms", single["p99_ms"]),
            Line(f"{partitions:,} partitions in a request, p50", "ms", wide["p50_ms"], at_most(40, "ms")),
            Line(f"{partitions:,} partitions in a request, p99", "ms", wide["p99_ms"]),
        ],
    )


FLIGHTS: Final = 336_776
DAY_MS: Final = 86_400_000
MIDSUMMER_MS: Final = 1_372_910_400_000
"""Midnight in New York, 2013-07-04."""
RANGE_REQUESTS: Final = 20


def time_range(bench: Bench) -> RowResult:
    """A day out of a year of departures, in three partitions and batches of 16 KiB: asked for as a range of times, and by
    reading all and keeping the day. Both come to the same records, unpacked."""
    count = bench.scale.count(FLIGHTS, least=500)
    day = {"start": MIDSUMMER_MS, "end": MIDSUMMER_MS + DAY_MS}
    with bench.workspace() as directory:
        with serving(directory) as server:
            bench.say("producing a year of flights")
            filled = run_load(fill_flights, address=server.address, count=count)
            answers: dict[str, dict[str, float]] = {}

            def range_s() -> float:
                answers["range"] = run_load(read_range, address=server.address, requests=RANGE_REQUESTS, **day)
                return answers["range"]["seconds"]

            def all_s() -> float:
                answers["all"] = run_load(filter_all, address=server.address, **day)
                return answers["all"]["seconds"]

            samples = bench.interleave({"range": range_s, "all": all_s})

        def first_s() -> float:
            with serving(directory) as again:
                return float(run_load(read_range, address=again.address, requests=1, **day)["seconds"])

        first = [first_s() for _ in range(bench.scale.rounds)]
    found, filtered = answers["range"], answers["all"]
    if (found["records"], found["check"]) != (filtered["records"], filtered["check"]):
        raise LoadFailedError(f"the range has {found['records']} records, {filtered['records']} are right")
    return RowResult(
        27,
        f"a day ({found['records']:,.0f} records) out of a year of {filled['records']:,} flights, records unpacked",
        [
            Line("as a range of times", "ms", [each * 1000 for each in samples["range"]]),
            Line("the first after a restart", "ms", [each * 1000 for each in first]),
            Line("reading all and filtering", "ms", [each * 1000 for each in samples["all"]]),
            ratio("reading all / range", samples["all"], samples["range"], at_least(50, "x")),
        ],
        [f"{found['requests']:.1f} requests a range"],
    )
