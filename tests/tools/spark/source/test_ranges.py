from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType
from triolog.protocol.records.columnar.schema import COLUMNS, arrow_schema
from triolog.protocol.types import NO_OFFSET, TopicPartition
from triolog.tools.spark.sink.write_options import OptionError
from triolog.tools.spark.source import bounds, offsets
from triolog.tools.spark.source.bounds import AtOffsets, AtTime, AtTimes, Bound, BoundError, Earliest, Latest, PartitionRange
from triolog.tools.spark.source.ranges import OffsetRange, divide, estimated_bytes, raise_count
from triolog.tools.spark.source.schema import DDL, SchemaError, columns_of, spark_schema

RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), min_size=1, max_size=8).map(
    lambda spans: [OffsetRange("t", number, low, low + count) for number, (low, count) in enumerate(spans)]
)


def _is_cover(parts: list[OffsetRange], whole: OffsetRange) -> bool:
    mine = [part for part in parts if part.partition == whole.partition]
    edges = all(first.high == second.low for first, second in pairwise(mine))
    return edges and (mine[0].low, mine[-1].high) == (whole.low, whole.high) and all(part.count > 0 for part in mine)


@given(RANGES, st.integers(1, 40))
def test_parts_are_the_ranges_without_overlap_or_hole(ranges: list[OffsetRange], parts: int) -> None:
    for range_ in ranges:
        divided = divide(range_, parts)
        assert _is_cover(divided, range_)
        assert max(part.count for part in divided) - min(part.count for part in divided) <= 1


@given(RANGES, st.integers(1, 40))
def test_raising_the_count_keeps_the_offsets_and_comes_near_the_count(ranges: list[OffsetRange], least: int) -> None:
    raised = raise_count(ranges, least)
    assert all(_is_cover(raised, range_) for range_ in ranges)
    if len(ranges) >= least:
        assert raised == ranges
    elif min(range_.count for range_ in ranges) >= least:
        assert abs(len(raised) - least) <= len(ranges)


@pytest.mark.parametrize(
    ("counts", "least", "expected"),
    [
        ([100], 4, [25, 25, 25, 25]),
        ([1, 99], 4, [1, 33, 33, 33]),
        ([10, 10, 100], 4, [10, 10, 50, 50]),
        ([1], 5, [1]),
        ([25, 15], 4, [8, 8, 9, 7, 8]),  # 2.5 and 1.5 are 3 and 2 in Spark, whose Math.round takes halves up
        ([1, 1], 3, [1, 1]),
    ],
)
def test_small_ranges_stay_whole_and_large_ones_share_the_rest(counts: list[int], least: int, expected: list[int]) -> None:
    ranges = [OffsetRange("t", number, 0, count) for number, count in enumerate(counts)]
    assert [range_.count for range_ in raise_count(ranges, least)] == expected


def test_bytes_are_estimated_by_the_share_of_offsets_of_a_partition() -> None:
    range_ = OffsetRange("t", 0, 10, 30)
    assert estimated_bytes(range_, PartitionRange(0, 100, 1000)) == 200
    assert estimated_bytes(range_, PartitionRange(5, 5, 1000)) == 0
    assert estimated_bytes(range_, None) == 0
    assert OffsetRange("t", 3, 0, 1).name == TopicPartition("t", 3)


NAME = TopicPartition("t", 0)
RANGE = PartitionRange(10, 90, 1000)


@pytest.mark.parametrize(
    ("bound", "found", "start", "end"),
    [
        (Earliest(), None, 10, 10),
        (Latest(), None, 90, 90),
        (AtOffsets({NAME: 42}, "o"), None, 42, 42),
        (AtOffsets({NAME: -2}, "o"), None, 10, 10),
        (AtOffsets({NAME: -1}, "o"), None, 90, 90),
        (AtTime(5, "o"), 33, 33, 33),
        (AtTimes({NAME: 5}, "o"), 33, 33, 33),
    ],
)
def test_a_bound_is_an_offset(bound: Bound, found: int | None, start: int, end: int) -> None:
    assert (bounds.question(bound, NAME) is not None) is (found is not None)
    assert bounds.start_offset(bound, NAME, RANGE, found, "error") == start
    assert bounds.end_offset(bound, NAME, RANGE, found) == end


def test_what_has_no_offset_is_an_error_that_names_the_option() -> None:
    with pytest.raises(BoundError, match=r"option o: no record of t-0 is at or after 5 ms; .* offset 90"):
        bounds.start_offset(AtTime(5, "o"), NAME, RANGE, NO_OFFSET, "error")
    assert bounds.start_offset(AtTime(5, "o"), NAME, RANGE, NO_OFFSET, "latest") == 90
    assert bounds.end_offset(AtTimes({NAME: 5}, "o"), NAME, RANGE, NO_OFFSET) == 90
    partitions = {TopicPartition("t", number): None for number in range(9)}
    with pytest.raises(BoundError, match="option o leaves out t-1, t-2, t-3, t-4, t-5 and 3 more"):
        bounds.check_partitions(AtOffsets({NAME: 5}, "o"), partitions)


@pytest.mark.parametrize(
    ("bound", "moves"),
    [
        (Earliest(), True),
        (Latest(), True),
        (AtTime(5, "o"), True),
        (AtOffsets({NAME: 5}, "o"), False),
        (AtOffsets({NAME: -1}, "o"), True),
    ],
)
def test_only_offsets_stay_where_they_are(bound: Bound, moves: bool) -> None:
    assert bounds.is_moving(bound) is moves


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "Z", "a-1"]), st.integers(0, 20))
MAPS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))


def test_topics_and_partitions_are_in_order_and_partitions_by_their_number() -> None:
    given_ = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(offsets.to_json(given_)) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


@given(MAPS, st.randoms())
def test_the_same_offsets_are_the_same_text(offset_map: dict[TopicPartition, int], random: object) -> None:
    shuffled = sorted(offset_map.items(), key=lambda _: random.random())  # type: ignore[attr-defined]
    assert json.dumps(offsets.to_json(dict(shuffled))) == json.dumps(offsets.to_json(offset_map))
    assert offsets.from_json(json.loads(json.dumps(offsets.to_json(offset_map)))) == offset_map


@pytest.mark.parametrize("value", [{"a": 1}, {"a": {"x": 1}}, {"a": {"0": None}}])
def test_a_checkpoint_of_another_source_is_refused_with_what_it_has(value: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="which are not of this source"):
        offsets.from_json(value)


@given(st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 1000), st.integers(0, 1000))), st.integers(1, 3000))
def test_a_limit_is_shared_out_and_every_backlog_moves(spans: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    start = {partition: low for partition, (low, _) in spans.items()}
    end = {partition: low + size for partition, (low, size) in spans.items()}
    limited = offsets.prorate(start, end, limit)
    taken = {partition: limited[partition] - start[partition] for partition in start}
    waiting = {partition: size for partition, (_, size) in spans.items()}
    assert all(min(1, waiting[partition]) <= taken[partition] <= waiting[partition] for partition in start)
    assert sum(taken.values()) <= limit + len(start)
    if sum(waiting.values()) <= limit:
        assert limited == end


def test_shares_follow_the_backlog_and_partitions_without_a_start_stay() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    limited = offsets.prorate({a: 0, b: 10, c: 5}, {a: 900, b: 110, c: 5}, 100)
    assert limited == {a: 90, b: 20, c: 5}
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    assert offsets.prorate({a: 0}, {a: 100, b: 7}, 10) == {a: 10, b: 7}


def test_sparks_schema_is_arrows_and_the_documented_one_or_some_of_its_columns() -> None:
    assert to_arrow_schema(spark_schema(COLUMNS), timezone="UTC").equals(arrow_schema(COLUMNS))
    assert {field.name: field.dataType.simpleString() for field in spark_schema(COLUMNS).fields} == DDL
    assert columns_of(spark_schema(["offset", "key"])) == ("offset", "key")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("ofset", LongType()), "the schema has a column ofset; a read gives key, value"),
        (StructField("Offset", LongType()), "names with this case"),
        (StructField("offset", StringType()), "column offset as string, and it is bigint"),
        (StructField("offset", LongType(), nullable=False), "column offset as NOT NULL"),
        (StructField("headers", ArrayType(StringType())), "column headers as array<string>"),
    ],
)
def test_a_column_that_cannot_be_given_is_named(field: StructField, message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("<", ".").replace(">", ".")):
        columns_of(StructType([field]))


def test_a_schema_without_columns_or_with_one_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="a column twice"):
        columns_of(spark_schema(["offset", "offset"]))
    # An Arrow batch without columns has no number of rows
    with pytest.raises(SchemaError, match="no columns"):
        columns_of(StructType([]))
