from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.forward.pacing import opens_in_s, parse_window

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp()


@pytest.mark.parametrize(
    ("window", "now", "hours"),
    [
        ("22:00-06:00", "2026-11-25T21:00", 1),
        ("22:00-06:00", "2026-11-25T22:00", 0),
        ("22:00-06:00", "2026-11-26T05:59", 0),
        ("22:00-06:00", "2026-11-26T06:00", 16),
        ("sat,sun", "2026-11-27T23:00", 1),  # a Friday
        ("sat,sun", "2026-11-29T23:00", 0),
        ("sat,sun", "2026-11-30T00:00", 5 * 24),
        ("mon-fri 22:00-06:00", "2026-11-28T05:00", 0),  # Saturday, in Friday's
        ("mon-fri 22:00-06:00", "2026-11-28T22:00", 48),
        ("sat-mon 10:00-11:00", "2026-11-30T09:00", 1),
        ("00:00-24:00", "2026-11-25T12:00", 0),
    ],
)
def test_a_link_waits_for_its_window(window: str, now: str, hours: float) -> None:
    assert opens_in_s([parse_window(window)], at(now), UTC) == hours * 3600


def test_the_first_of_several_windows_counts_and_without_any_it_may_always_send() -> None:
    windows = [parse_window("06:00-07:00"), parse_window("03:00-04:00")]
    assert opens_in_s(windows, at("2026-11-25T01:00"), UTC) == 2 * 3600
    assert opens_in_s([], at("2026-11-25T12:00"), UTC) == 0
    before = at("2026-03-28T23:00", BERLIN)  # the night has one hour less
    assert opens_in_s(windows[:1], before, BERLIN) == 6 * 3600


@given(minutes=st.integers(0, 14 * 24 * 60))
def test_a_window_that_is_waited_for_is_open_then(minutes: int) -> None:
    windows = [parse_window("tue,thu 23:00-02:30"), parse_window("sun 04:00-05:00")]
    now_s = at("2026-03-16T00:00", BERLIN) + minutes * 60  # two weeks with a change of the clocks
    wait_s = opens_in_s(windows, now_s, BERLIN)
    assert opens_in_s(windows, now_s + wait_s, BERLIN) == 0
    assert wait_s == 0 or opens_in_s(windows, now_s + wait_s - 1, BERLIN) == 1


def test_what_is_no_window_is_refused() -> None:
    for text in ("", "25:00-26:00", "22:00", "22:00-22:00", "monday 01:00-02:00", "mon tue", "01:60-02:00", "24:00-24:00"):
        with pytest.raises(ValueError, match=r"no window|no span|no day"):
            parse_window(text)
