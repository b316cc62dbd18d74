from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from triolog.protocol.types import TopicPartition

from tests.tools.segments.test_segment_golden import GOLDEN, as_text, expected_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
        [[header["key"], as_text(header["value"])] for header in row["headers"]],
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
