"""Records and offsets: what is lost, unsent, twice there, in another order, read wrongly or passed over."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition

from ..history import Acknowledged, Event, Found, GivenUp, Moved, Polled, Stored
from .facts import Anomaly, Facts


def check_offsets(events: Sequence[Event], _: Facts) -> Iterator[Anomaly]:
    """One record at each offset, one offset for each record, whoever was told of it."""
    at: dict[TopicPartition, dict[int, str]] = {}
    where: dict[str, tuple[TopicPartition, int]] = {}
    for event in events:
        for partition, offset, record in _told(event):
            before = at.setdefault(partition, {}).setdefault(offset, record)
            if before != record:
                yield Anomaly("divergent", f"{partition}@{offset} was {before}, and is {record} for {event.who}")
            place = where.setdefault(record, (partition, offset))
            if place[1] != offset or place[0] != partition:
                yield Anomaly("duplicate", f"{record} is at {place[0]}@{place[1]} and at {partition}@{offset}")


def check_sequences(events: Sequence[Event], _: Facts) -> Iterator[Anomaly]:
    """Who keeps batches in order is never told otherwise."""
    for event in events:
        if isinstance(event, GivenUp) and event.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name:
            yield Anomaly("out of sequence", f"{event.who} was refused {event.ids}")


def _told(event: Event) -> Iterator[tuple[TopicPartition, int, str]]:
    match event:
        case Acknowledged(base_offset=base) if base >= 0:
            yield from ((event.partition, offset, record) for offset, record in enumerate(event.ids, base))
        case Polled() | Stored():
            yield from ((event.partition, found.offset, found.id) for found in event.records)


def check_polls(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """A reader goes on where it was, sees what is there, and of transactions only what was committed."""
    positions: dict[tuple[str, TopicPartition], int] = {}
    for event in events:
        if isinstance(event, Moved):
            positions[event.who, event.partition] = event.position
        if not isinstance(event, Polled):
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
        yield from _skipped(event, facts)
        if event.is_committed:
            for record in event.records:
                if record.id in facts.sent and facts.outcome(record.id) is False:
                    yield Anomaly(
                        "aborted read", f"{place}: {record.id}@{record.offset} of {facts.sent[record.id].transaction}"
                    )


def _skipped(event: Polled, facts: Facts) -> Iterator[Anomaly]:
    stored = facts.stored.get((event.partition, event.is_committed))
    if stored is None:
        return
    there = stored.between(event.position, event.next_position)
    read = {record.offset for record in event.records} if there else ()
    for record in there:
        if record.offset not in read:
            yield Anomaly("skipped", f"{event.who} in {event.partition}: {record.id}@{record.offset}")


def _unsent(records: Iterable[Found], facts: Facts, partition: TopicPartition) -> Iterator[Anomaly]:
    for record in records:
        known = facts.sent.get(record.id)
        if known is None or known.partition != partition or known.sent.timestamp != record.timestamp:
            yield Anomaly("unsent", f"{partition}: {record}, was sent as {known}")
        elif record.id in facts.refused:
            yield Anomaly("unsent", f"{partition}: {record}, which its client had refused")


def check_stored(_: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """What was promised is there at the end, in order, and nothing else is."""
    for (partition, is_committed), found in facts.stored.items():
        stored = found.stored
        yield from _unsent(stored.records, facts, partition)
        yield from _reordered(stored, facts)
        if partition not in facts.expired and stored.start_offset > facts.trimmed.get(partition, 0):
            yield Anomaly("lost", f"{partition} begins at {stored.start_offset}, asked was {facts.trimmed.get(partition, 0)}")
        yield from _lost(stored, facts)
        if is_committed:
            for record in stored.records:
                if record.id in facts.sent and facts.outcome(record.id) is False:
                    yield Anomaly("aborted read", f"{partition}: {record.id}@{record.offset} at the end")


def _lost(stored: Stored, facts: Facts) -> Iterator[Anomaly]:
    there = {record.id for record in stored.records}
    last = _last_of_keys(stored, facts) if stored.partition in facts.compacted else {}
    expired = facts.expired.get(stored.partition)
    for record, offset in facts.acknowledged[stored.partition].items():
        if record in there or (stored.is_committed and facts.outcome(record) is not True):
            continue
        if offset < 0 and (last or expired is not None):
            continue  # nobody knows where it was
        if 0 <= offset < stored.start_offset and (expired is None or facts.sent[record].sent.timestamp < expired):
            continue
        if 0 <= offset < last.get(facts.sent[record].sent.key, 0):
            continue
        yield Anomaly("lost", f"{record}@{offset} of {stored.partition}, for a reader of {_kind(stored.is_committed)}")


def _last_of_keys(stored: Stored, facts: Facts) -> dict[str, int]:
    """Offset of the last record of each key."""
    known = ((facts.sent.get(record.id), record.offset) for record in stored.records)
    return {sent.sent.key: offset for sent, offset in known if sent is not None}


def _kind(is_committed: bool) -> str:
    return "committed records" if is_committed else "everything"


def _reordered(stored: Stored, facts: Facts) -> Iterator[Anomaly]:
    latest: dict[str, int] = {}
    for record in stored.records:
        known = facts.sent.get(record.id)
        if known is None:
            continue
        before = latest.get(known.producer, -1)
        if known.number < before:
            yield Anomaly("reordered", f"{record.id}@{record.offset} of {stored.partition} is behind what was sent later")
        latest[known.producer] = max(before, known.number)
