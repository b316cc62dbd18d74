"""Counters at moments as rates, and how much of them is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.server.logs.wear import Look, Looks, Rates, days_to_endurance


def look(at_s: float, written: int | None = 0, appended: int = 0, room: int | None = None) -> Look:
    return Look(at_s=at_s, written_bytes=written, appended_bytes=appended, room_bytes=room)


BETWEEN = {
    "what happened": (
        look(10, 1000, 100, 5000),
        look(310, 4000, 600, 3000),
        Rates(written_per_s=10.0, written_per_appended=6.0, full_in_s=450.0),
    ),
    "the system says nothing": (look(0, None, 0, None), look(10, None, 50, None), Rates()),
    "the system said nothing before": (look(0, None, 0, None), look(10, 70, 50, 9), Rates()),
    "nothing was appended": (look(0), look(10, 100), Rates(written_per_s=10.0)),
    "another disk": (look(0, 500), look(10, 100, 10), Rates()),
    "emptier": (look(0, None, room=10), look(300, None, room=11), Rates()),
    "as full as before": (look(0, None, room=10), look(300, None, room=10), Rates()),
    "below its reserve": (look(0, None, room=10), look(300, None, room=-5), Rates(full_in_s=0)),
    "too short for a forecast": (look(0, None, room=10), look(299, None, room=5), Rates()),
    "less than a second": (look(0, 0, 0, 100), look(0.9, 100, 100, 0), Rates()),
}


@pytest.mark.parametrize(("first", "second", "expected"), BETWEEN.values(), ids=BETWEEN)
def test_rates_are_what_happened_between_two_looks(first: Look, second: Look, expected: Rates) -> None:
    assert Rates.between(first, second) == expected


def test_rates_begin_at_the_start_of_the_span() -> None:
    looks = Looks(span_s=60, most=6)
    for second in range(0, 200, 10):
        looks.add(look(second, written=0 if second <= 130 else 6000))
    assert looks.until(look(190, written=6000)).written_per_s == 100
    looks.add(look(200, written=6000))
    assert looks.until(look(200, written=6000)).written_per_s == 0


@given(st.lists(st.floats(min_value=0, max_value=50), max_size=300))
def test_looks_are_few_and_reach_back_as_far_as_they_say(pauses: list[float]) -> None:
    looks, now = Looks(span_s=100, most=10), 0.0
    for pause in pauses:
        now += pause
        looks.add(look(now, written=round(now * 1000)))
        assert len(looks) <= 12
        rate = looks.until(look(now, written=round(now * 1000))).written_per_s
        assert rate is None or rate == pytest.approx(1000, rel=0.01)


def test_days_are_what_is_left_at_the_rate() -> None:
    assert days_to_endurance(100 * 86_400, 40 * 86_400, 2.0) == 30
    assert days_to_endurance(10, 20, 1.0) == 0
    assert days_to_endurance(0, 20, 1.0) is days_to_endurance(10, None, 1.0) is None
    assert days_to_endurance(10, 5, None) is days_to_endurance(10, 5, 0.0) is None
