"""Lookups by time: an answer is that of a scan of the log as it was at some moment since the question."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

from triolog.protocol.types import TopicPartition

from ..history import Acknowledged, Event, LookedUp, Stored
from .facts import Anomaly, Facts


class _Scan:
    """What a scan of the log as it is at the end finds."""

    def __init__(self, stored: Stored) -> None:
        stamps = sorted([(record.offset, record.timestamp) for record in stored.records] + list(stored.markers))
        self._highest: list[int] = []
        self._places: list[tuple[int, int]] = []
        for offset, timestamp in stamps:
            if not self._highest or timestamp > self._highest[-1]:
                self._highest.append(timestamp)
                self._places.append((offset, timestamp))

    def first(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first one at or after a time."""
        at = bisect_left(self._highest, timestamp)
        return self._places[at] if at < len(self._places) else None


class _Ends:
    """How far a partition was known to reach, and since when."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ends: list[int] = []

    def take(self, at_ms: float, end: int) -> None:
        self._times.append(at_ms)
        self._ends.append(max(end, self._ends[-1] if self._ends else 0))

    def before(self, at_ms: float) -> int:
        at = bisect_left(self._times, at_ms)
        return self._ends[at - 1] if at else 0


def check_times(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    ends: dict[TopicPartition, _Ends] = defaultdict(_Ends)
    scans: dict[TopicPartition, _Scan] = {}
    for event in events:
        match event:
            case Acknowledged(base_offset=base) if base >= 0:
                ends[event.partition].take(event.at_ms, base + len(event.ids))
            case LookedUp() if _is_told_by_the_end(event.partition, facts):
                if event.partition not in scans:
                    scans[event.partition] = _Scan(facts.stored[event.partition, False].stored)
                yield from _check_answer(event, scans[event.partition], ends[event.partition].before(event.begun_ms))


def _is_told_by_the_end(partition: TopicPartition, facts: Facts) -> bool:
    """Whether what is there at the end tells what was there before."""
    found = facts.stored.get((partition, False))
    is_whole = found is not None and not found.stored.start_offset and partition not in facts.trimmed
    return is_whole and not facts.damaged.get(partition) and not facts.has_lost(partition) and not facts.is_compacted(partition)


def _check_answer(event: LookedUp, scan: _Scan, known_end: int) -> Iterator[Anomaly]:
    first = scan.first(event.timestamp)
    asked = f"{event.who} asked {event.partition} for {event.timestamp}"
    if event.offset < 0:
        if first is not None and first[0] < known_end:
            yield Anomaly("wrong time", f"{asked}, was answered none, and there was {first}")
        return
    told = event.offset, event.found_timestamp
    if first is None or event.offset != first[0] or event.found_timestamp not in (None, first[1]):
        yield Anomaly("wrong time", f"{asked}, was answered {told[0]} at {told[1]}, the first is {first}")
