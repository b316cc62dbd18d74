"""Ranges of undated records against a table of every offset."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.limits import INT64_MAX
from triolog.server.storage.segments.undated import MAX_RANGES, UndatedRange, closed, dated_ms, opened

episodes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9)), max_size=2 * MAX_RANGES)
"""Records while the clock is trusted, records while it is not, and the time that this takes."""


@given(episodes)
def test_each_record_is_dated_when_the_clock_was_trusted_again_or_later(history: list[tuple[int, int, int]]) -> None:
    undated, end, now_ms, dates = (), 0, 0, []
    for trusted, untrusted, elapsed_ms in history:
        end += trusted
        dates += [-1] * trusted
        undated = opened(opened(undated, end), end + 1)
        assert untrusted == 0 or dated_ms(undated, end, end + untrusted) == INT64_MAX
        end, now_ms = end + untrusted, now_ms + elapsed_ms
        dates += [now_ms] * untrusted
        undated = closed(undated, end, now_ms, 0)
    assert len(undated) <= MAX_RANGES
    assert all(before.end_offset <= after.first_offset for before, after in pairwise(undated))
    found = [dated_ms(undated, offset, offset + 1) for offset in range(end)]
    if sum(untrusted > 0 for _, untrusted, _ in history) <= MAX_RANGES:
        assert found == dates
    assert all(date <= known for date, known in zip(dates, found, strict=True)), "no record is older than it is"


def test_ranges_of_deleted_records_are_forgotten() -> None:
    undated = (UndatedRange(0, 5, 1), UndatedRange(7, 9, 2), UndatedRange(12))
    assert closed(undated, 15, 3, 5) == (UndatedRange(7, 9, 2), UndatedRange(12, 15, 3))
    assert closed(undated, 12, 3, 20) == ()
