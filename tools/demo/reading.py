"""What was read back of a partition, compared with the source while it goes by."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Final

from ...protocol.types import Record
from .flights import AIRPORTS, Flight

ROW_HEADER: Final = "row"


class PartitionCopy:
    """The rows and timestamps of a partition in offset order, and how its records differ from the source.

    Keys and values are compared when a record is added and not kept. Owned by the task that reads.
    """

    def __init__(self, partition: int, flights: Mapping[bytes, Flight]) -> None:
        self.partition = partition
        self.rows: list[bytes] = []
        self.timestamps = array("q")
        self.differing_count = 0
        self.first_difference = ""
        self.out_of_sequence = ""
        self._flights = flights

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, records: Iterable[Record]) -> None:
        """Take the next records."""
        flights, partition, rows, timestamps = self._flights, self.partition, self.rows, self.timestamps
        for record in records:
            offset, timestamp, key, value, headers = record
            if offset != len(rows) and not self.out_of_sequence:
                self.out_of_sequence = f"offset {offset} where {len(rows)} was expected"
            row = headers[0][1] if headers else None
            flight = flights.get(row) if row is not None else None
            if (row, partition, key, timestamp, value) != flight or len(headers) != 1 or headers[0][0] != ROW_HEADER:
                self._note(record, flight)
            rows.append(row or b"")
            timestamps.append(timestamp)

    def _note(self, record: Record, flight: Flight | None) -> None:
        self.differing_count += 1
        if not self.first_difference:
            self.first_difference = f"first at {AIRPORTS[self.partition]} {record.offset}: {difference(record, flight)}"


def difference(record: Record, flight: Flight | None) -> str:
    if flight is None or [name for name, _ in record.headers] != [ROW_HEADER]:
        return f"headers {record.headers} name no row"
    for name, stored, source in (
        ("key", record.key, flight.key),
        ("timestamp", record.timestamp, flight.timestamp),
        ("value", record.value, flight.value),
    ):
        if stored != source:
            return f"{name} {stored!r} of row {flight.row.decode()}, the source has {source!r}"
    return f"row {flight.row.decode()} belongs to {AIRPORTS[flight.partition]}"
