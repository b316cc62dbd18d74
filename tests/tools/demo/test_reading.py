from __future__ import annotations

import pytest
from triolog.protocol.types import Record
from triolog.tools.demo.flights import Flight
from triolog.tools.demo.reading import PartitionCopy

from .flight_rows import departing

FLIGHT = departing(1000, row=7)


def stored(flight: Flight, offset: int) -> Record:
    return Record(offset, flight.timestamp, flight.key, flight.value, (("row", flight.row),))


def copy_of(*records: Record, partition: int = 0) -> PartitionCopy:
    copy = PartitionCopy(partition, {FLIGHT.row: FLIGHT})
    copy.add(records)
    return copy


def test_records_differ_only_when_they_are_changed_or_in_another_airports_partition() -> None:
    copy = copy_of(stored(FLIGHT, 0), stored(FLIGHT, 1))
    assert (copy.differing_count, copy.first_difference, copy.out_of_sequence) == (0, "", "")
    assert copy.rows == [b"7", b"7"]
    assert list(copy.timestamps) == [1000, 1000]
    copy = copy_of(stored(FLIGHT, 0), partition=2)
    assert copy.differing_count == 1
    assert "row 7 belongs to EWR" in copy.first_difference


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"key": None}, "key None of row 7, the source has b'N14228'"),
        ({"timestamp": 1001}, "timestamp 1001 of row 7, the source has 1000"),
        ({"value": b"{}"}, "value b'{}' of row 7"),
        ({"headers": (("row", b"8"),)}, "name no row"),
        ({"headers": ()}, "name no row"),
        ({"headers": (("line", b"7"),)}, "name no row"),
        ({"headers": (("row", b"7"), ("row", b"7"))}, "name no row"),
        ({"headers": (("row", None),)}, "name no row"),
    ],
)
def test_whatever_is_changed_differs(changes: dict[str, object], said: str) -> None:
    copy = copy_of(stored(FLIGHT, 0)._replace(**changes), stored(FLIGHT, 1))
    assert copy.differing_count == 1
    assert copy.first_difference.startswith("first at EWR 0: ")
    assert said in copy.first_difference


@pytest.mark.parametrize("offsets", [(1,), (0, 2), (0, 0), (0, 1, 1)])
def test_offsets_that_are_not_consecutive_are_noted(offsets: tuple[int, ...]) -> None:
    assert copy_of(*(stored(FLIGHT, offset) for offset in offsets)).out_of_sequence
