from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import triolog
from hypothesis import given, settings
from hypothesis import strategies as st
from triolog.protocol.errors import TriologError
from triolog.server.embedded import BlockingBroker
from triolog.tools import arrow
from triolog.tools.arrow.report import ArrowError
from triolog.tools.arrow.values.json_values import infer_json, is_deeper
from triolog.tools.arrow.values.object_values import infer_msgpack
from triolog.tools.cli.sql.formats import _unique
from triolog.tools.sql.options import SqlError, SqlOptions
from triolog.tools.sql.session import ask
from triolog.tools.sql.topic import Scan, _names

from tests.support.counts import counts

START_MS: Final = 1_372_910_400_000
HOUR_MS: Final = 3_600_000
COUNT: Final = 300
CARRIERS: Final = ("UA", "B6", "DL", None)
OPTIONS: Final = SqlOptions(time_zone="UTC")


def row(number: int) -> dict[str, Any]:
    return {
        "n": number,
        "carrier": CARRIERS[number % 4],
        "delay": None if number % 7 == 0 else (number * 37) % 90 - 20,
        "air": {"time": number * 1.5, "legs": [number, number + 1]},
        "Offset": -number,
    }


def timestamp(number: int) -> int:
    """Out of order, and some that are none."""
    return -1 if number % 50 == 49 else START_MS + (number * 7919 % COUNT) * HOUR_MS


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(config={"retention.ms": "-1"}, native="127.0.0.1:0") as broker:
        broker.create_topic("flights", partitions=3, config={"retention.ms": "-1", "segment.bytes": "16384"})
        rows = [row(number) for number in range(COUNT)]
        table = pa.table(
            {
                "key": pa.array([None if number % 3 else b"k%d" % number for number in range(COUNT)], pa.binary()),
                "value": pa.array([json.dumps(each).encode() for each in rows], pa.binary()),
                "timestamp": pa.array([timestamp(number) for number in range(COUNT)], pa.timestamp("ms", "UTC")),
                "partition": pa.array([number % 3 for number in range(COUNT)], pa.int32()),
            }
        )
        arrow.write(broker, "flights", table, format="raw", partition="partition")
        broker.create_topic("empty")
        broker.create_topic("Texts")
        broker.append("Texts", [b"one", b"two"])
        yield broker


@pytest.fixture(scope="module")
def parquet(broker: BlockingBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows, by an SQL of all columns that DuckDB writes."""
    path = tmp_path_factory.mktemp("rows") / "flights.parquet"
    with ask(broker, "select * from flights", OPTIONS) as answer:
        batches = list(answer.batches())
        pq.write_table(pa.Table.from_batches(batches, answer.schema), path)
    return path


def rows_of(source: Any, sql: str, options: SqlOptions = OPTIONS) -> tuple[list[tuple[Any, ...]], list[Scan]]:
    with ask(source, sql, options) as answer:
        rows = [tuple(each.values()) for batch in answer.batches() for each in batch.to_pylist()]
    return rows, answer.scans


def of_parquet(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(f"create view flights as select * from read_parquet('{path}')")
        return [tuple(each.values()) for each in connection.sql(sql).to_arrow_table().to_pylist()]


def test_the_columns_are_those_of_records_and_of_values(broker: BlockingBroker) -> None:
    rows, _ = rows_of(broker, "select * from flights where n in (4, 49) order by n")
    first = {"partition": 1, "offset": 1, "n": 4, "carrier": "UA", "delay": row(4)["delay"], "air": row(4)["air"], "key": None}
    with ask(broker, "select * from flights where n = 4", OPTIONS) as answer:
        [found] = [each for batch in answer.batches() for each in batch.to_pylist()]
    assert first.items() <= found.items()
    assert (found["value.Offset"], found["value"]) == (-4, json.dumps(row(4)).encode())
    assert found["timestamp"] == datetime.datetime.fromtimestamp(timestamp(4) / 1000, datetime.UTC)
    assert rows[1][2] is None  # the record has no timestamp


QUESTIONS: Final = (
    "select count(*) from flights",
    "select carrier, avg(delay), count(*), min(timestamp) from flights group by 1 order by 1",
    "select carrier, delay from flights where delay > 10 and carrier is not null order by n",
    'select n, air."time" from flights where air."time" between 30 and 60 and key is not null order by n',
    "select a.n, b.n from flights a join flights b on a.n = b.n + 1 where a.partition = 1 order by 1",
    "select n from flights where key = 'k9' or carrier like 'U%' order by n desc limit 5",
    'select partition, max("offset") from flights where "offset" >= 20 and partition <> 0 group by all order by all',
    "with late as (select * from flights where delay > 0) select count(*), sum(n) from late where timestamp is null",
)


@pytest.mark.parametrize("sql", QUESTIONS)
def test_an_answer_is_what_duckdb_says_of_the_rows_as_parquet(broker: BlockingBroker, parquet: Path, sql: str) -> None:
    expected = of_parquet(parquet, sql)
    assert expected
    assert rows_of(broker, sql)[0] == expected


def test_only_columns_that_are_used_are_read(broker: BlockingBroker) -> None:
    _, [scan] = rows_of(broker, "select max(delay) from flights where carrier = 'UA' and partition = 2")
    assert scan.columns == ("delay",)
    assert scan.ranges.partitions == (2,)
    assert (scan.report.rows, scan.rows) == (100, 25)
    _, [scan] = rows_of(broker, "select count(*) from flights")
    assert scan.columns == ("partition",)


def test_conditions_become_ranges_and_one_that_cannot_hold_reads_nothing(broker: BlockingBroker) -> None:
    sql = """select n from flights where "offset" > 20 and "offset" <= 40 and partition in (0, 2)
        and timestamp >= '2013-07-05' and timestamp < '2013-07-06 12:00'"""
    rows, [scan] = rows_of(broker, sql)
    ranges = scan.ranges
    assert (ranges.partitions, ranges.low, ranges.high) == ((0, 2), 21, 41)
    assert ranges.start_timestamp == START_MS + 20 * HOUR_MS
    assert ranges.end_timestamp == START_MS + 56 * HOUR_MS
    expected = {
        number
        for number in range(COUNT)
        if number % 3 != 1 and 20 < number // 3 <= 40 and ranges.start_timestamp <= timestamp(number) < ranges.end_timestamp
    }
    assert expected
    assert {number for (number,) in rows} == expected
    assert scan.report.rows == len(expected)
    rows, [scan] = rows_of(broker, 'select n from flights where "offset" > 900000 and "offset" < 900002')
    assert (rows, scan.spans[:0], scan.report.rows) == ([], (), 0)


NUMBERS: Final = st.integers(-2, COUNT // 3 + 2)
TIMES: Final = st.integers(-2, COUNT + 2).map(
    lambda hours: f"timestamptz '{datetime.datetime.fromtimestamp((START_MS + hours * HOUR_MS) / 1000, datetime.UTC)}'"
)
COMPARED: Final = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
CONDITION: Final = st.one_of(
    st.builds('"offset" {} {}'.format, COMPARED, NUMBERS),
    st.builds("partition {} {}".format, COMPARED, st.integers(-1, 3)),
    st.builds("timestamp {} {}".format, COMPARED, TIMES),
    st.builds("timestamp {} {} + interval 400 microseconds".format, COMPARED, TIMES),
    st.builds('"offset" in ({}, {}, {})'.format, NUMBERS, NUMBERS, NUMBERS),
    st.builds("partition not in ({}, {})".format, st.integers(-1, 3), st.integers(-1, 3)),
    st.builds("timestamp between {} and {}".format, TIMES, TIMES),
    st.sampled_from(["timestamp is null", "timestamp is not null", "delay > 0", '"offset" % 2 = 0', "carrier = 'UA'"]),
)
CONDITIONS: Final = st.recursive(
    CONDITION,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        inner.map("(not {})".format),
    ),
    max_leaves=5,
)


@pytest.mark.merge
@settings(max_examples=counts(40, commit=15), deadline=None)
@given(condition=CONDITIONS)
def test_ranges_leave_out_no_row(broker: BlockingBroker, parquet: Path, condition: str) -> None:
    sql = f"select n from flights where {condition} order by n"
    assert rows_of(broker, sql)[0] == of_parquet(parquet, sql)


def test_files_join_topics(broker: BlockingBroker, tmp_path: Path) -> None:
    path = tmp_path / "airlines.csv"
    path.write_text("code,name\nUA,United\nB6,JetBlue\n")
    sql = f"select name, count(*) from flights join '{path}' on code = carrier group by 1 order by 1"
    assert rows_of(broker, sql)[0] == [("JetBlue", 75), ("United", 75)]


def test_values_that_are_no_objects_are_bytes(broker: BlockingBroker) -> None:
    assert rows_of(broker, "select decode(value) from texts order by 1")[0] == [("one",), ("two",)]
    assert rows_of(broker, "select * from empty")[0] == []


def test_a_schema_that_is_given_is_taken(broker: BlockingBroker) -> None:
    options = SqlOptions(schemas={"flights": "n DOUBLE, absent VARCHAR"}, values={None: "raw"})
    options = SqlOptions(schemas=options.schemas)
    assert rows_of(broker, "select n, absent from flights where n = 4", options)[0] == [(4.0, None)]
    with pytest.raises(SqlError, match="invalid schema 'n NOTHING'"):
        rows_of(broker, "select n from flights", SqlOptions(schemas={None: "n NOTHING"}))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("selec 1", 'Parser Error: syntax error at or near "selec"'),
        ("select 1; select 2", "2 statements, expected one"),
        ("select * from fligths", "there is no topic fligths. Did you mean flights?"),
        ("select * from zzz", "there is no topic zzz. Topics: Texts, empty, flights"),
        ("select 1 from flights where offset > 3", '"offset" in double quotes'),
        ("select nothing from empty", "topic empty is empty. Give a schema"),
        ("select cast(carrier as int) from flights where partition = 0", "Could not convert string 'UA' to INT32"),
    ],
)
def test_what_cannot_be_answered_is_one_line(broker: BlockingBroker, sql: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        rows_of(broker, sql)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_that_does_not_parse_is_named_with_its_offset() -> None:
    with triolog.blocking.open(native="127.0.0.1:0") as broker:
        broker.create_topic("t", partitions=2)
        broker.append("t", [b'{"a": 1}', b"noise"], partition=1)
        options = SqlOptions(schemas={"t": "a BIGINT"})
        with pytest.raises(TriologError, match=r"^t-1 offset 1: this is not a JSON object"):
            rows_of(broker, "select sum(a) from t", options)
        assert rows_of(broker, "select count(*) from t", options)[0] == [(2,)]
        nulls = SqlOptions(schemas={"t": "a BIGINT"}, errors="null")
        assert rows_of(broker, "select sum(a) from t", nulls)[0] == [(1,)]


@pytest.fixture
def strange() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(native="127.0.0.1:0") as running:
        yield running


def rows(strange: BlockingBroker, sql: str, options: SqlOptions | None = None) -> list[dict[str, Any]]:
    with ask(strange, sql, options or SqlOptions(values={None: "json"}, errors="null")) as answer:
        return [row for batch in answer.batches() for row in batch.to_pylist()]


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * depth + b"]" * depth + b"}"


@pytest.mark.parametrize("depth", [500, 3_000, 20_000, 100_000])
def test_a_value_of_any_depth_does_not_end_the_process(strange: BlockingBroker, depth: int) -> None:
    strange.create_topic("t")
    objects = b'{"a":' * depth + b"1" + b"}" * depth
    strange.append("t", [b'{"a":1}', nested(depth), objects])
    assert [row["a"] for row in rows(strange, "select a from t")] == [1, None, None]
    strange.create_topic("deep")
    strange.append("deep", [nested(depth), objects])
    with pytest.raises(ArrowError, match="nest deeper than 128 levels"):
        rows(strange, "select a from deep")


def test_depth_does_not_count_what_is_in_strings() -> None:
    for value in (b'{"a":"' + b"[" * 500 + b'"}', b'{"a":"\\\\\\"' + b"{" * 500 + b'"}', b"[" + b"[]," * 500 + b"[]]"):
        assert not is_deeper(value, 128)
    assert is_deeper(b'["]",' * 200 + b"1" + b"]" * 200, 128)
    assert [is_deeper(nested(depth), 128) for depth in (127, 128)] == [False, True]


def test_types_are_inferred_up_to_a_depth() -> None:
    assert infer_json(pa.array([nested(100), nested(1_000)])).names == ["a"]
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="is a map"):
        infer_msgpack(pa.array([msgpack.packb(deep)]))
    assert infer_msgpack(pa.array([msgpack.packb(deep), msgpack.packb({"b": 1})])).names == ["b"]


def test_what_spills_goes_to_a_private_folder(strange: BlockingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "triolog-sql").symlink_to(tmp_path / "elsewhere")
    strange.create_topic("t")
    strange.append("t", [b'{"a":1}'])
    for _ in range(2):
        with ask(strange, "select * from t") as answer, ask(strange, "select 1"):
            folders = [path for path in tmp_path.iterdir() if not path.is_symlink()]
            assert [path.stat().st_mode & 0o777 for path in folders] == [0o700, 0o700]
            assert list(answer.batches())
        assert [path.name for path in tmp_path.iterdir()] == ["triolog-sql"]
    with pytest.raises(SqlError):
        rows(strange, "select nope from t")
    assert [path.name for path in tmp_path.iterdir()] == ["triolog-sql"]


def test_thousands_of_names_that_differ_in_case_only_take_no_minutes() -> None:
    names = [
        "".join(letter.upper() if number >> place & 1 else letter for place, letter in enumerate("abcdefghijklm"))
        for number in range(8_192)
    ]
    begin = time.process_time()
    made = _names(names)
    assert len(_unique(names + names)) == 2 * len(names)
    assert time.process_time() - begin < 5
    assert list(made.values()) == names
    assert len({name.lower() for name in made}) == len(names)


def test_files_and_topics_of_one_name_are_told_apart(strange: BlockingBroker, tmp_path: Path) -> None:
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        strange.create_topic("planes.csv")
        strange.append("planes.csv", [b'{"a":"topic"}'])
        with pytest.raises(SqlError, match="No files found"):
            rows(strange, "select * from 'planes.csv'")
        Path("planes.csv").write_text("a\nfile\n")
        assert rows(strange, "select a from 'planes.csv'") == [{"a": "file"}]
        assert rows(strange, 'select a from "planes.csv"') == [{"a": "topic"}]
        assert rows(strange, "select f.a from \"planes.csv\" t, './planes.csv' f where t.a = 'topic'") == [{"a": "file"}]
        with pytest.raises(SqlError, match="a file in single quotes and a topic in double ones"):
            rows(strange, "select * from 'planes.csv', \"planes.csv\"")
    finally:
        os.chdir(before)
