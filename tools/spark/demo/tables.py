"""The tables that the demo joins to the flights (`weather.csv`, `planes.csv` of the same package), and the expected sums.

`recompute` is the plain answer that Spark's is compared with: the CSV files, the standard library, one pass.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from ...demo.flights import MISSING, Flight

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
WEATHER: Final = "weather.csv"
PLANES: Final = "planes.csv"


class Group(NamedTuple):
    """The key of a result row: an hour of departures of one carrier from one airport."""

    hour_ms: int
    """Start of the window, ms since the epoch."""
    origin: str
    carrier: str


class Sums(NamedTuple):
    """The sums of a group; whole numbers, so that equal means equal."""

    flights: int
    departed: int
    """Flights with a delay; the others never left."""
    delay_minutes: int
    """Of those that left, early ones negative."""
    seats: int
    """Of the aircraft that `planes.csv` knows."""
    wet: int
    """Flights scheduled in an hour for which `weather.csv` has precipitation."""

    def plus(self, other: Self) -> Self:
        """Return both added."""
        return type(self)(*map(int.__add__, self, other))

    @property
    def mean_delay(self) -> float | None:
        """Return minutes; None when no flight left."""
        return self.delay_minutes / self.departed if self.departed else None


NOTHING: Final = Sums(0, 0, 0, 0, 0)


def sums_by_carrier(hours: Mapping[Group, Sums]) -> list[tuple[str, Sums]]:
    """Return the carriers with their sums, the largest first."""
    found: dict[str, Sums] = {}
    for group, sums in hours.items():
        found[group.carrier] = found.get(group.carrier, NOTHING).plus(sums)
    return sorted(found.items(), key=lambda item: (-item[1].flights, item[0]))


def recompute(flights_zip: Path, flights: Sequence[Flight]) -> dict[Group, Sums]:
    """Return the sums of these flights from the package's files: of a flight only its row and its timestamp are used."""
    timestamps = {int(flight.row): flight.timestamp for flight in flights}
    folder = flights_zip.parent
    seats = {row["tailnum"]: int(row["seats"]) for row in _rows((folder / PLANES).read_text(encoding="utf-8").splitlines())}
    weather = _rows((folder / WEATHER).read_text(encoding="utf-8").splitlines())
    wet = {(row["origin"], row["time_hour"]) for row in weather if row["precip"] != MISSING and float(row["precip"]) > 0}
    sums: dict[Group, Sums] = {}
    with zipfile.ZipFile(flights_zip) as archive, archive.open("flights.csv") as stream:
        for number, row in enumerate(_rows(io.TextIOWrapper(stream, encoding="utf-8", newline=""))):
            if (timestamp := timestamps.get(number)) is None:
                continue
            has_left = row["dep_delay"] != MISSING
            one = Sums(
                flights=1,
                departed=int(has_left),
                delay_minutes=int(row["dep_delay"]) if has_left else 0,
                seats=seats.get(row["tailnum"], 0),
                wet=int((row["origin"], row["time_hour"]) in wet),
            )
            group = Group(timestamp - timestamp % HOUR_MS, row["origin"], row["carrier"])
            sums[group] = sums.get(group, NOTHING).plus(one)
    return sums


def together(sums: Iterable[Sums]) -> Sums:
    """Add them all."""
    total = NOTHING
    for each in sums:
        total = total.plus(each)
    return total


def add_hour(hours: dict[Group, Sums], row: Mapping[str, Any]) -> None:
    """Count a row of the result."""
    group = Group(row["hour"], row["origin"], row["carrier"])
    hours[group] = hours.get(group, NOTHING).plus(Sums._make(row[name] for name in Sums._fields))


def disorder_ms(timestamps: Iterable[int]) -> int:
    """Return how much later than its turn a record comes at most, in the order given."""
    latest = late = 0
    for timestamp in timestamps:
        latest = max(latest, timestamp)
        late = max(late, latest - timestamp)
    return late


def _rows(lines: Iterable[str]) -> Iterator[Mapping[str, str]]:
    return csv.DictReader(lines)
