"""Every check holds for what is right and fails for each way in which it can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import Record
from triolog.tools.demo import checks
from triolog.tools.demo.checks import RecordPlace
from triolog.tools.demo.flights import Flight
from triolog.tools.demo.reading import PartitionCopy

from .flight_rows import departing

FLIGHTS = [departing(row * 10, row=row, partition=row % 3) for row in range(9)]
Change = Callable[[list[Flight]], list[Flight]]
PLACES = [RecordPlace(row % 3, row // 3) for row in range(9)]


def copies_of(*partitions: Sequence[Flight]) -> list[PartitionCopy]:
    """Three partitions that hold these flights."""
    by_row = {flight.row: flight for flight in FLIGHTS}
    copies = [PartitionCopy(number, by_row) for number in range(3)]
    for copy, flights in zip(copies, partitions, strict=True):
        copy.add(
            Record(offset, flight.timestamp, flight.key, flight.value, (("row", flight.row),))
            for offset, flight in enumerate(flights)
        )
    return copies


def stored() -> list[list[Flight]]:
    return [FLIGHTS[partition::3] for partition in range(3)]


def test_all_acknowledged() -> None:
    assert checks.every_flight_acknowledged(FLIGHTS, PLACES).ok


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(PLACES[:-1], id="one is missing"),
        pytest.param([*PLACES, RecordPlace(0, 99)], id="one too many"),
        pytest.param([PLACES[3], *PLACES[1:]], id="one place twice"),
        pytest.param([RecordPlace(1, 50), *PLACES[1:]], id="another airport's partition"),
    ],
)
def test_wrong_acknowledgements_are_found(places: list[RecordPlace]) -> None:
    assert not checks.every_flight_acknowledged(FLIGHTS, places).ok


@pytest.mark.parametrize(
    ("acknowledged", "status", "expected"),
    [(5, -9, True), (0, -9, False), (9, -9, False), (5, 0, False), (5, -15, False), (5, 1, False)],
)
def test_only_a_sigkill_in_the_middle_counts(acknowledged: int, status: int, expected: bool) -> None:
    assert checks.killed_in_the_middle(9, acknowledged, status).ok is expected


def test_what_was_acknowledged_is_there() -> None:
    copies = copies_of(*stored())
    assert checks.acknowledged_are_there(FLIGHTS, PLACES, copies).ok
    assert checks.every_row_once(FLIGHTS, copies).ok
    assert checks.offsets_are_consecutive(copies).ok
    assert checks.records_equal_source(copies).ok


@pytest.mark.parametrize(
    ("first", "second", "is_there", "is_once", "detail"),
    [
        pytest.param(lambda rows: [*rows, rows[-1], rows[-2]], list, True, False, "2 duplicates", id="repeated"),
        pytest.param(list, lambda rows: rows[:-1], False, False, "row 7 is not at JFK 2", id="lost"),
        pytest.param(lambda rows: rows[::-1], list, False, True, "", id="at each other's offsets"),
    ],
)
def test_what_is_not_there_once_and_where_it_was_acknowledged_is_found(
    first: Change, second: Change, is_there: bool, is_once: bool, detail: str
) -> None:
    ewr, jfk, lga = stored()
    copies = copies_of(first(ewr), second(jfk), lga)
    found = [checks.acknowledged_are_there(FLIGHTS, PLACES, copies), checks.every_row_once(FLIGHTS, copies)]
    assert [check.ok for check in found] == [is_there, is_once]
    assert any(detail in check.detail for check in found)


def test_an_acknowledgement_without_an_offset_is_found() -> None:
    assert not checks.acknowledged_are_there(FLIGHTS, [RecordPlace(0, -1), *PLACES[1:]], copies_of(*stored())).ok


def test_an_altered_record_is_found() -> None:
    first, second, third = stored()
    copies = copies_of([first[0]._replace(value=b"{}"), *first[1:]], second, third)
    check = checks.records_equal_source(copies)
    assert not check.ok
    assert check.detail.startswith("1 of 9 differ; first at EWR 0: value b'{}'")


def test_a_gap_is_found() -> None:
    copies = copies_of(*stored())
    copies[1].add([Record(9, 0, None, None)])
    assert not checks.offsets_are_consecutive(copies).ok


def test_nothing_read_is_nothing_shown() -> None:
    assert not checks.records_equal_source(copies_of([], [], [])).ok
    assert not checks.acknowledged_are_there([], [], copies_of([], [], [])).ok
    assert not checks.lookups_equal_scan("lookup", {}, [], 0).ok
    assert not checks.day_equals_source({}, FLIGHTS, 1000, 2000).ok


@given(st.lists(st.integers(0, 50)), st.integers(0, 60))
def test_the_scan_finds_the_first_record_at_or_after_a_time(timestamps: list[int], at: int) -> None:
    offset, found = checks.scan_for_time(timestamps, at)
    if offset < 0:
        assert found == -1
        assert all(timestamp < at for timestamp in timestamps)
    else:
        assert timestamps[offset] == found >= at
        assert all(timestamp < at for timestamp in timestamps[:offset])


RIGHT = {0: (1, 30), 1: (1, 40), 2: (1, 50)}


def test_lookups_that_a_scan_confirms() -> None:
    assert checks.lookups_equal_scan("lookup", RIGHT, copies_of(*stored()), 30).ok
    after_the_end = dict.fromkeys(range(3), checks.NO_RECORD)
    assert checks.lookups_equal_scan("lookup", after_the_end, copies_of(*stored()), 81).ok


@pytest.mark.parametrize("wrong", [(0, 0), (2, 60), (1, 31), (-1, -1)])
def test_a_wrong_lookup_is_found(wrong: tuple[int, int]) -> None:
    check = checks.lookups_equal_scan("lookup", RIGHT | {0: wrong}, copies_of(*stored()), 30)
    assert not check.ok
    assert f"EWR: {wrong}, a scan finds (1, 30)" in check.detail


def test_a_partition_without_an_answer_is_found() -> None:
    assert not checks.lookups_equal_scan("lookup", {0: (1, 30), 1: (1, 40)}, copies_of(*stored()), 30).ok


DAY = {flight.row: flight.value for flight in FLIGHTS[2:5]}


def test_the_day_begins_with_its_start_and_ends_before_its_end() -> None:
    assert checks.day_equals_source(DAY, FLIGHTS, 20, 50).ok


@pytest.mark.parametrize(
    "consumed",
    [
        pytest.param({row: value for row, value in DAY.items() if row != b"2"}, id="one is missing"),
        pytest.param(DAY | {b"5": FLIGHTS[5].value}, id="one of the next day"),
        pytest.param(DAY | {b"3": b"{}"}, id="another value"),
        pytest.param(DAY | {b"3": None}, id="no value"),
        pytest.param({}, id="nothing"),
    ],
)
def test_a_wrong_day_is_found(consumed: dict[bytes, bytes | None]) -> None:
    assert not checks.day_equals_source(consumed, FLIGHTS, 20, 50).ok


@pytest.mark.parametrize(
    ("status", "marked", "expected"), [(0, True, True), (0, False, False), (-15, True, False), (3, True, False)]
)
def test_only_an_orderly_stop_counts(status: int, marked: bool, expected: bool) -> None:
    assert checks.stopped_in_order(status, marked).ok is expected
