"""Bounds of timestamps by stretches of offsets: never above what is there, whatever is forgotten, cut or looked up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.limits import INT64_MAX
from triolog.server.storage.segments.segment_view import MOST_STRETCHES, NOT_KNOWN, NOTHING, LeastTimestamps, Stretch


def added(*stretches: tuple[int, int], since: int = NOTHING) -> LeastTimestamps:
    least = LeastTimestamps()
    least.nothing_yet()
    least.add(stretches)
    least.since = since
    return least


def test_a_segment_that_was_there_before_may_hold_anything() -> None:
    assert LeastTimestamps().next_below(7, 100) == Stretch(0, INT64_MAX, NOT_KNOWN)
    empty = LeastTimestamps()
    empty.nothing_yet()
    assert empty.next_below(0, 100) is None


def test_the_next_stretch_that_can_hold_a_smaller_timestamp_comes_with_those_behind_it() -> None:
    least = added((10, 50), (20, 40), (30, 45), (40, 60), (50, 5))
    assert least.next_below(0, 50) == Stretch(10, 30, 40)
    assert least.next_below(25, 50) == Stretch(20, 30, 45)
    assert least.next_below(30, 50) == Stretch(40, 50, 5)
    assert least.next_below(50, 50) is None
    assert least.next_below(0, 5) is None
    assert least.least == 5


def test_what_lies_behind_the_last_index_entry_counts() -> None:
    assert added((10, 50), since=3).next_below(0, 4) == Stretch(10, INT64_MAX, 3)
    assert added((10, 2), since=3).next_below(0, 4) == Stretch(0, INT64_MAX, 2)


def test_what_was_looked_up_takes_the_place_of_what_was_not_known() -> None:
    least = LeastTimestamps()
    least.learn(10, [(20, 7), (30, 9)])
    assert least.next_below(0, 100) == Stretch(0, 10, NOT_KNOWN)
    assert least.next_below(10, 8) == Stretch(10, 20, 7)
    assert least.next_below(20, 8) == Stretch(30, INT64_MAX, NOT_KNOWN)
    least.learn(0, [(10, 3)])
    assert least.next_below(0, 8) == Stretch(0, 20, 3)


def test_what_was_looked_up_is_not_forgotten_where_neighbours_become_one() -> None:
    least = LeastTimestamps()
    for start in range(0, 4 * MOST_STRETCHES * 10, 20):
        least.learn(start, [(start + 10, start)])
    assert len(least) > MOST_STRETCHES  # what is known and what is not does not become one
    assert least.next_below(0, 1) == Stretch(0, 10, 0)


def test_there_are_few_stretches_whatever_is_known_of_them() -> None:
    least = LeastTimestamps()
    for end in range(1, 20 * MOST_STRETCHES):
        least.add([(end, NOT_KNOWN if end % 2 else end)])
        assert len(least) < 5 * MOST_STRETCHES
    assert least.next_below(0, 1) == Stretch(0, least.next_below(0, 1).end, NOT_KNOWN)  # type: ignore[union-attr]


def test_the_bounds_of_segments_that_became_one_are_those_of_their_offsets() -> None:
    least = LeastTimestamps()
    least.take_over([(0, LeastTimestamps()), (100, added((150, 8), since=9)), (200, added((250, 3), since=4))])
    assert least.next_below(0, 5) == Stretch(0, 100, NOT_KNOWN)
    assert least.next_below(100, 5) == Stretch(200, INT64_MAX, 3)
    assert least.next_below(160, 10) == Stretch(150, INT64_MAX, 9)


TIMES = st.lists(st.integers(0, 1000), min_size=1, max_size=3000)


@given(TIMES, st.integers(0, 3000), st.integers(0, 1000))
def test_bounds_are_never_too_large_and_few(timestamps: list[int], cut: int, wanted: int) -> None:
    least = LeastTimestamps()
    least.nothing_yet()
    for offset, timestamp in enumerate(timestamps):
        least.add([(offset + 1, timestamp)])
    assert len(least) <= MOST_STRETCHES + 1
    found, offset = set[int](), 0
    while (stretch := least.next_below(offset, wanted)) is not None:
        offset = max(offset, stretch.start)
        found |= set(range(offset, min(stretch.end, len(timestamps))))
        offset = stretch.end
    below = {offset for offset, timestamp in enumerate(timestamps) if timestamp < wanted}
    assert below <= found
    before = least.before(cut)
    for offset, timestamp in enumerate(timestamps[:cut]):
        stretch = before.next_below(offset, timestamp + 1)
        assert stretch is not None
        assert stretch.start <= offset < stretch.end
    assert least.least == min(timestamps)
