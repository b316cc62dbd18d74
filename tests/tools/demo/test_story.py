"""What the demo claims, judged on facts that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import Record
from triolog.tools.demo.command import MIN_ROWS
from triolog.tools.demo.flights import DAY_START, Flight
from triolog.tools.demo.showing import Demo
from triolog.tools.demo.story import Acknowledged, Copy, compare_lookups, expected_answer, judge_copies, kill_point

from .flight_rows import departing, flights_of

FLIGHTS = [departing(row * 10, row=row, partition=row % 3) for row in range(9)]
PLACES = [Acknowledged(row % 3, row // 3) for row in range(9)]
EQUAL, AT_OFFSET, ONCE, CONSECUTIVE = range(4)
"""The claims of `judge_copies`, in their order."""


def copies_of(*partitions: Sequence[Flight], skipped: int = 0) -> list[Copy]:
    """Three partitions that hold these flights, the first of them from an offset on."""
    by_row, copies = {flight.row: flight for flight in FLIGHTS}, [Copy() for _ in range(3)]
    for number, flights in enumerate(partitions):
        for offset, flight in enumerate(flights, 0 if number else skipped):
            record = Record(offset, flight.timestamp, flight.key, flight.value, (("row", flight.row),))
            copies[number].add(number, record, by_row)
    return copies


def stored(change: Callable[[list[Flight]], list[Flight]] = list, **how: int) -> list[Copy]:
    """All flights, those of the first partition changed."""
    return copies_of(change(FLIGHTS[0::3]), FLIGHTS[1::3], FLIGHTS[2::3], **how)


@pytest.mark.parametrize(
    ("copies", "failed"),
    [
        pytest.param(stored(), set(), id="right"),
        pytest.param(stored(lambda rows: [*rows, rows[0]]), {ONCE}, id="one is there twice"),
        pytest.param(stored(lambda rows: rows[:-1]), {AT_OFFSET, ONCE}, id="one is lost"),
        pytest.param(stored(lambda rows: rows[::-1]), {AT_OFFSET}, id="another order"),
        pytest.param(stored(lambda rows: [rows[0]._replace(value=b"{}"), *rows[1:]]), {EQUAL}, id="another value"),
        pytest.param(stored(lambda rows: [rows[0]._replace(row=b"99"), *rows[1:]]), {EQUAL, AT_OFFSET, ONCE}, id="a stranger"),
        pytest.param(stored(skipped=1), {CONSECUTIVE}, id="an offset is skipped"),
        pytest.param(copies_of(FLIGHTS[1::3], FLIGHTS[0::3], FLIGHTS[2::3]), {EQUAL, AT_OFFSET}, id="another partition"),
        pytest.param(copies_of([], [], []), {EQUAL, AT_OFFSET, ONCE}, id="nothing"),
    ],
)
def test_whatever_the_log_lacks_is_found(copies: list[Copy], failed: set[int]) -> None:
    demo = Demo(is_quiet=True)
    judge_copies(demo, FLIGHTS, PLACES, copies)
    assert {number for number, check in enumerate(demo.checks) if not check.ok} == failed


@given(st.lists(st.integers(DAY_START - 3, DAY_START + 3), max_size=8))
def test_a_lookup_is_right_when_a_scan_finds_the_same(times: list[int]) -> None:
    found = next(((offset, at) for offset, at in enumerate(times) if at >= DAY_START), (-1, -1))
    assert compare_lookups({0: found}, [Copy(times=times)])[0]
    assert not compare_lookups({0: (found[0] + 1, found[1])}, [Copy(times=times)])[0]
    assert not compare_lookups({}, [Copy(times=times)])[0]


def test_the_latest_arrivals_of_the_day_come_first_and_a_flight_that_is_there_twice_counts_once() -> None:
    flights = flights_of(
        {"arr_delay": "5", "carrier": "UA"},
        {"arr_delay": "90", "carrier": "DL", "tailnum": "N1"},
        {"arr_delay": "NA", "carrier": "DL", "tailnum": "N2"},
        {"arr_delay": "NA", "carrier": "AA", "tailnum": "NA"},
    )
    in_the_day = [flight._replace(timestamp=DAY_START) for flight in flights]
    answer = [("DL", 90, 2), ("UA", 5, 1), ("AA", None, 0)]
    assert expected_answer([*in_the_day, in_the_day[0]]) == answer
    assert expected_answer(flights) == []


@given(st.integers(MIN_ROWS, 400_000), st.integers())
def test_the_kill_point_is_about_the_middle_and_the_seed_decides(total: int, seed: int) -> None:
    assert 0.44 * total < kill_point(total, seed) < 0.56 * total
    assert kill_point(total, seed) == kill_point(total, seed)
