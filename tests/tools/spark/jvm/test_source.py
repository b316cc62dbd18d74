"""What Spark reads: the sources, their streams, the session, and the Java that runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.embedded import BlockingBroker
from triolog.tools.demo.flights import find_source
from triolog.tools.spark.demo import transformations
from triolog.tools.spark.session import session

from tests.support import class_archive
from tests.tools.segments.test_segment_golden import GOLDEN, as_text, expected_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000
FILTERS = {
    "partition = 1 AND offset >= 90": 10,
    "topic = 'other'": 0,
    "offset IN (3, 4, 99) AND partition IN (0, 2)": 6,
    "timestamp >= timestamp'1970-01-05 00:00:00' AND value IS NOT NULL": 12,
    "timestamp < timestamp'1970-01-01 02:00:00'": 6,
    "offset < 5 OR offset > 97": 21,
}
"""How many of the events they leave."""


@pytest.fixture
def events(server: BlockingBroker) -> BlockingBroker:
    """A server with 100 records in each of three partitions of `events`, one in an hour."""
    server.create_topic("events", 3, {"retention.ms": "-1"})
    for partition in range(3):
        headers = (("trace", b"abc"), ("empty", None))
        records = [(number * HOUR_MS, b"k%d" % number, b"v%d" % number, headers) for number in range(100)]
        records[7] = (7 * HOUR_MS, None, None, ())
        server.append("events", records, partition=partition)
    return server


def _read(spark: SparkSession, server: BlockingBroker, topic: str = "events", **options: Any) -> DataFrame:
    reader = spark.read.format("triolog").option("kafka.bootstrap.servers", f"127.0.0.1:{server.native.port}")
    return reader.option("subscribe", topic).options(**options).load()


def test_the_source_is_found_unregistered_and_gives_kafkas_columns(spark: SparkSession, events: BlockingBroker) -> None:
    rows = _read(spark, events, includeHeaders=True)
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    found = {(row.partition, row.offset): row for row in rows.collect()}
    assert len(found) == 300
    row = found[1, 8]
    assert (row.key, row.value, row.topic, row.timestamp.timestamp(), row.timestampType) == (
        b"k8",
        b"v8",
        "events",
        8 * HOUR_MS // 1000,
        0,
    )
    assert [(header.key, header.value) for header in row.headers] == [("trace", b"abc"), ("empty", None)]
    assert (found[1, 7].key, found[1, 7].value, found[1, 7].headers) == (None, None, None)


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_a_filter_leaves_other_queries_on_a_data_frame_alone(spark: SparkSession, events: BlockingBroker, pushed: str) -> None:
    """Spark has one plan of a Python source for a DataFrame: a filter that the source took over would narrow them all."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        rows = _read(spark, events)
        for where, count in FILTERS.items():
            assert (where, rows.where(where).count(), rows.count()) == (where, count, 300)
        assert rows.union(rows.where("partition = 1")).count() == 400
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_all_actions_on_a_data_frame_see_one_end_and_another_load_a_later(spark: SparkSession, server: BlockingBroker) -> None:
    server.create_topic("grows")
    server.append("grows", [b"x"] * 5)
    rows = _read(spark, server, "grows")
    assert rows.count() == 5
    server.append("grows", [b"x"] * 2)
    assert (rows.count(), rows.where("offset >= 4").count()) == (5, 1)
    assert _read(spark, server, "grows").count() == 7


def test_a_bad_option_reaches_the_user_by_name(spark: SparkSession, events: BlockingBroker) -> None:
    with pytest.raises(Exception, match=r"unknown option startingoffset\. Did you mean startingOffsets"):
        _read(spark, events, startingOffset="earliest")


def _stream(spark: SparkSession, server: BlockingBroker, folder: Path, name: str, **options: Any) -> list[dict[str, Any]]:
    """Run what is there through a query and answer its batches' progress; the rows are in table `name`."""
    reader = spark.readStream.format("triolog").option("kafka.bootstrap.servers", f"127.0.0.1:{server.native.port}")
    writer = reader.options(**options).load().select("partition", "offset").writeStream.format("parquet")
    writer = writer.option("path", str(folder / name)).option("checkpointLocation", str(folder / f"{name}.checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert query.exception() is None
    assert not query.isActive
    return [progress for progress in query.recentProgress if progress["numInputRows"] or progress["sources"]]  # type: ignore[index]


def _rows(spark: SparkSession, folder: Path, name: str) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in spark.read.parquet(str(folder / name)).collect())


def test_a_stream_takes_limited_batches_and_resumes(spark: SparkSession, server: BlockingBroker, tmp_path: Path) -> None:
    server.create_topic("grows", 2)
    for partition in range(2):
        server.append("grows", [b"x"] * 100, partition=partition)
    options = {"subscribe": "grows", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 80}
    progress = _stream(spark, server, tmp_path, "all", **options)
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [80, 80, 40]
    server.append("grows", [b"y"] * 5, partition=1)
    progress = _stream(spark, server, tmp_path, "all", **options)
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [5]
    assert _rows(spark, tmp_path, "all") == [(0, n) for n in range(100)] + [(1, n) for n in range(105)]


PARTS: Final = [TopicPartition("parts", partition) for partition in range(3)]
TXN: Final = TopicPartition("txn", 0)


def described(row: Any) -> list[Any]:
    """In the form of expected.json."""
    return [
        row["offset"],
        ["CreateTime", "LogAppendTime"][row["timestampType"]],
        row["ms"],
        as_text(bytes(row["key"])) if row["key"] is not None else None,
        as_text(bytes(row["value"])) if row["value"] is not None else None,
        [[header["key"], as_text(header["value"])] for header in row["headers"] or ()],
    ]


def test_a_kafka_directory_is_read_as_kafka_read_it(spark: SparkSession) -> None:
    options = {"subscribe": "parts,txn", "includeHeaders": "true", "mode": "FAILFAST"}
    frame = spark.read.format("triolog_segments").options(**options).load(str(GOLDEN / "clean"))
    rows = frame.selectExpr("*", "unix_millis(timestamp) as ms").orderBy("topic", "partition", "offset").collect()
    for partition in (*PARTS, TXN):
        found = [described(row) for row in rows if (row["topic"], row["partition"]) == partition]
        assert found == expected_records(partition, committed=True)


def test_a_view_in_sql_reads_what_its_filters_leave(spark: SparkSession) -> None:
    options = f"path '{GOLDEN / 'clean'}', subscribe 'parts', minPartitions '4'"
    spark.sql(f"create temporary view parts using triolog_segments options ({options})")
    try:
        found = spark.sql("select topic, partition, offset from parts where partition = 1 and offset between 5 and 7").collect()
        assert [tuple(row) for row in found] == [("parts", 1, offset) for offset in (5, 6, 7)]
        assert spark.sql("select count(*) from parts where timestamp >= '2000-01-01'").head()[0] == 480  # type: ignore[index]
    finally:
        spark.catalog.dropTempView("parts")


def test_a_second_session_is_the_first_one_and_workers_run_this_interpreter(spark: SparkSession) -> None:
    assert session("another").sparkContext is spark.sparkContext
    assert spark.sparkContext.pythonExec == sys.executable
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "as other tests of this process need it"


RECORDS = """
select cast(text as binary) as value, cast(null as timestamp) as timestamp,
    cast(null as array<struct<key: string, value: binary>>) as headers
from values ('{}'), ('not json'), (cast(null as string)) as texts(text)
"""


def test_python_processes_of_spark_load_pyspark_compiled(spark: SparkSession) -> None:
    def loader(_: int) -> tuple[str, bool]:
        import pyspark

        return type(pyspark.__loader__).__name__, "pyspark.zip" in str(pyspark.__file__)

    found = spark.sparkContext.parallelize([0], 1).map(loader).collect()
    assert found == [("SourceFileLoader", True)]


def test_a_record_that_is_no_flight_keeps_its_place(spark: SparkSession) -> None:
    tables = find_source().parent
    weather, planes = transformations.weather_of(spark, tables), transformations.planes_of(spark, tables)
    records = spark.sql(RECORDS)
    assert transformations.enriched(records, weather, planes).count() == 3


PROGRAM = """
import os, sys
from triolog.tools.spark.session import session

spark = session(config={"spark.ui.enabled": "false", "spark.driver.memory": "1g"})
rows = spark.read.format("triolog").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "events").load()
print("JAVA_HOME", os.environ["JAVA_HOME"])
print("rows", rows.where("offset >= 3").count())
spark.stop()
"""


def test_without_a_java_on_path_the_bundled_one_reads_a_topic(server: BlockingBroker, tmp_path: Path) -> None:
    server.create_topic("events")
    server.append("events", [b"x"] * 10)
    path = tmp_path / "bin"
    path.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if program.name != "java" and not os.path.lexists(path / program.name):
                (path / program.name).symlink_to(program)
    environ = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYTHONPATH")}
    environ |= {"PATH": str(path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "SPARK_SUBMIT_OPTS": class_archive.FAST}
    command = [sys.executable, "-c", PROGRAM, f"127.0.0.1:{server.native.port}"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"JAVA_HOME {tmp_path / 'cache' / 'triolog'}" in done.stdout
    assert "rows 7" in done.stdout
