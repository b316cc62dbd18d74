"""What the comparison of two brokers still notices where their clocks differ, and what it does not."""

from __future__ import annotations

from typing import Final

from tests.kafka.differential.names import Symbol
from tests.kafka.differential.times import APPENDED, BETWEEN, UNTOLD, Times

START: Final = 1_800_000_000_000


class Clock:
    """Shows what was set, and a millisecond more each time it is looked at."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now


def asked(*windows: tuple[int, int]) -> Times:
    """A broker that was asked from the first to the last of these milliseconds, request after request."""
    clock = Clock(START)
    times = Times(clock)
    for first, last in windows:
        clock.now = START + first - 1
        times.begin()
        clock.now = START + last - 1
        times.extend()
    return times


def test_times_of_one_request_are_equal_and_any_other_is_noticed() -> None:
    ours, kafka = asked((1, 9)), asked((5, 8))
    appended, untold = Symbol(APPENDED, 0), Symbol(UNTOLD, 0)
    assert [ours.tell(START + 3), ours.tell(START + 3)] == [kafka.tell(START + 6), kafka.tell(START + 7)] == [appended] * 2
    assert [ours.name(START + 3), kafka.name(START + 6), kafka.name(START + 7)] == [appended] * 3
    assert ours.name(START + 4) == untold, "not the one that was answered"
    assert ours.name(START + 3, is_of_append=False) == kafka.name(START + 5, is_of_append=False) == untold
    assert (kafka.value(appended, 0), kafka.value(appended, 1)) == (START + 6, START + 8)
    times = asked((1, 3), (4, 4), (8, 9))
    names = [times.name(START + ms) for ms in (3, 4, 6, 9, 10, 0)]
    assert names == [untold, Symbol(UNTOLD, 1), BETWEEN, Symbol(UNTOLD, 2), START + 10, START]


def test_a_request_has_no_millisecond_of_the_one_before() -> None:
    times = asked((1, 5))
    assert times.clock.now == START + 5  # type: ignore[attr-defined]
    times.clock.now = START + 2  # type: ignore[attr-defined]
    times.begin()
    times.extend()
    assert [times.name(START + ms) for ms in (5, 6)] == [Symbol(UNTOLD, 0), Symbol(UNTOLD, 1)]
