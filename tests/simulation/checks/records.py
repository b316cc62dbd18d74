"""Records and offsets: what is unsent, twice there, in another order, read wrongly or passed over."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition

from tests.simulation import history as h
from tests.simulation.checks.facts import ENDLESS, Anomaly, Facts, Known


def check_offsets(events: Sequence[h.Event], facts: Facts) -> Iterator[Anomaly]:
    """One record at each offset, one offset for each record, whoever was told of it."""
    at: dict[TopicPartition, dict[int, str]] = {}
    where: dict[str, tuple[TopicPartition, int]] = {}
    for index, event in enumerate(events):
        if isinstance(event, h.Survived):
            _forget(at.get(event.partition, {}), where, range(dict(facts.ends[event.partition])[index], ENDLESS))
        if isinstance(event, h.Damaged | h.Survived):
            # In a compacted log only a gap says that something is lost before records that are there.
            for offset in event.offsets if isinstance(event, h.Damaged) else itertools.chain(*event.gaps):
                where.pop(at.get(event.partition, {}).get(offset, ""), None)
        if isinstance(event, h.Acknowledged) and facts.doubtful and facts.sent[event.ids[0]].producer in facts.doubtful:
            continue
        for partition, offset, record in _told(event):
            before = at.setdefault(partition, {}).setdefault(offset, record)
            if before != record:
                yield Anomaly("divergent", f"{partition}@{offset} was {before}, and is {record} for {event.who}")
            place = where.setdefault(record, (partition, offset))
            if place[1] != offset or place[0] != partition:
                yield Anomaly("duplicate", f"{record} is at {place[0]}@{place[1]} and at {partition}@{offset}")


def _forget(at: dict[int, str], where: dict[str, tuple[TopicPartition, int]], offsets: range) -> None:
    """What was there is lost: the offsets are given out again, the records may be sent again."""
    for offset in [offset for offset in at if offset in offsets]:
        where.pop(at.pop(offset), None)


def check_sequences(events: Sequence[h.Event], facts: Facts) -> Iterator[Anomaly]:
    """Who keeps batches in order is never told otherwise, where nothing has taken those that were before away: who is told so
    gives up everything, in other partitions too. Compaction leaves the last batch of a producer, and a start after an unclean
    stop knows no other one, as Kafka's: a batch before it that is sent again is then out of order."""
    damaged: set[TopicPartition] = set()
    holed: set[str] | None = None
    given_up: set[str] = set()
    killed = -1
    for index, event in enumerate(events):
        match event:
            case h.Lost():
                return
            case h.Cut():
                killed = index
            case h.Happened() if "kill" in event.what:
                killed = index
            case h.Damaged():
                damaged.add(event.partition)
            case h.GivenUp(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name):
                known = facts.sent[event.ids[0]]
                holed = _holed(events, facts) if holed is None else holed
                is_cleaned = known.index < killed and facts.is_compacted(known.partition)
                if known.partition in damaged or is_cleaned or _is_forgotten(known, facts):
                    given_up.add(known.producer)
                elif known.producer not in holed | given_up:
                    yield Anomaly("out of sequence", f"{event.who} was refused {event.ids}")


def _is_forgotten(known: Known, facts: Facts) -> bool:
    """Whether all that a producer sent to a partition before may be gone. A start after an unclean stop then finds only the
    marker of its transaction, and knows its epoch but no sequence, as Kafka's does."""
    where = known.partition
    if any(setting.config.keys() & {"retention.ms", "retention.bytes"} for setting in facts.settings.get(where.topic, ())):
        return True
    trimmed = facts.trimmed.get(where, 0)
    before = (each for each in facts.acknowledged[where] if facts.sent[each].producer == known.producer)
    return bool(trimmed) and all(facts.acknowledged[where][each] < trimmed for each in before)


def _holed(events: Sequence[h.Event], facts: Facts) -> set[str]:
    """Producers of whom a batch in some partition is nowhere, and a later one there. Where the first could not be written, the
    log did not know them when the next one came, and took it, as Kafka's does. Of several that were not on the device a power
    cut may take one and leave the next. They give up everything with the one that is not there."""
    found = {record for event in events for _, _, record in _told(event)}
    missing: set[tuple[str, TopicPartition]] = set()
    holed: set[str] = set()
    for record, known in facts.sent.items():
        place = known.producer, known.partition
        if record not in found:
            missing.add(place)
        elif place in missing:
            holed.add(known.producer)
    return holed


def _told(event: h.Event) -> Iterator[tuple[TopicPartition, int, str]]:
    match event:
        case h.Acknowledged(base_offset=base) if base >= 0:
            yield from ((event.partition, offset, record) for offset, record in enumerate(event.ids, base))
        case h.Polled() | h.Stored():
            yield from ((event.partition, found.offset, found.id) for found in event.records)


def check_polls(events: Sequence[h.Event], facts: Facts) -> Iterator[Anomaly]:
    """A reader goes on where it was, sees what is there, and of transactions only what was committed."""
    positions: dict[tuple[str, TopicPartition], int] = {}
    for index, event in enumerate(events):
        if isinstance(event, h.Moved):
            positions[event.who, event.partition] = event.position
        if not isinstance(event, h.Polled):
            continue
        place = f"{event.who} in {event.partition}"
        if event.transaction is None:
            expected = positions.get((event.who, event.partition), event.position)
            if event.position != expected:
                yield Anomaly("nonmonotonic poll", f"{place} goes on at {event.position}, was at {expected}")
            positions[event.who, event.partition] = event.next_position
        offsets = [record.offset for record in event.records]
        ascends = all(a < b for a, b in itertools.pairwise(offsets))
        if not ascends or (offsets and not event.position <= offsets[0] <= offsets[-1] < event.next_position):
            yield Anomaly("nonmonotonic poll", f"{place} reads {offsets} between {event.position} and {event.next_position}")
        yield from _unsent(event.records, facts, event.partition)
        yield from _skipped(index, event, facts)
        if event.is_committed:
            for record in event.records:
                if record.id in facts.sent and facts.outcome(record.id) is False:
                    yield Anomaly(
                        "aborted read", f"{place}: {record.id}@{record.offset} of {facts.sent[record.id].transaction}"
                    )


def _skipped(index: int, event: h.Polled, facts: Facts) -> Iterator[Anomaly]:
    stored = facts.stored.get((event.partition, event.is_committed))
    if stored is None:
        return
    there = stored.between(event.position, min(event.next_position, facts.kept_end(event.partition, index)))
    read = {record.offset for record in event.records} if there else ()
    for record in there:
        is_undecided = event.is_committed and facts.is_shaken(record.id)
        if record.offset not in read and not is_undecided:
            yield Anomaly("skipped", f"{event.who} in {event.partition}: {record.id}@{record.offset}")


def _unsent(records: Iterable[h.Found], facts: Facts, partition: TopicPartition) -> Iterator[Anomaly]:
    for record in records:
        known = facts.sent.get(record.id)
        if known is None or known.partition != partition or known.sent.timestamp not in (record.timestamp, h.ON_ARRIVAL):
            yield Anomaly("unsent", f"{partition}: {record}, was sent as {known}")
        elif record.id in facts.refused:
            yield Anomaly("unsent", f"{partition}: {record}, which its client had refused")


def check_stored(_: Sequence[h.Event], facts: Facts) -> Iterator[Anomaly]:
    """What is there at the end was sent, in this order, and not aborted."""
    for (partition, is_committed), found in facts.stored.items():
        stored = found.stored
        yield from _unsent(stored.records, facts, partition)
        yield from _reordered(stored, facts)
        if is_committed:
            for record in stored.records:
                if record.id in facts.sent and facts.outcome(record.id) is False:
                    yield Anomaly("aborted read", f"{partition}: {record.id}@{record.offset} at the end")


def _reordered(stored: h.Stored, facts: Facts) -> Iterator[Anomaly]:
    latest: dict[str, int] = {}
    for record in stored.records:
        known = facts.sent.get(record.id)
        if known is None or (record.id in facts.staged and facts.torn.get(stored.partition)):
            continue
        before = latest.get(known.producer, -1)
        if known.number < before:
            yield Anomaly("reordered", f"{record.id}@{record.offset} of {stored.partition} is behind what was sent later")
        latest[known.producer] = max(before, known.number)


class _Scan:
    """What a scan of the log as it is at the end finds."""

    def __init__(self, stored: h.Stored) -> None:
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


def check_times(events: Sequence[h.Event], facts: Facts) -> Iterator[Anomaly]:
    ends: dict[TopicPartition, _Ends] = defaultdict(_Ends)
    scans: dict[TopicPartition, _Scan] = {}
    for event in events:
        match event:
            case h.Acknowledged(base_offset=base) if base >= 0:
                ends[event.partition].take(event.at_ms, base + len(event.ids))
            case h.LookedUp() if _is_told_by_the_end(event.partition, facts):
                if event.partition not in scans:
                    scans[event.partition] = _Scan(facts.stored[event.partition, False].stored)
                yield from _check_answer(event, scans[event.partition], ends[event.partition].before(event.begun_ms))


def _is_told_by_the_end(partition: TopicPartition, facts: Facts) -> bool:
    """Whether what is there at the end tells what was there before."""
    found = facts.stored.get((partition, False))
    is_whole = found is not None and not found.stored.start_offset and partition not in facts.trimmed
    return is_whole and not facts.damaged.get(partition) and not facts.has_lost(partition) and not facts.is_compacted(partition)


def _check_answer(event: h.LookedUp, scan: _Scan, known_end: int) -> Iterator[Anomaly]:
    first = scan.first(event.timestamp)
    asked = f"{event.who} asked {event.partition} for {event.timestamp}"
    if event.offset < 0:
        if first is not None and first[0] < known_end:
            yield Anomaly("wrong time", f"{asked}, was answered none, and there was {first}")
        return
    told = event.offset, event.found_timestamp
    if first is None or event.offset != first[0] or event.found_timestamp not in (None, first[1]):
        yield Anomaly("wrong time", f"{asked}, was answered {told[0]} at {told[1]}, the first is {first}")
