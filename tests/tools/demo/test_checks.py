from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st
from triolog.protocol.types import Record
from triolog.tools.demo import checks
from triolog.tools.demo.checks import Check, RecordPlace
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


def swapped(number: int, change: Change) -> list[PartitionCopy]:
    """What is stored, one partition of it changed."""
    partitions = stored()
    partitions[number] = change(partitions[number])
    return copies_of(*partitions)


def with_a_gap() -> list[PartitionCopy]:
    copies = copies_of(*stored())
    copies[1].add([Record(9, 0, None, None)])
    return copies


RIGHT = {0: (1, 30), 1: (1, 40), 2: (1, 50)}
AFTER_THE_END = dict.fromkeys(range(3), checks.NO_RECORD)
DAY = {flight.row: flight.value for flight in FLIGHTS[2:5]}
ALL = copies_of(*stored())
NOTHING = copies_of([], [], [])
REPEATED = swapped(0, lambda rows: [*rows, rows[-1], rows[-2]])
LOST = swapped(1, lambda rows: rows[:-1])
REVERSED = swapped(0, lambda rows: rows[::-1])
ALTERED = swapped(0, lambda rows: [rows[0]._replace(value=b"{}"), *rows[1:]])


def acknowledged(*places: RecordPlace) -> Check:
    return checks.every_flight_acknowledged(FLIGHTS, places)


def there(copies: list[PartitionCopy], places: list[RecordPlace] = PLACES) -> Check:
    return checks.acknowledged_are_there(FLIGHTS, places, copies)


def looked_up(found: dict[int, tuple[int, int]], at: int = 30, copies: list[PartitionCopy] = ALL) -> Check:
    return checks.lookups_equal_scan("lookup", found, copies, at)


def day(consumed: dict[bytes, bytes | None], start: int = 20, end: int = 50) -> Check:
    return checks.day_equals_source(consumed, FLIGHTS, start, end)


HELD = {
    "all acknowledged": acknowledged(*PLACES),
    "killed in the middle": checks.killed_in_the_middle(9, 5, -9),
    "acknowledged and there": there(ALL),
    "acknowledged and there, some twice": there(REPEATED),
    "every row once": checks.every_row_once(FLIGHTS, ALL),
    "every row once, in another order": checks.every_row_once(FLIGHTS, REVERSED),
    "consecutive offsets": checks.offsets_are_consecutive(ALL),
    "equal records": checks.records_equal_source(ALL),
    "a lookup": looked_up(RIGHT),
    "a lookup after the end": looked_up(AFTER_THE_END, 81),
    "the day begins with its start and ends before its end": day(DAY),  # type: ignore[arg-type]
    "an orderly stop": checks.stopped_in_order(0, True),
}
FAILED = {
    "an acknowledgement is missing": (acknowledged(*PLACES[:-1]), ""),
    "one acknowledgement too many": (acknowledged(*PLACES, RecordPlace(0, 99)), ""),
    "one place twice": (acknowledged(PLACES[3], *PLACES[1:]), ""),
    "another airport's partition": (acknowledged(RecordPlace(1, 50), *PLACES[1:]), ""),
    "killed before the first": (checks.killed_in_the_middle(9, 0, -9), ""),
    "killed behind the last": (checks.killed_in_the_middle(9, 9, -9), ""),
    "not killed": (checks.killed_in_the_middle(9, 5, 0), ""),
    "SIGTERM is no kill": (checks.killed_in_the_middle(9, 5, -15), ""),
    "an exit is no kill": (checks.killed_in_the_middle(9, 5, 1), ""),
    "repeated rows": (checks.every_row_once(FLIGHTS, REPEATED), "2 duplicates"),
    "an acknowledged row is lost": (there(LOST), "row 7 is not at JFK 2"),
    "a row is lost": (checks.every_row_once(FLIGHTS, LOST), ""),
    "rows at each other's offsets": (there(REVERSED), ""),
    "an acknowledgement without an offset": (there(ALL, [RecordPlace(0, -1), *PLACES[1:]]), ""),
    "an altered record": (checks.records_equal_source(ALTERED), "1 of 9 differ; first at EWR 0: value b'{}'"),
    "a gap": (checks.offsets_are_consecutive(with_a_gap()), ""),
    "nothing read, records": (checks.records_equal_source(NOTHING), ""),
    "nothing read, acknowledgements": (checks.acknowledged_are_there([], [], NOTHING), ""),
    "nothing read, lookups": (looked_up({}, 0, []), ""),
    "nothing read, the day": (day({}, 1000, 2000), ""),
    **{
        f"a wrong lookup {wrong}": (looked_up(RIGHT | {0: wrong}), f"EWR: {wrong}, a scan finds (1, 30)")
        for wrong in [(0, 0), (2, 60), (1, 31), (-1, -1)]
    },
    "a lookup without an answer": (looked_up({0: (1, 30), 1: (1, 40)}), ""),
    "one of the day is missing": (day({row: value for row, value in DAY.items() if row != b"2"}), ""),
    "one of the next day": (day(DAY | {b"5": FLIGHTS[5].value}), ""),
    "another value": (day(DAY | {b"3": b"{}"}), ""),
    "no value": (day(DAY | {b"3": None}), ""),
    "nothing of the day": (day({}), ""),
    "a stop without its mark": (checks.stopped_in_order(0, False), ""),
    "a stop by SIGTERM": (checks.stopped_in_order(-15, True), ""),
    "a stop with an error": (checks.stopped_in_order(3, True), ""),
}


def test_every_check_holds_for_what_is_right_and_fails_for_what_is_wrong() -> None:
    assert [name for name, check in HELD.items() if not check.ok] == []
    assert [name for name, (check, _) in FAILED.items() if check.ok] == []
    assert [name for name, (check, detail) in FAILED.items() if detail not in check.detail] == []


@given(st.lists(st.integers(0, 50)), st.integers(0, 60))
def test_the_scan_finds_the_first_record_at_or_after_a_time(timestamps: list[int], at: int) -> None:
    offset, found = checks.scan_for_time(timestamps, at)
    if offset < 0:
        assert found == -1
        assert all(timestamp < at for timestamp in timestamps)
    else:
        assert timestamps[offset] == found >= at
        assert all(timestamp < at for timestamp in timestamps[:offset])
