from __future__ import annotations

import datetime
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import fastavro
import msgpack
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.feather as pf
import pyarrow.parquet as pq
import pytest
import triolog
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.embedded import BlockingBroker
from triolog.tools import arrow
from triolog.tools.arrow.writing.encoders import json_rows
from triolog.tools.client.sending.partitioner import partition_for_key

from tests.support.golden import GOLDEN
from tests.tools.arrow.test_reading import partitions_in, rows_of

FLIGHTS: Final = pa.table(
    {
        "carrier": ["UA", "B6", None, 'q"\\\n'],
        "delay": pa.array([1, None, -3, 4], pa.int64()),
        "share": [0.5, float("nan"), 1e300, None],
        "at": pa.array([0, 1_500, None, 3_000], pa.timestamp("ms", "UTC")),
    }
)


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(topics={"t": 1, "wide": 4}, config={"retention.ms": "-1"}, native="127.0.0.1:0") as broker:
        yield broker


def values_of(broker: BlockingBroker, topic: str = "t") -> list[bytes | None]:
    return [row["value"] for row in rows_of(arrow.read(broker, topic))]


def test_rows_become_json_objects_with_key_and_time(broker: BlockingBroker) -> None:
    written = arrow.write(broker, "t", FLIGHTS, key="carrier", timestamp="at")
    assert written.records == 4
    assert written.partitions == {0: arrow.WrittenPartition(records=4, first_offset=0, last_offset=3)}
    rows = rows_of(arrow.read(broker, "t"))
    assert [row["key"] for row in rows] == [b"UA", b"B6", None, b'q"\\\n']
    assert [row["timestamp"] for row in rows][:2] == [0, 1_500]
    assert rows[2]["timestamp"] > 1_700_000_000_000
    assert [json.loads(row["value"]) for row in rows] == [
        {"carrier": "UA", "delay": 1, "share": 0.5, "at": "1970-01-01T00:00:00.000Z"},
        {"carrier": "B6", "delay": None, "share": None, "at": "1970-01-01T00:00:01.500Z"},
        {"carrier": None, "delay": -3, "share": 1e300, "at": None},
        {"carrier": 'q"\\\n', "delay": 4, "share": None, "at": "1970-01-01T00:00:03.000Z"},
    ]


cells = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(st.characters(codec="utf-8"), max_size=6),
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "real": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.integers(0, 9), max_size=2),
        "inner": st.none() | st.fixed_dictionaries({"x": st.none() | st.text(st.characters(codec="utf-8"), max_size=3)}),
    }
)


@given(st.lists(cells, min_size=1, max_size=6))
def test_json_made_of_columns_says_what_the_cells_say(rows: list[dict[str, Any]]) -> None:
    types = [
        ("text", pa.string()),
        ("number", pa.int64()),
        ("real", pa.float64()),
        ("flag", pa.bool_()),
        ("list", pa.list_(pa.int64())),
        ("inner", pa.struct([("x", pa.string())])),
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(types))
    assert [json.loads(value) for value in json_rows(batch).to_pylist()] == rows


def test_msgpack_and_avro_are_written_row_by_row(broker: BlockingBroker) -> None:
    table = FLIGHTS.select(["carrier", "delay"])
    arrow.write(broker, "t", table, format="msgpack")
    assert [msgpack.unpackb(value or b"") for value in values_of(broker)] == table.to_pylist()
    schema = {
        "type": "record",
        "name": "F",
        "fields": [{"name": "carrier", "type": ["null", "string"]}, {"name": "delay", "type": ["null", "long"]}],
    }
    arrow.write(broker, "wide", table, format="avro", schema=json.dumps(schema), partition=2)
    parsed = fastavro.parse_schema(schema)
    read = [fastavro.schemaless_reader(io.BytesIO(value or b""), parsed, None) for value in values_of(broker, "wide")]
    assert read == table.to_pylist()


def test_kafkas_topics_are_copied_record_for_record(broker: BlockingBroker) -> None:
    """Keys, values, headers and times that nobody foresaw: what is read raw is written raw."""
    topics = sorted({name.topic for name in partitions_in(GOLDEN / "clean") if not name.topic.startswith("__")})
    for topic in topics:
        broker.create_topic(topic)
        source = arrow.read(GOLDEN / "clean", topic)
        written = arrow.write(broker, topic, source, format="raw", compression="zstd")
        expected = rows_of(arrow.read(GOLDEN / "clean", topic, columns=["key", "value", "headers"]))
        assert written.records == len(expected)
        assert rows_of(arrow.read(broker, topic, columns=["key", "value", "headers"])) == expected


def test_keys_go_to_kafkas_partitions_and_their_order_stays(broker: BlockingBroker) -> None:
    rng = random.Random(1)
    keys = [rng.choice(["a", "bb", "ccc", "dddd", None]) for _ in range(40_000)]
    written = arrow.write(broker, "wide", pa.table({"k": keys, "n": range(len(keys))}), key="k")
    assert written.records == len(keys) == sum(each.records for each in written.partitions.values())
    seen: dict[str, int] = {}
    table = arrow.read(broker, "wide", values="json", flatten=True, columns=["partition", "key", "n"]).read_all()
    assert table.num_rows == len(keys)
    for partition, key, number in zip(*(table[name].to_pylist() for name in ("partition", "key", "n")), strict=True):
        if key is not None:
            assert partition == partition_for_key(key, 4)
            assert seen.get(key.decode(), -1) < number
            seen[key.decode()] = number
    assert sorted(table["n"].to_pylist()) == list(range(len(keys)))


def test_a_column_may_name_the_partition(broker: BlockingBroker) -> None:
    arrow.write(broker, "wide", pa.table({"p": [3, 0, 3], "v": ["a", "b", "c"]}), value="v", partition="p")
    found = [(row["partition"], row["value"]) for row in rows_of(arrow.read(broker, "wide"))]
    assert found == [(0, b"b"), (3, b"a"), (3, b"c")]


def test_files_and_frames_are_tables(broker: BlockingBroker, tmp_path: Path) -> None:
    import pandas as pd  # both need time to load
    import polars as pl

    table = pa.table({"carrier": ["UA", "B6"], "delay": [1, 2]})
    pq.write_table(table, tmp_path / "f.parquet")
    pf.write_feather(table, tmp_path / "f.arrow", compression="uncompressed")
    pc.write_csv(table, tmp_path / "f.csv")
    with pa.OSFile(str(tmp_path / "f.arrows"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    files = [tmp_path / name for name in ("f.parquet", "f.arrow", "f.csv", "f.arrows")]
    relation = duckdb.sql("select 'UA' as carrier, 1::bigint as delay union all select 'B6', 2 order by delay")
    frames = [table, table.to_batches()[0], table.to_reader(), pl.DataFrame(table.to_pydict()), pd.DataFrame(table.to_pydict())]
    for source in (*files, str(files[0]), *frames, relation):
        assert arrow.write(broker, "t", source).records == 2
    expected = [b'{"carrier":"UA","delay":1}', b'{"carrier":"B6","delay":2}']
    assert values_of(broker) == expected * (len(files) + 1 + len(frames) + 1)


def test_a_server_that_starts_again_has_every_record_once(broker: BlockingBroker) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(30):
            if number in (5, 6, 20):
                broker.restart()
            yield pa.RecordBatch.from_pydict({"n": [number * 100 + row for row in range(100)]})

    schema = pa.schema([("n", pa.int64())])
    written = arrow.write(broker, "t", pa.RecordBatchReader.from_batches(schema, batches()))
    assert written.records == 3_000
    numbers = arrow.read(broker, "t", values="json", flatten=True, columns=["n"]).read_all()["n"].to_pylist()
    assert numbers == list(range(3_000))


def test_a_topic_with_small_batches_is_written_in_such_and_says_how_much_was_before_a_refusal(broker: BlockingBroker) -> None:
    broker.create_topic("small", 1, {"max.message.bytes": "2000"})
    assert arrow.write(broker, "small", pa.table({"v": ["x" * 100] * 200}), value="v").records == 200
    table = pa.table({"v": ["x", "y" * 5_000]})
    with pytest.raises(arrow.ArrowError, match=r"small-0: .*\(1 records acknowledged before, offsets to 200\)"):
        arrow.write(broker, "small", table, value="v")


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"topic": "other"}, "has no topic other. `triolog topics create` creates it"),
        ({"key": "no"}, "the table has no column no, only carrier, delay, share, at"),
        ({"timestamp": "carrier"}, "the table: rows 0 to 3: column timestamp has type string, expected timestamp"),
        ({"value": "delay"}, "the table: rows 0 to 3: column value has type int64, expected binary or string"),
        ({"partition": 1}, "partition is 1, the topic has 0 to 0"),
        ({"partition": "delay"}, "the table: row 0: partition 1, the topic has 0 to 0"),
        ({"format": "xml"}, "format is 'xml', expected json, msgpack, avro, raw"),
        ({"format": "avro"}, "format='avro' needs a schema"),
        ({"schema": "{}"}, "format='json' takes no schema"),
        ({"format": "raw"}, "the table has no column value for format='raw'"),
        ({"compression": "rar"}, "compression is 'rar', expected none, gzip, snappy, lz4, zstd"),
        ({"table": 7}, "int is not a table"),
        ({"table": "no.parquet"}, r"no\.parquet: .*No such file"),
        ({"table": "no.txt"}, r"no\.txt: its name does not end in \.parquet"),
        ({"table": pa.table({"b": [b"\xff"]})}, "the table: rows 0 to 0: 'utf-8' codec can't decode"),
        ({"target": "nowhere"}, "nowhere is neither a directory nor HOST:PORT"),
    ],
)
def test_what_cannot_be_written_is_one_line(broker: BlockingBroker, asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(arrow.ArrowError, match=complaint) as caught:
        arrow.write(**{"target": broker, "topic": "t", "table": FLIGHTS, **asked})
    assert "\n" not in str(caught.value)
    assert values_of(broker) == []


def test_times_of_any_kind_are_timestamps(broker: BlockingBroker) -> None:
    day = datetime.date(2013, 1, 2)
    arrow.write(broker, "t", pa.table({"d": [day], "n": [5]}), timestamp="d")
    arrow.write(broker, "t", pa.table({"d": [day], "n": [5]}), timestamp="n")
    assert [row["timestamp"] for row in rows_of(arrow.read(broker, "t"))] == [1_357_084_800_000, 5]
