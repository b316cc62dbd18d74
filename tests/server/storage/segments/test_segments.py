"""The map of segments by base offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.config import LogConfig
from triolog.server.storage.segments.segment import LogSegment
from triolog.server.storage.segments.segments import LogSegments


def segment(base_offset: int) -> LogSegment:
    return LogSegment.at("nowhere", base_offset, LogConfig(), created_ms=0)


def segments(*bases: int) -> LogSegments:
    return LogSegments(segment(base) for base in bases)


def bases(found: list[LogSegment]) -> list[int]:
    return [one.base_offset for one in found]


def test_a_segment_of_the_same_base_offset_replaces() -> None:
    """Kafka: LogSegmentsTest.testBasicOperations."""
    found = segments(40, 80)
    old, new = found.first, segment(40)
    assert found.add(new) is old
    assert len(found) == 2
    assert found.first is new
    assert found.add(segment(60)) is None
    assert bases(list(found)) == [40, 60, 80]
    assert 60 in found
    assert 61 not in found


def test_values_start_with_the_segment_that_holds_the_first_offset() -> None:
    found = segments(10, 20, 30)
    assert bases(found.values(0, 5)) == []
    assert bases(found.values(0, 11)) == [10]
    assert bases(found.values(15, 20)) == [10]
    assert bases(found.values(15, 21)) == [10, 20]
    assert bases(found.values(35, 2**63 - 1)) == [30]
    assert found.values(15, 15) == []
    with pytest.raises(ValueError, match="wrong way round"):
        found.values(16, 15)


@given(st.sets(st.integers(0, 50), min_size=1), st.integers(-1, 52))
def test_every_match_equals_a_scan(all_bases: set[int], offset: int) -> None:
    """Kafka: LogSegmentsTest.testClosestMatchOperations, testHigherSegments."""
    found, ordered = segments(*all_bases), sorted(all_bases)

    def base(one: LogSegment | None) -> int | None:
        return None if one is None else one.base_offset

    assert base(found.floor(offset)) == max((one for one in ordered if one <= offset), default=None)
    assert base(found.higher(offset)) == min((one for one in ordered if one > offset), default=None)
    assert bases(found.higher_segments(offset)) == [one for one in ordered if one > offset]
    assert found.active.base_offset == ordered[-1]


def test_a_removed_segment_is_gone() -> None:
    found = segments(1, 3, 5)
    middle = found.floor(3)
    assert middle is not None
    found.remove(middle)
    assert bases(list(found)) == [1, 5]
    assert found.floor(4) is found.first


def test_size_is_the_sum_of_all() -> None:
    found = segments(1, 3)
    for one, size in zip(found, (10, 20), strict=True):
        one.size = size
    assert found.size_in_bytes == 30
