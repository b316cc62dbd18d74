"""One day out of the log by time, and what its flights say.

Records are out of order, so a lookup by time gives the place where a day may begin, not a range that holds it: every record
at or after midnight lies at or after the offset found, but none of the offsets after it marks the end of the day. The day is
therefore what lies in its span of time among all records from there to the end of the partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import attrs

from ...protocol.types import Record
from .flights import NEW_YORK, local_ms
from .reading import ROW_HEADER

DAY: Final = "2013-07-04"
DAY_START: Final = local_ms(datetime(2013, 7, 4))
DAY_END: Final = local_ms(datetime(2013, 7, 5))
"""Exclusive."""


class DayReader:
    """Picks the records of a span of time out of those that go by. Owned by the task that reads."""

    def __init__(self, start: int, end: int) -> None:
        self._start = start
        self._end = end
        self.consumed_count = 0
        self.found_count = 0
        self.departures: dict[bytes, Record] = {}
        """By row; a repeated row counts once."""

    def add(self, records: Iterable[Record]) -> None:
        """Take the next records."""
        for record in records:
            self.consumed_count += 1
            if self._start <= record.timestamp < self._end:
                self.found_count += 1
                row = dict(record.headers).get(ROW_HEADER)
                assert row is not None, f"a record at offset {record.offset} names no row"
                self.departures.setdefault(row, record)

    def values(self) -> dict[bytes, bytes | None]:
        """What was found, by row."""
        return {row: record.value for row, record in self.departures.items()}


@attrs.frozen
class FlightsLine:
    """One line of a table: what its flights have in common, how many, how many never left, how late the others were."""

    label: str
    flights: int
    never_left: int
    mean_delay: float | None
    """Minutes; None when none of them left."""


def by_carrier(records: Iterable[Record]) -> list[FlightsLine]:
    """A line for each carrier, the largest first."""
    lines = _lines((json.loads(record.value or b"{}")["carrier"], record) for record in records)
    return sorted(lines, key=lambda line: (-line.flights, line.label))


def by_hour(records: Iterable[Record]) -> list[FlightsLine]:
    """A line for each hour of New York's clocks, by the records' timestamps."""
    zone = ZoneInfo(NEW_YORK)
    lines = _lines((f"{datetime.fromtimestamp(record.timestamp / 1000, zone):%H}:00", record) for record in records)
    return sorted(lines, key=lambda line: line.label)


def _lines(labelled: Iterable[tuple[str, Record]]) -> list[FlightsLine]:
    delays: dict[str, list[int | None]] = {}
    for label, record in labelled:
        delays.setdefault(label, []).append(json.loads(record.value or b"{}")["dep_delay"])
    return [_line(label, found) for label, found in delays.items()]


def _line(label: str, delays: list[int | None]) -> FlightsLine:
    known = [delay for delay in delays if delay is not None]
    return FlightsLine(label, len(delays), len(delays) - len(known), sum(known) / len(known) if known else None)
