"""The last thing that the demo does: the stopped server's log answers a question in SQL, which its flights answer, too."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from .day import DAY_END, DAY_START
from .flights import NEW_YORK, Flight

QUESTION: Final = """\
select carrier, max(arr_delay) as latest, count(distinct tailnum) as aircraft from flights
where timestamp >= '2013-07-04' and timestamp < '2013-07-05'
group by carrier order by latest desc nulls last, carrier limit 5"""
"""Its answer is the same when a flight is there twice."""
MOST: Final = 5


class Airline(NamedTuple):
    """A row of the answer: its latest arrival of the day in minutes, and how many aircraft flew."""

    carrier: str
    latest: int | None
    aircraft: int


@attrs.frozen(kw_only=True)
class Answered:
    """The answer, and how much was read for it."""

    airlines: list[Airline]
    seconds: float
    records: int
    total: int


def ask_log(data_dir: Path) -> Answered:
    """Ask the files. SqlError, ArrowError."""
    import time

    from ..sql.options import SqlOptions
    from ..sql.session import ask

    begin = time.perf_counter()
    with ask(str(data_dir), QUESTION, SqlOptions(time_zone=NEW_YORK)) as answer:
        airlines = [Airline(**row) for batch in answer.batches() for row in batch.to_pylist()]
        [scan] = answer.scans
    return Answered(
        airlines=airlines,
        seconds=time.perf_counter() - begin,
        records=scan.report.rows,
        total=sum(span.high - span.low for span in scan.there),
    )


def expected_answer(flights: Iterable[Flight]) -> list[Airline]:
    """The same out of the source."""
    delays: dict[str, list[int]] = {}
    aircraft: dict[str, set[str]] = {}
    for flight in flights:
        if DAY_START <= flight.timestamp < DAY_END:
            row = json.loads(flight.value)
            delays.setdefault(row["carrier"], []).extend(() if row["arr_delay"] is None else (row["arr_delay"],))
            aircraft.setdefault(row["carrier"], set()).update(() if row["tailnum"] is None else (row["tailnum"],))
    airlines = [Airline(name, max(found, default=None), len(aircraft[name])) for name, found in delays.items()]
    return sorted(airlines, key=lambda each: (each.latest is None, -(each.latest or 0), each.carrier))[:MOST]
