"""

What the demo claims, judged on facts that are wrong.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.errors import TriologError
from triolog.protocol.types import Record
from triolog.tools.demo.command import MIN_ROWS
from triolog.tools.demo.flights import DAY_START, Flight
from triolog.tools.demo.processes import ProcessFailedError, started_server
from triolog.tools.demo.showing import Demo, DemoError, check_empty, run
from triolog.tools.demo.story import Acknowledged, Copy, compare_lookups, expected_answer, judge_copies, kill_point

from tests.tools.demo.test_flights import departing, flights_of


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


def test_leaving_the_block_by_an_exception_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the caller's environment that the server would refuse does not reach it."""
    monkeypatch.setenv("TRIOLOG_NO_SUCH_KEY", "1")
    pids: list[int] = []

    def fail() -> None:
        with started_server(tmp_path / "data", tmp_path) as server:
            pids.append(server.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_a_server_that_cannot_start_is_reported_with_its_words(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.write_text("not a directory")
    with pytest.raises(ProcessFailedError, match=f"(?s)the server ended with 2 .*; its log ends with.*{data_dir}"):
        with started_server(data_dir, tmp_path):
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
