"""Which segments are written together."""

from __future__ import annotations

from triolog.protocol.limits import INT32_MAX
from triolog.server.storage.cleaner.grouping import group_segments
from triolog.server.storage.cleaner.job import SourceSegment

LARGE = 2**31


def segment(base_offset: int, size: int = 10, index: int = 8) -> SourceSegment:
    return SourceSegment(base_offset, size, index, index, 0)


def groups(segments: list[SourceSegment], end_offset: int, *, most: int = LARGE, most_index: int = LARGE) -> list[list[int]]:
    found = group_segments(segments, end_offset, max_bytes=most, max_index_bytes=most_index)
    return [[each.base_offset for each in group] for group in found]


TEN = [segment(base_offset) for base_offset in range(10)]


def test_limits_below_two_segments_leave_each_alone() -> None:
    """Kafka: LogCleanerTest.testSegmentGrouping."""
    alone = [[base_offset] for base_offset in range(10)]
    assert groups(TEN, 10, most=1) == alone
    assert groups(TEN, 10, most_index=1) == alone


def test_groups_are_as_large_as_the_limits_let_them() -> None:
    """Kafka: LogCleanerTest.testSegmentGrouping."""
    assert groups(TEN, 10) == [[*range(10)]]
    threes = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert groups(TEN, 10, most=3 * 10 + 1) == threes
    assert groups(TEN, 10, most_index=3 * 8 + 1) == threes


def test_offsets_of_a_group_fit_in_32_bits() -> None:
    """Kafka: LogCleanerTest.testSegmentGroupingWithSparseOffsets, testSegmentGroupingFollowingLoadOfZeroIndex."""
    assert groups([segment(0), segment(1)], INT32_MAX + 1) == [[0, 1]]
    assert groups([segment(0), segment(1)], INT32_MAX + 2) == [[0], [1]]
    assert groups([segment(0), segment(1), segment(INT32_MAX)], INT32_MAX + 2) == [[0, 1], [INT32_MAX]]


def test_the_spread_is_measured_from_the_first_segment_of_the_group() -> None:
    half = INT32_MAX // 2
    assert groups([segment(0), segment(half), segment(2 * half)], 3 * half) == [[0, half], [2 * half]]


def test_an_empty_segment_goes_with_any_group() -> None:
    """Kafka: Cleaner.groupSegmentsBySize: otherwise an empty log would be left every 2^31 offsets."""
    assert groups([segment(0), segment(INT32_MAX + 5, size=0)], INT32_MAX + 9) == [[0, INT32_MAX + 5]]


def test_no_segments_make_no_groups() -> None:
    assert groups([], 0) == []
