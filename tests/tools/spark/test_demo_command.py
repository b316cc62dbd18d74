"""`triolog spark demo` with a real job that is really killed, and what it claims, judged on results that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.cli.main import main
from triolog.tools.demo.flights import Flight, find_source, load_flights
from triolog.tools.demo.showing import Demo
from triolog.tools.spark.demo.story import BATCHES, KILLED_PARTS, Results, judge, kill_points, watermark_ms
from triolog.tools.spark.demo.tables import HOUR_MS, Group, Sums, add_hour, disorder_ms, recompute, sums_by_carrier, together

ROWS: Final = 1000
HALF_AS_MANY_BATCHES: Final = """
from functools import partial
from triolog.tools.cli.main import main
from triolog.tools.spark.demo import story

story.BATCHES //= 2
story.kill_points = partial(story.kill_points, batches=story.BATCHES)
main()
"""
"""The command; each batch of a streaming query takes a second or more, whatever is in it."""


@pytest.mark.merge
@pytest.mark.timeout(900)
def test_the_demo_runs_and_every_check_holds(tmp_path: Path, jvm_options: str) -> None:
    arguments = ["--rows", str(ROWS), "--json", "--data-dir", str(tmp_path / "data")]
    command_line = [sys.executable, "-c", HALF_AS_MANY_BATCHES, "spark", "demo", *arguments]
    environ = os.environ | {"JDK_JAVA_OPTIONS": jvm_options}
    run = subprocess.run(command_line, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    figures = json.loads(run.stdout)
    assert figures["ok"]
    assert [check for check in figures["checks"] if not check["ok"]] == []
    assert len(figures["checks"]) == 8
    assert [kill["part"] for kill in figures["kills"]] == ["departures", "hours"]
    assert (figures["rows"], figures["departures"], figures["dropped_by_watermark"]) == (ROWS, ROWS, 0)
    assert figures["parquet_rows"] == figures["hours"] > ROWS * 2 // 3


def test_the_commands_are_those_of_triolog_spark() -> None:
    result = CliRunner().invoke(main, ["spark", "--help"])
    assert result.exit_code == 0
    for name in ("init", "demo", "bench"):
        assert f"  {name} " in result.output


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


HEADER = "dep_delay,carrier,tailnum,origin,time_hour"
HOUR = 1_357_034_400_000


def _files(folder: Path, *rows: str) -> Path:
    path = folder / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", "\n".join([HEADER, *rows]) + "\n")
    (folder / "planes.csv").write_text("tailnum,seats\nN1,55\nN2,182\n")
    (folder / "weather.csv").write_text("origin,time_hour,precip\nEWR,a,0.02\nEWR,b,0\nJFK,a,NA\n")
    return path


def _flight(row: int, timestamp: int) -> Flight:
    return Flight(b"%d" % row, 0, None, timestamp, b"{}")


def test_the_sums_of_a_group_are_those_of_its_rows(tmp_path: Path) -> None:
    source = _files(tmp_path, "2,UA,N1,EWR,a", "-3,UA,N2,EWR,b", "NA,UA,N9,EWR,a", "7,DL,NA,JFK,a")
    flights = [_flight(0, HOUR), _flight(1, HOUR + HOUR_MS - 1), _flight(2, HOUR + 1), _flight(3, HOUR + HOUR_MS)]
    assert recompute(source, flights) == {
        Group(HOUR, "EWR", "UA"): Sums(flights=3, departed=2, delay_minutes=-1, seats=237, wet=2),
        Group(HOUR + HOUR_MS, "JFK", "DL"): Sums(flights=1, departed=1, delay_minutes=7, seats=0, wet=0),
    }


def test_rows_that_were_not_asked_for_are_not_counted(tmp_path: Path) -> None:
    source = _files(tmp_path, "2,UA,N1,EWR,a", "4,UA,N1,EWR,a")
    assert recompute(source, [_flight(1, HOUR)]) == {Group(HOUR, "EWR", "UA"): Sums(1, 1, 4, 55, 1)}


def test_sums_of_nothing_and_the_mean_delay_of_those_that_left() -> None:
    assert Sums(5, 4, 10, 0, 0).mean_delay == 2.5
    assert Sums(5, 0, 0, 0, 0).mean_delay is None
    assert together([]) == Sums(0, 0, 0, 0, 0)


@pytest.mark.parametrize(("times", "late"), [([], 0), ([5], 0), ([1, 2, 3], 0), ([3, 1, 2], 2), ([1, 9, 4, 10, 8], 5)])
def test_disorder_is_the_longest_way_behind_an_earlier_record(times: list[int], late: int) -> None:
    assert disorder_ms(times) == late


@given(st.lists(st.integers(0, 10**13), min_size=1), st.randoms(use_true_random=False))
def test_with_the_delay_chosen_no_order_of_reading_makes_a_record_late(times: list[int], random: object) -> None:
    delay, span = watermark_ms(times)
    assert delay > span
    shuffled = list(times)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert disorder_ms(shuffled) <= span


@pytest.mark.long  # the demo of the merge tier compares this sum with Spark's, of flights from all months
def test_the_year_adds_up() -> None:
    flights = load_flights(find_source())
    total = together(recompute(find_source(), flights).values())
    assert (total.flights, total.departed) == (336_776, 328_521)


def test_the_largest_carrier_comes_first() -> None:
    hours = {UA: Sums(2, 2, 10, 0, 0), DL: Sums(3, 2, 6, 0, 0)}
    assert [carrier for carrier, _ in sums_by_carrier(hours)] == ["DL", "UA"]
