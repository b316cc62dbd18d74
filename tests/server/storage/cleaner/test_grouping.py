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


def test_offsets_of_a_group_fit_in_32_bits() -> None:
    """Measured from its first segment. An empty one goes with any: otherwise an empty log would be left every 2^31 offsets.
    Kafka: LogCleanerTest.testSegmentGroupingWithSparseOffsets, testSegmentGroupingFollowingLoadOfZeroIndex."""
    assert groups([segment(0), segment(1)], INT32_MAX + 1) == [[0, 1]]
    assert groups([segment(0), segment(1)], INT32_MAX + 2) == [[0], [1]]
    assert groups([segment(0), segment(1), segment(INT32_MAX)], INT32_MAX + 2) == [[0, 1], [INT32_MAX]]
    half = INT32_MAX // 2
    assert groups([segment(0), segment(half), segment(2 * half)], 3 * half) == [[0, half], [2 * half]]
    assert groups([segment(0), segment(INT32_MAX + 5, size=0)], INT32_MAX + 9) == [[0, INT32_MAX + 5]]


def test_groups_are_as_large_as_the_limits_let_them_be() -> None:
    """Kafka: LogCleanerTest.testSegmentGrouping."""
    alone, threes = [[base_offset] for base_offset in range(10)], [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert groups(TEN, 10) == [[*range(10)]]
    assert groups(TEN, 10, most=1) == groups(TEN, 10, most_index=1) == alone
    assert groups(TEN, 10, most=3 * 10 + 1) == groups(TEN, 10, most_index=3 * 8 + 1) == threes
    assert groups([], 0) == []
