from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from triolog.protocol.types import TopicPartition
from triolog.tools.client.sending import partitioner
from triolog.tools.client.sending.key_hashes import LEAST_GROUP, murmur2_of_keys
from triolog.tools.client.sending.partitioner import partition_for_key
from triolog.tools.spark.sink.write_rows import Routing, RowError, check_schema, sticky_partition

COUNTS = {"a": 3, "b": 1, "c": 7}


def routing(topic: str | None = None) -> Routing:
    return Routing(topic=topic, application="q", version=4, spark_partition=2, partition_count=COUNTS.__getitem__)


STRING, BINARY, INT, LONG, TIMESTAMP = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()
HEADERS = ArrayType(StructType().add("key", STRING).add("value", BINARY))


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made = made.add(name, kind)
    return made


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        (schema(value=STRING), "t"),
        (schema(value=BINARY, key=BINARY), "t"),
        (schema(value=STRING, topic=STRING), None),
        (schema(headers=HEADERS, partition=INT, timestamp=TIMESTAMP, topic=STRING, key=STRING, value=BINARY), None),
    ],
)
def test_columns_that_make_a_record_are_taken(columns: StructType, topic: str | None) -> None:
    check_schema(columns, topic)


@pytest.mark.parametrize(
    ("columns", "topic", "complaint"),
    [
        (schema(key=STRING), "t", "column value is missing"),
        (schema(value=STRING), None, "Set the option topic, or add a column topic"),
        (schema(value=INT), "t", "column value is int, expected string or binary"),
        (schema(value=STRING, key=LONG), "t", "column key is bigint"),
        (schema(value=STRING, topic=BINARY), None, "column topic is binary"),
        (schema(value=STRING, partition=LONG), "t", "column partition is bigint, expected int"),
        (schema(value=STRING, timestamp=LONG), "t", "column timestamp is bigint"),
        (schema(value=STRING, timestamp=TimestampNTZType()), "t", "column timestamp is timestamp_ntz"),
        (schema(value=STRING, headers=MapType(STRING, BINARY)), "t", "column headers is map<string,binary>"),
        (schema(value=STRING, offset=LONG), "t", "unknown column offset"),
        (schema(value=STRING).add("value", STRING), "t", "column value is there twice"),
    ],
)
def test_other_columns_and_types_are_refused_by_name(columns: StructType, topic: str | None, complaint: str) -> None:
    with pytest.raises(RowError) as refused:
        check_schema(columns, topic)
    assert complaint in str(refused.value)


row = st.tuples(
    st.sampled_from(sorted(COUNTS)),
    st.none() | st.binary(max_size=6),
    st.none() | st.just(0),
    st.none() | st.binary(max_size=9),
)


@given(st.lists(st.lists(row, max_size=30), min_size=1, max_size=3))
def test_every_row_comes_out_once_in_order_in_the_partition_that_the_client_chooses(
    batches: list[list[tuple[str, bytes | None, int | None, bytes | None]]],
) -> None:
    expected: dict[TopicPartition, list[Any]] = {}
    for topic, key, partition, value in (row for batch in batches for row in batch):
        if partition is None:
            count = COUNTS[topic]
            partition = sticky_partition(topic, "q", 4, 2, count) if key is None else partition_for_key(key, count)
        expected.setdefault(TopicPartition(topic, partition), []).append({"value": value, "key": key})
    found: dict[TopicPartition, list[Any]] = {}
    for group in routing().group([arrow(batch) for batch in batches]):
        found.setdefault(group.partition, []).extend(group.rows.to_pylist())
    assert found == expected


def arrow(rows: list[tuple[str, bytes | None, int | None, bytes | None]]) -> pa.RecordBatch:
    names = ("topic", "key", "partition", "value")
    types = (pa.string(), pa.binary(), pa.int32(), pa.binary())
    columns = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, list(names))


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def test_option_topic_beats_the_column_and_a_null_is_refused_by_row() -> None:
    rows = batch(value=pa.array(["x"]), topic=pa.array(["a"]))
    assert [group.partition.topic for group in routing("b").group([rows])] == ["b"]
    rows = batch(value=pa.array(["x", "y"]), topic=pa.array(["a", None]))
    with pytest.raises(RowError, match=r"column topic is null in a row \(number 1 of 2\)"):
        list(routing().group([rows]))
    assert list(routing("a").group([batch(value=pa.array([], pa.string()))])) == []


def test_text_becomes_bytes_and_headers_and_times_pass() -> None:
    headers = pa.array(
        [[{"key": "h", "value": None}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    time = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = batch(
        value=pa.array(["é", None]), key=pa.array(["k", "k"]), headers=headers,
        timestamp=pa.array([time, None], pa.timestamp("us", tz="America/New_York")),
    )  # fmt: skip
    [group] = routing("a").group([rows])
    assert group.rows.to_pylist() == [
        {"value": "é".encode(), "key": b"k", "timestamp": time, "headers": [{"key": "h", "value": None}]},
        {"value": None, "key": b"k", "timestamp": None, "headers": None},
    ]


@pytest.mark.parametrize("partition", [-1, 3])
def test_partition_that_the_topic_lacks_is_refused(partition: int) -> None:
    rows = batch(value=pa.array(["x"]), partition=pa.array([partition], pa.int32()))
    with pytest.raises(RowError, match=f"column partition is {partition} in a row for topic a, which has partitions 0 to 2"):
        list(routing("a").group([rows]))


def keys_array(keys: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(keys, pa.binary())


@given(st.lists(st.none() | st.binary(max_size=40), max_size=200), st.integers(0, 5))
def test_hash_of_every_key_equals_the_clients(keys: list[bytes | None], skipped: int) -> None:
    array = keys_array(keys)[skipped:]
    hashes = murmur2_of_keys(array).tolist()
    assert [(key, hashed) for key, hashed in zip(keys[skipped:], hashes, strict=True) if key is not None] == [
        (key, partitioner.murmur2(key)) for key in keys[skipped:] if key is not None
    ]


def test_groups_large_enough_for_numpy_hash_as_the_client_does() -> None:
    source = random.Random(5)
    for length in range(20):
        keys: list[bytes | None] = [source.randbytes(length) for _ in range(LEAST_GROUP + 3)]
        assert murmur2_of_keys(keys_array(keys)).tolist() == [partitioner.murmur2(key) for key in keys if key is not None]


def test_rows_without_a_key_are_spread_and_stay_where_they_are_when_a_task_is_tried_again() -> None:
    assert sticky_partition("t", "query", 7, 3, 12) == sticky_partition("t", "query", 7, 3, 12)
    found = {sticky_partition("t", "query", version, task, 6) for version in range(8) for task in range(8)}
    assert found == set(range(6))
