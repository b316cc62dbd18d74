"""A gateway's data of a week: a year of flights on a clock that runs 52 times as fast, in three topics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ....protocol.limits import KIB, MIB
from ..flights import AIRPORTS, Flight

DEPARTURES: Final = "departures"
DELAYS: Final = "delays"
CANCELLATIONS: Final = "cancellations"
PARTITIONS: Final = {DEPARTURES: len(AIRPORTS), DELAYS: 1, CANCELLATIONS: 1}
DUTIES: Final = {
    DEPARTURES: "most of it, drops its oldest records first",
    DELAYS: "an hour late or more, disk.full.priority=10",
    CANCELLATIONS: "never left, disk.full.policy=refuse above 1 MiB",
}
DAYS: Final = 7
DAY_MS: Final = 86_400_000
WEEK_MS: Final = DAYS * DAY_MS
LATE_MINUTES: Final = 60

_NEVER_LEFT: Final = b'"dep_time":null'
_DELAY: Final = re.compile(rb'"dep_delay":(\d+)')


class Written(NamedTuple):
    """A flight as it is written: its partition is the topic's, its timestamp in the week."""

    topic: str
    flight: Flight


def topic_config(topic: str, group: str) -> dict[str, str]:
    """Return a configuration in which retention deletes records after a day, unless the forwarder's group still holds them."""
    config = {
        "segment.bytes": str(MIB),
        "retention.ms": str(DAY_MS),
        "file.delete.delay.ms": "0",
        "retention.hold.groups": group,
        "disk.full.policy": "drop-oldest",
    }
    special: Mapping[str, dict[str, str]] = {
        DEPARTURES: {"disk.full.priority": "0"},
        DELAYS: {"disk.full.priority": "10"},
        CANCELLATIONS: {
            "disk.full.policy": "refuse",
            "segment.bytes": str(256 * KIB),
            "retention.hold.max.bytes": str(MIB),
        },
    }
    return config | special[topic]


def in_a_week(flights: Sequence[Flight], end_ms: int) -> list[Written]:
    """Return the flights in the order of their time, the year's last one at the end of the week."""
    ordered = sorted(flights, key=lambda flight: (flight.timestamp, flight.row))
    first, last = ordered[0].timestamp, ordered[-1].timestamp
    begin_ms, span_ms = end_ms - WEEK_MS, max(1, last - first)
    written = []
    for flight in ordered:
        topic = topic_of(flight)
        partition = flight.partition if PARTITIONS[topic] > 1 else 0
        timestamp = begin_ms + (flight.timestamp - first) * WEEK_MS // span_ms
        written.append(Written(topic, flight._replace(partition=partition, timestamp=timestamp)))
    return written


def topic_of(flight: Flight) -> str:
    """Return the topic for what became of a flight."""
    if _NEVER_LEFT in flight.value:
        return CANCELLATIONS
    delay = _DELAY.search(flight.value)
    return DELAYS if delay is not None and int(delay[1]) >= LATE_MINUTES else DEPARTURES
