"""The rows of the Spark benchmark, in its order, by the names that `--only` takes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ....protocol.errors import TriologError
from ...bench.measuring.report import Line, RowResult, at_least, at_most, ratio
from ...bench.running import Benchmark
from ...export.layout import Export
from ...export.log_pieces import LogSource
from ..jobs.export import export
from .beside_kafka import beside_kafka
from .place import FIRST_MS, SparkPlace, make_rows, open_place, to_nowhere

PARQUET_BOUND: Final = 2.5
SERVER_BOUND: Final = 1.3
WRITE_BOUND: Final = 0.5
EXPORT_BOUND: Final = 0.8
WINDOW_BYTES: Final = 1_000_000_000
WINDOW_VALUE_BYTES: Final = 1000
WINDOW_SHARE: Final = 0.01
WINDOW_BOUND: Final = 2.0
FEWER_BOUND: Final = 20.0
BATCHES: Final = 40
BATCH_ROWS: Final = 1000
COLD_BATCHES: Final = 8
BATCH_BOUND_S: Final = 0.5


def scans(place: SparkPlace) -> RowResult:
    """Read the same rows out of segments, out of the server and out of Parquet."""
    segments, topic, parquet = place.segments, place.topic, place.parquet
    cpu = place.cpu_s(
        {
            "segments": lambda: to_nowhere(place.spark.read.format("triolog_segments").load(segments)),
            "server": lambda: to_nowhere(place.read(topic)),
            "parquet": lambda: to_nowhere(place.spark.read.parquet(parquet)),
            "two columns": lambda: to_nowhere(place.read(topic, columns="offset,timestamp")),
        }
    )
    lines = [
        _rate("triolog_segments, seven columns", place.rows, cpu["segments"]),
        _rate("triolog (server), seven columns", place.rows, cpu["server"]),
        _rate("triolog (server), offset and timestamp", place.rows, cpu["two columns"]),
        _rate("Spark's Parquet scan", place.rows, cpu["parquet"]),
        ratio("CPU of segments over Parquet", cpu["segments"], cpu["parquet"], at_most(PARQUET_BOUND, "x")),
        ratio("CPU of the server's rows over segments", cpu["server"], cpu["segments"], at_most(SERVER_BOUND, "x")),
    ]
    notes = (
        f"{place.rows:,} records with a key of 8 bytes and a value of 100, to noop.",
        "CPU of the JVM and all workers; the server's own is not in it.",
    )
    return RowResult("batch scans", lines, notes)


def time_window(place: SparkPlace) -> RowResult:
    """Measure how much the server reads for one percent of a topic's time, and for all."""
    count = place.scale.count(WINDOW_BYTES // WINDOW_VALUE_BYTES)
    place.fill("window", 1, make_rows(count, WINDOW_VALUE_BYTES))
    start = FIRST_MS + count // 2
    length = round(count * WINDOW_SHARE)
    window = place.read("window", startingTimestamp=start, endingTimestamp=start + length)
    rows = window.count()
    assert rows == length, f"the window has {rows} rows instead of {length}"
    of_window, of_all = [], []
    for _ in range(place.scale.rounds):
        of_window.append(float(_bytes_read(place, lambda: to_nowhere(window))))
        of_all.append(float(_bytes_read(place, lambda: to_nowhere(place.read("window")))))
    size = count * WINDOW_VALUE_BYTES
    lines = [
        Line("read for the window", "MB", [each / 1e6 for each in of_window]),
        Line("read for everything", "MB", [each / 1e6 for each in of_all]),
        Line("of the topic's values", "%", [100 * each / size for each in of_window], at_most(WINDOW_BOUND, "%")),
        ratio("everything over the window", of_all, of_window, at_least(FEWER_BOUND, "x")),
    ]
    notes = (f"{size / 1e6:,.0f} MB of values, a window of {length:,} of {count:,} records; bytes that the server read.",)
    return RowResult("a time window of 1 %", lines, notes)


def write(place: SparkPlace) -> RowResult:
    """Write Parquet into a topic: staged, then committed."""
    place.create("written", 4)
    rows = place.spark.read.parquet(place.parquet).select("key", "value", "timestamp")

    def into(guarantee: str) -> None:
        writer = rows.write.format("triolog").mode("append").option("kafka.bootstrap.servers", place.servers)
        writer.options(topic="written", deliveryGuarantee=guarantee).save()

    cpu = place.cpu_s(
        {
            "exactly once": lambda: into("exactly-once"),
            "at least once": lambda: into("at-least-once"),
        }
    )
    lines = [
        _rate("staged and committed", place.rows, cpu["exactly once"], WRITE_BOUND),
        _rate("produced, at least once", place.rows, cpu["at least once"]),
        ratio("CPU of exactly once over at least once", cpu["exactly once"], cpu["at least once"]),
    ]
    return RowResult("batch writes", lines, (f"{place.rows:,} rows from Parquet, the scan included.",))


def micro_batch(place: SparkPlace) -> RowResult:
    """Stream small batches from topic to topic, exactly once."""
    batches = place.scale.count(BATCHES, 4) + COLD_BATCHES
    place.fill("small", 1, make_rows(batches * BATCH_ROWS, 100))
    place.create("small-out", 1)
    reader = place.spark.readStream.format("triolog").option("kafka.bootstrap.servers", place.servers)
    rows = reader.options(subscribe="small", startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH_ROWS)).load()
    writer = rows.select("key", "value").writeStream.format("triolog").option("kafka.bootstrap.servers", place.servers)
    writer = writer.options(topic="small-out", checkpointLocation=str(place.directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = [each.batchDuration / 1000 for each in query.recentProgress if each.numInputRows == BATCH_ROWS]
    assert len(seconds) == batches, f"{len(seconds)} full batches instead of {batches}"
    warm = seconds[COLD_BATCHES:]
    lines = [
        Line("batch of 1,000 rows, warm", "s", warm, at_most(BATCH_BOUND_S, "s")),
        Line("the first one with rows", "s", seconds[:1]),
    ]
    return RowResult("micro-batches, source to exactly-once sink", lines, ("Time on the clock, as Spark reports it.",))


def export_job(place: SparkPlace) -> RowResult:
    """Run the export job, and the same through a DataFrame."""
    segments = place.segments
    targets = iter(range(1_000))

    def job() -> None:
        target = place.directory / f"export-{next(targets)}"
        export(place.spark, Export(source=LogSource(directories=(segments,)), target=str(target)))
        shutil.rmtree(target)

    def frame() -> None:
        target = place.directory / f"frame-{next(targets)}"
        rows = place.spark.read.format("triolog_segments").load(segments)
        rows.write.option("compression", "zstd").parquet(str(target))
        shutil.rmtree(target)

    cpu = place.cpu_s({"export": job, "frame": frame})
    lines = [
        _rate("triolog spark export", place.rows, cpu["export"], EXPORT_BOUND),
        _rate("DataFrame.write.parquet", place.rows, cpu["frame"]),
        ratio("CPU of the DataFrame over export", cpu["frame"], cpu["export"]),
    ]
    return RowResult("export to Parquet, zstd", lines, (f"{place.rows:,} records out of segment files.",))


ROWS: Final[Mapping[str, Callable[[SparkPlace], RowResult]]] = {
    "scans": scans,
    "time-window": time_window,
    "write": write,
    "micro-batch": micro_batch,
    "export": export_job,
    "beside-kafka": beside_kafka,
}

BENCHMARK: Final = Benchmark(
    rows=ROWS,
    row_failures=(Exception,),  # Spark's errors have no common class below it, and the other rows are to be measured
    open_place=open_place,
    place_failures=(TriologError,),
)


def _rate(name: str, rows: int, cpu_s: Sequence[float], bound: float | None = None) -> Line:
    target = None if bound is None else at_least(bound, "M rows/CPU-s")
    return Line(name, "M rows/CPU-s", [rows / each / 1e6 for each in cpu_s], target)


def _bytes_read(place: SparkPlace, action: Callable[[], object]) -> int:
    before = place.server.bytes_read()
    action()
    return place.server.bytes_read() - before
