"""What the Spark demo claims, judged on results that are wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from triolog.tools.demo.flights import Flight
from triolog.tools.demo.showing import Demo
from triolog.tools.spark.demo.story import BATCHES, KILLED_PARTS, Results, judge, kill_points
from triolog.tools.spark.demo.tables import Group, Sums, add_hour

FLIGHTS = [Flight(b"%d" % row, 0, None, 0, b"{}") for row in range(3)]
UA, DL = Group(0, "EWR", "UA"), Group(0, "JFK", "DL")
EXPECTED = {UA: Sums(2, 1, 7, 100, 0), DL: Sums(1, 1, -1, 50, 1)}
DEPARTURES, TOPIC, PARQUET, TOTALS = range(4)
"""The claims of `judge`, in their order."""
RIGHT: dict[str, Any] = {"hours": EXPECTED, "hour_records": 2, "parquet": EXPECTED, "parquet_rows": 2}


@pytest.mark.parametrize(
    ("rows", "changes", "failed"),
    [
        ([b"0", b"1", b"2", b""], {}, set()),
        ([b"0", b"1", b""], {}, {DEPARTURES}),
        ([b"0", b"1", b"2", b"2", b""], {}, {DEPARTURES}),
        ([b"0", b"1", b"2", b"3", b""], {}, {DEPARTURES}),
        ([b"0", b"1", b"2", b"", b""], {}, {DEPARTURES}),
        ([b"0", b"1", b"2"], {}, {DEPARTURES}),
        ([b"0", b"1", b"2", b""], {"hour_records": 3}, {TOPIC}),
        ([b"0", b"1", b"2", b""], {"parquet_rows": 3}, {PARQUET}),
        ([b"0", b"1", b"2", b""], {"hours": {UA: EXPECTED[UA]}, "hour_records": 1}, {TOPIC, TOTALS}),
        ([b"0", b"1", b"2", b""], {"hours": EXPECTED | {DL: EXPECTED[UA]}}, {TOPIC, TOTALS}),
        ([b"0", b"1", b"2", b""], {"parquet": EXPECTED | {DL: EXPECTED[UA]}}, {PARQUET}),
        ([b"0", b"1", b"2", b""], {"parquet": EXPECTED | {Group(1, "EWR", "UA"): EXPECTED[UA]}, "parquet_rows": 3}, {PARQUET}),
    ],
)
def test_results_that_differ_from_the_files_are_found(rows: list[bytes], changes: dict[str, Any], failed: set[int]) -> None:
    demo = Demo(is_quiet=True)
    judge(demo, FLIGHTS, Results(departures=Counter(rows), **RIGHT | changes), EXPECTED)
    assert {number for number, check in enumerate(demo.checks) if not check.ok} == failed


def test_without_a_result_nothing_was_shown() -> None:
    demo = Demo(is_quiet=True)
    judge(demo, [], Results(), {})
    assert not any(check.ok for check in demo.checks)


def test_an_hour_that_comes_twice_is_counted_twice() -> None:
    hours: dict[Group, Sums] = {}
    row = {"hour": 0, "origin": "EWR", "carrier": "UA", "flights": 1, "departed": 1, "delay_minutes": 3, "seats": 4, "wet": 0}
    add_hour(hours, row)
    add_hour(hours, row)
    assert hours == {UA: Sums(2, 2, 6, 8, 0)}


def test_kills_are_divided_over_the_streaming_parts() -> None:
    for seed in range(200):
        points = kill_points(seed)
        assert [point.part for point in points] == list(KILLED_PARTS)
        assert all(0 < point.batch <= BATCHES // 2 and 0 <= point.share < 1 for point in points)
        assert points == kill_points(seed)
