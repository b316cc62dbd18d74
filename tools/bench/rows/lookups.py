"""Rows 7 and 8: lookups by offset in a large log, and by time over a socket."""

from __future__ import annotations

from typing import Final

from ..loads.offsets import look_up_offsets
from ..loads.produce import fill
from ..loads.times import look_up_times
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, at_most
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
