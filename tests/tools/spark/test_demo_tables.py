from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.tools.demo.flights import Flight, find_source, load_flights
from triolog.tools.spark.demo.story import watermark_ms
from triolog.tools.spark.demo.tables import HOUR_MS, Group, Sums, disorder_ms, recompute, together

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


@pytest.mark.merge
def test_the_year_adds_up() -> None:
    flights = load_flights(find_source())
    total = together(recompute(find_source(), flights).values())
    assert (total.flights, total.departed) == (336_776, 328_521)
