from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from triolog.server.embedded import BlockingBroker
from triolog.tools.spark import pushdown
from triolog.tools.spark.options import ReadOptions
from triolog.tools.spark.pushdown import PushdownBatchReader, Taken
from triolog.tools.spark.ranges import OffsetRange
from triolog.tools.spark.reader import BatchReader

OPTIONS = ReadOptions.from_options({"triolog.servers": "localhost:1", "subscribe": "t"})
OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)
NUMBERS = st.integers(-2, 12)
EXACT = st.one_of(
    st.builds(EqualTo, st.sampled_from([OFFSET, PARTITION]), NUMBERS),
    st.builds(EqualNullSafe, st.sampled_from([OFFSET, PARTITION]), NUMBERS),
    st.builds(In, st.sampled_from([OFFSET, PARTITION]), st.lists(NUMBERS, max_size=4)),
    st.builds(LessThan, st.just(OFFSET), NUMBERS),
    st.builds(LessThanOrEqual, st.just(OFFSET), NUMBERS),
    st.builds(GreaterThan, st.just(OFFSET), NUMBERS),
    st.builds(GreaterThanOrEqual, st.just(OFFSET), NUMBERS),
    st.builds(EqualTo, st.just(TOPIC), st.sampled_from(["a", "b", "c"])),
    st.builds(In, st.just(TOPIC), st.lists(st.sampled_from(["a", "b", "c"]), max_size=3)),
    st.builds(IsNotNull, st.sampled_from([OFFSET, PARTITION, TOPIC, TIMESTAMP])),
)


def _holds(pushed: Any, row: dict[str, Any]) -> bool:
    value = row.get(pushed.attribute[0])
    match pushed:
        case EqualTo() | EqualNullSafe():
            return bool(value == pushed.value)
        case In():
            return value in pushed.value
        case LessThan():
            return bool(value < pushed.value)
        case LessThanOrEqual():
            return bool(value <= pushed.value)
        case GreaterThan():
            return bool(value > pushed.value)
        case GreaterThanOrEqual():
            return bool(value >= pushed.value)
    return isinstance(pushed, IsNotNull)


@given(st.lists(EXACT, max_size=5))
def test_what_exact_filters_leave_is_what_satisfies_them_all(filters: list[Filter]) -> None:
    taken = Taken()
    assert all(taken.take(pushed) for pushed in filters)
    for topic in ("a", "b"):
        for partition in range(3):
            parts = taken.parts(OffsetRange(topic, partition, 2, 9))
            left = [offset for part in parts for offset in range(part.low, part.high)]
            rows = [{"topic": topic, "partition": partition, "offset": offset, "timestamp": 0} for offset in range(2, 9)]
            assert left == [row["offset"] for row in rows if all(_holds(pushed, row) for pushed in filters)]


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(("value",), b"x"),
        IsNotNull(("value",)),
        IsNull(("offset",)),
        Not(EqualTo(OFFSET, 5)),
        StringStartsWith(TOPIC, "a"),
        EqualTo(OFFSET, 5.0),
        EqualTo(TOPIC, None),
        In(PARTITION, [1, None]),
        In(OFFSET, list(range(0, 4000, 2))),
        LessThan(PARTITION, 3),
        EqualTo(("headers", "key"), "x"),
        GreaterThan(TIMESTAMP, datetime(2020, 1, 1, tzinfo=UTC)),
        LessThan(TIMESTAMP, datetime(2020, 1, 1, tzinfo=UTC)),
    ],
)
def test_any_other_filter_is_given_back_to_spark_itself(pushed: Filter) -> None:
    reader = PushdownBatchReader(OPTIONS, ("offset",))
    [returned] = reader.pushFilters([EqualTo(PARTITION, 1), pushed])
    assert returned is pushed


def test_a_hint_is_rounded_down_to_the_millisecond_and_the_latest_counts() -> None:
    taken = Taken()
    taken.take(GreaterThan(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 1, 500_999, tzinfo=UTC)))
    assert taken.min_timestamp == 1500
    taken.take(GreaterThanOrEqual(TIMESTAMP, datetime(1970, 1, 1, 1, 0, 2, tzinfo=timezone(timedelta(hours=1)))))
    assert taken.min_timestamp == 2000
    taken.take(EqualTo(TIMESTAMP, datetime(1969, 1, 1, tzinfo=UTC)))
    assert taken.min_timestamp == 2000


def test_a_reader_takes_filters_only_where_spark_pushes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, pushdown.PLANNER, raising=False)
    assert type(pushdown.reader(OPTIONS, ("offset",))) is BatchReader
    monkeypatch.setitem(sys.modules, pushdown.PLANNER, ModuleType(pushdown.PLANNER))
    assert type(pushdown.reader(OPTIONS, ("offset",))) is PushdownBatchReader


def test_a_time_narrows_what_is_read_to_the_first_record_that_may_satisfy_it(server: BlockingBroker) -> None:
    server.create_topic("t", 3, {"retention.ms": "-1"})
    for partition in range(2):
        server.append("t", [(number * 1000 * (partition + 1), b"", b"", ()) for number in range(10)], partition=partition)
    assert server.native is not None
    address = f"127.0.0.1:{server.native.port}"
    reader = PushdownBatchReader(ReadOptions.from_options({"triolog.servers": address, "subscribe": "t"}), ("offset",))
    after = GreaterThan(TIMESTAMP, datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC))
    assert list(reader.pushFilters([after, LessThan(OFFSET, 8)])) == [after]
    assert reader.partitions() == [OffsetRange("t", 1, 5, 8)]
