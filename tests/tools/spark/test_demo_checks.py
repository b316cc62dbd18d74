from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from triolog.tools.demo.flights import Flight
from triolog.tools.spark.demo import checks
from triolog.tools.spark.demo.job_process import KillPoint, Run, rows_per_batch
from triolog.tools.spark.demo.results import Results, add_hour
from triolog.tools.spark.demo.story import BATCHES, KILLED_PARTS, kill_points
from triolog.tools.spark.demo.tables import Group, Sums

FLIGHTS = [Flight(b"%d" % row, 0, None, 0, b"{}") for row in range(3)]
EXPECTED = {Group(0, "EWR", "UA"): Sums(2, 1, 7, 100, 0), Group(0, "JFK", "DL"): Sums(1, 1, -1, 50, 1)}


def _runs(*statuses: int, lines: Sequence[dict[str, Any]] = ()) -> list[Run]:
    return [Run(lines=lines, exit_status=each, killed=KillPoint("hours", 2, 0.5) if each else None) for each in statuses]


@pytest.mark.parametrize("statuses", [(-9, -9, 0), (0,), (-9, 0), (-9, -9), (-15, -9, 0), (-9, -9, -9, 0)])
def test_only_two_kills_and_an_orderly_end_count(statuses: tuple[int, ...]) -> None:
    assert checks.job_killed_in_the_middle(_runs(*statuses), 2).ok is (statuses == (-9, -9, 0))


@pytest.mark.parametrize(("dropped", "delay", "is_ok"), [(0, 10, True), (1, 10, False), (0, 8, False)])
def test_no_row_may_be_dropped_and_the_delay_has_to_pass_the_span(dropped: int, delay: int, is_ok: bool) -> None:
    assert checks.nothing_dropped(_runs(0, lines=[{"dropped": dropped}, {}]), delay, 9, 8).ok is is_ok


@pytest.mark.parametrize(
    ("rows", "without_row", "is_ok"),
    [
        ([b"0", b"1", b"2"], 1, True),
        ([b"0", b"1"], 1, False),
        ([b"0", b"1", b"2", b"2"], 1, False),
        ([b"0", b"1", b"2", b"3"], 1, False),
        ([b"0", b"1", b"2"], 2, False),
        ([b"0", b"1", b"2"], 0, False),
    ],
)
def test_each_flight_has_one_departure(rows: list[bytes], without_row: int, is_ok: bool) -> None:
    assert checks.departures_once(FLIGHTS, Results(departures=Counter(rows), without_row=without_row)).ok is is_ok


def test_hours_are_those_of_the_files_and_others_fail() -> None:
    assert checks.hours_equal("", dict(EXPECTED), 0, EXPECTED).ok
    assert checks.totals_equal(dict(EXPECTED), EXPECTED).ok
    group, other = EXPECTED
    for found, repeated in (
        (EXPECTED, 1),
        ({group: EXPECTED[group]}, 0),
        (EXPECTED | {Group(1, "EWR", "UA"): EXPECTED[group]}, 0),
        (EXPECTED | {other: EXPECTED[group]}, 0),
    ):
        assert not checks.hours_equal("", found, repeated, EXPECTED).ok
    assert not checks.hours_equal("", {}, 0, {}).ok
    assert not checks.totals_equal(EXPECTED | {other: EXPECTED[group]}, EXPECTED).ok


def test_a_repeated_hour_is_noticed_and_counted() -> None:
    hours: dict[Group, Sums] = {}
    row = {"hour": 0, "origin": "EWR", "carrier": "UA", "flights": 1, "departed": 1, "delay_minutes": 3, "seats": 4, "wet": 0}
    assert add_hour(hours, row)
    assert not add_hour(hours, row)
    assert hours == {Group(0, "EWR", "UA"): Sums(2, 2, 6, 8, 0)}


def test_kills_and_batches_are_divided_over_the_streaming_parts() -> None:
    for seed in range(200):
        points = kill_points(seed)
        assert [point.part for point in points] == list(KILLED_PARTS)
        assert all(0 < point.batch <= BATCHES // 2 and 0 <= point.share < 1 for point in points)
        assert points == kill_points(seed)
    assert [rows_per_batch(total, 8) for total in (1, 8, 9, 336_776)] == [1, 1, 2, 42_097]
