from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import TopicPartition
from triolog.tools.spark.source.bounds import PartitionRange
from triolog.tools.spark.source.reader import OffsetRange, divide, estimated_bytes, raise_count

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
