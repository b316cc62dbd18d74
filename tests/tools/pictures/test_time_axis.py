from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.cli.terminal.times import parse_time
from triolog.tools.pictures.log_panel import time_ticks

NEW_YORK = ZoneInfo("America/New_York")


def ms(text: str) -> int:
    return parse_time(text, NEW_YORK)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("2013-07-04T00:00:00.100", "2013-07-04T00:00:00.350", ["00:00:00.100", "00:00:00.150", "00:00:00.200"]),
        ("2013-07-04T23:59:58", "2013-07-05T00:00:02", ["23:59:58", "23:59:59", "00:00:00"]),
        ("2013-07-04T10:01", "2013-07-04T10:20", ["10:05", "10:10", "10:15"]),
        ("2013-07-04T00:00", "2013-07-05T00:00", ["07-04 00:00", "07-04 06:00", "07-04 12:00"]),
        ("2013-07-04T03:00", "2013-07-08T03:00", ["2013-07-05", "2013-07-06", "2013-07-07"]),
        ("2013-01-01T01:00", "2013-12-31", ["2013-03", "2013-05", "2013-07"]),
        ("1995-06-01", "2024-01-01", ["2000", "2005", "2010"]),
    ],
)
def test_marks_are_round_times_of_the_zone(start: str, end: str, words: list[str]) -> None:
    assert [text for _, text in time_ticks(ms(start), ms(end), 7, NEW_YORK)][:3] == words


def test_days_begin_at_midnight_on_both_sides_of_a_change_of_clocks() -> None:
    ticks = time_ticks(ms("2013-03-08T12:00"), ms("2013-03-12T12:00"), 7, NEW_YORK)
    assert [at for at, _ in ticks] == [ms(f"2013-03-{day:02d}") for day in range(9, 13)]


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.sampled_from([UTC, NEW_YORK, None]))
def test_marks_lie_inside_and_are_few(one: int, other: int, zone: ZoneInfo | None) -> None:
    low, high = sorted((one, other))
    found = [at for at, _ in time_ticks(low, high, 7, zone)]
    assert found == sorted(found)
    assert len(found) <= 7
    assert all(low <= at <= high for at in found)


@given(st.integers(0, 4 * 10**12), st.integers(0, 36).map(lambda power: int(2.1**power)))
def test_there_is_a_mark_or_two_in_every_span_with_a_calendar(low: int, span: int) -> None:
    high = min(low + span, int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 1000)
    if high - low >= 2:
        assert time_ticks(low, high, 7, UTC)
