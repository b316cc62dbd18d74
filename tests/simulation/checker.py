"""What Kafka's promises mean for a history: every anomaly in it, named as Jepsen's Kafka and Elle name theirs.

| anomaly | is |
|---|---|
| lost | acknowledged, of no aborted transaction, and nowhere at the end, though nothing was trimmed there |
| unsent | what nobody sent, or with another timestamp |
| duplicate | one record at two offsets |
| divergent | one offset that was two records at different times |
| reordered | a producer's records in another order than it sent them |
| nonmonotonic poll | a reader that goes on before where it was, or whose records do not ascend |
| skipped | a reader that passes over a record that was there, or becomes visible later |
| aborted read (G1a) | a reader of committed records sees one of a transaction that was aborted |
| intermediate read (G1b) | it sees, or finds at the end, some records of a transaction and not the others |
| circular information flow (G1c) | transactions that have read each other's records |
| write cycle (G0) | transactions whose records stand in different orders in two partitions: Kafka allows it, it is counted |
| offset went back | a group's committed offset is not what was committed last, nor anything that may have been |
| out of sequence | an idempotent producer that kept its batches in order is told that they are not |
| zombie | a record that a producer has sent after somebody got a higher epoch of its transactional id is acknowledged |
| inexact pipe | a copy of what was not committed, or of the input before the pipe's offset too few or too many |
| wrong time | an answer to offsets-for-times that no scan between the question and the answer would give |
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition

from .history import (
    Acknowledged,
    CommitsOffset,
    Ended,
    Event,
    Found,
    GivenUp,
    Introduced,
    LookedUp,
    Moved,
    OffsetCommitted,
    OffsetFetched,
    Polled,
    Send,
    Sent,
    Stored,
    Trims,
)

COPY: Final = "copy of "


class Anomaly(NamedTuple):
    kind: str
    detail: str


@attrs.frozen
class _Known:
    """A record that was sent."""

    sent: Sent
    partition: TopicPartition
    producer: str
    number: int
    transaction: str | None


@attrs.define(eq=False)
class _Facts:
    """What a history says, put in order."""

    sent: dict[str, _Known] = attrs.field(factory=dict)
    acknowledged: dict[str, int] = attrs.field(factory=dict)
    refused: set[str] = attrs.field(factory=set)
    outcomes: dict[str, bool | None] = attrs.field(factory=dict)
    trimmed: dict[TopicPartition, int] = attrs.field(factory=dict)
    stored: dict[tuple[TopicPartition, bool], Stored] = attrs.field(factory=dict)

    def outcome(self, record: str) -> bool | None:
        """Whether it is in no transaction or a committed one; None: nobody knows."""
        transaction = self.sent[record].transaction
        return True if transaction is None else self.outcomes.get(transaction)

    @classmethod
    def of(cls, events: Iterable[Event]) -> _Facts:
        facts = cls()
        for event in events:
            match event:
                case Send():
                    for record in event.records:
                        known = _Known(record, event.partition, event.producer, len(facts.sent), event.transaction)
                        assert record.id not in facts.sent, f"{record.id} is sent twice"
                        facts.sent[record.id] = known
                    if event.transaction is not None:
                        facts.outcomes.setdefault(event.transaction, None)
                case Acknowledged():
                    facts.acknowledged.update(zip(event.ids, itertools.count(event.base_offset), strict=False))
                case GivenUp(is_refused=True):
                    facts.refused.update(event.ids)
                case Ended():
                    facts.outcomes[event.transaction] = event.is_committed
                case Trims():
                    facts.trimmed[event.partition] = max(facts.trimmed.get(event.partition, 0), event.before_offset)
                case Stored():
                    facts.stored[event.partition, event.is_committed] = event
        return facts


def check(events: Iterable[Event]) -> list[Anomaly]:
    """Every anomaly; none: every promise was kept."""
    events = list(events)
    facts = _Facts.of(events)
    found: list[Anomaly] = []
    for part in (_offsets, _sequences, _polls, _stored, _transactions, _flows, _group_offsets, _zombies, _pipes, _times):
        found += part(events, facts)
    return found


# ---- records and offsets -----------------------------------------------------------------------------------------------------


def _offsets(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    """One record at each offset, one offset for each record, whoever was told of it."""
    at: dict[tuple[TopicPartition, int], str] = {}
    where: dict[str, tuple[TopicPartition, int]] = {}
    for event in events:
        for partition, offset, record in _told(event):
            before = at.setdefault((partition, offset), record)
            if before != record:
                yield Anomaly("divergent", f"{partition}@{offset} was {before}, and is {record} for {event.who}")
            place = where.setdefault(record, (partition, offset))
            if place != (partition, offset):
                yield Anomaly("duplicate", f"{record} is at {place[0]}@{place[1]} and at {partition}@{offset}")


def _sequences(events: list[Event], _: _Facts) -> Iterator[Anomaly]:
    for event in events:
        if isinstance(event, GivenUp) and event.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name:
            yield Anomaly("out of sequence", f"{event.who} was refused {event.ids}")


def _told(event: Event) -> Iterator[tuple[TopicPartition, int, str]]:
    match event:
        case Acknowledged(base_offset=base) if base >= 0:
            yield from ((event.partition, offset, record) for offset, record in enumerate(event.ids, base))
        case Polled() | Stored():
            yield from ((event.partition, found.offset, found.id) for found in event.records)


def _polls(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
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


def _skipped(event: Polled, facts: _Facts) -> Iterator[Anomaly]:
    stored = facts.stored.get((event.partition, event.is_committed))
    if stored is None:
        return
    read = {record.offset for record in event.records}
    for record in stored.records:
        if event.position <= record.offset < event.next_position and record.offset not in read:
            yield Anomaly("skipped", f"{event.who} in {event.partition}: {record.id}@{record.offset}")


def _unsent(records: Iterable[Found], facts: _Facts, partition: TopicPartition) -> Iterator[Anomaly]:
    for record in records:
        known = facts.sent.get(record.id)
        if known is None or known.partition != partition or known.sent.timestamp != record.timestamp:
            yield Anomaly("unsent", f"{partition}: {record}, was sent as {known}")
        elif record.id in facts.refused:
            yield Anomaly("unsent", f"{partition}: {record}, which its client had refused")


def _stored(_: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    for (partition, is_committed), stored in facts.stored.items():
        yield from _unsent(stored.records, facts, partition)
        yield from _reordered(stored, facts)
        there = {record.id for record in stored.records}
        if stored.start_offset > facts.trimmed.get(partition, 0):
            yield Anomaly("lost", f"{partition} begins at {stored.start_offset}, asked was {facts.trimmed.get(partition, 0)}")
        for record, offset in facts.acknowledged.items():
            if facts.sent[record].partition != partition or record in there or 0 <= offset < stored.start_offset:
                continue
            if not is_committed or facts.outcome(record) is True:
                yield Anomaly("lost", f"{record}@{offset} of {partition}, for a reader of {_kind(is_committed)}")
        if is_committed:
            for record in stored.records:
                if record.id in facts.sent and facts.outcome(record.id) is False:
                    yield Anomaly("aborted read", f"{partition}: {record.id}@{record.offset} at the end")


def _kind(is_committed: bool) -> str:
    return "committed records" if is_committed else "everything"


def _reordered(stored: Stored, facts: _Facts) -> Iterator[Anomaly]:
    latest: dict[str, int] = {}
    for record in stored.records:
        known = facts.sent.get(record.id)
        if known is None:
            continue
        before = latest.get(known.producer, -1)
        if known.number < before:
            yield Anomaly("reordered", f"{record.id}@{record.offset} of {stored.partition} is behind what was sent later")
        latest[known.producer] = max(before, known.number)


# ---- transactions ------------------------------------------------------------------------------------------------------------


def _transactions(_: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    """All records of a transaction are visible at the end, or none."""
    visible = {record.id for (_, is_committed), stored in facts.stored.items() if is_committed for record in stored.records}
    there = {record.id for (_, is_committed), stored in facts.stored.items() if not is_committed for record in stored.records}
    members: dict[str, list[str]] = defaultdict(list)
    for record, known in facts.sent.items():
        if known.transaction is not None and record in there:
            members[known.transaction].append(record)
    for transaction, records in members.items():
        seen = [record for record in records if record in visible]
        if seen and len(seen) != len(records):
            yield Anomaly("intermediate read", f"{transaction}: {seen} of {records}")


def _flows(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    """A cycle of transactions each of which has read from the one before."""
    read: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if isinstance(event, Polled) and event.transaction is not None and facts.outcomes.get(event.transaction):
            for record in event.records:
                known = facts.sent.get(record.id)
                if known is not None and known.transaction not in (None, event.transaction):
                    read[event.transaction].add(str(known.transaction))
    for cycle in _cycles(read):
        yield Anomaly("circular information flow", " read from ".join(cycle))


def _cycles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """One cycle for each node that is found on one."""
    done: set[str] = set()
    for first in edges:
        path: list[str] = []
        stack = [(first, False)]
        while stack:
            node, is_left = stack.pop()
            if is_left:
                path.pop()
                done.add(node)
            elif node in path:
                yield [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                stack.append((node, True))
                stack += [(other, False) for other in sorted(edges.get(node, ()))]


def write_cycles(events: Iterable[Event]) -> int:
    """Pairs of committed transactions whose records are in one order here and in the other one there, which Kafka allows."""
    facts = _Facts.of(events)
    orders: set[tuple[str, str]] = set()
    for (_, is_committed), stored in facts.stored.items():
        first: dict[str, int] = {}
        for record in stored.records if is_committed else ():
            transaction = facts.sent[record.id].transaction
            if transaction is not None:
                first.setdefault(transaction, record.offset)
        orders.update(itertools.combinations(sorted(first, key=lambda each: first[each]), 2))
    return sum((b, a) in orders for a, b in orders) // 2


def _zombies(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    """Who sends in the name of a transactional id after somebody was introduced with a higher epoch is not acknowledged."""
    newest: dict[str, tuple[int, int]] = {}
    introduced: dict[str, Introduced] = {}
    late: set[str] = set()
    for event in events:
        match event:
            case Introduced():
                introduced[event.producer] = event
                newest[event.transactional_id] = max(newest.get(event.transactional_id, (-1, -1)), _identity(event))
            case Send() if (who := introduced.get(event.producer)) is not None and _identity(who) < newest[
                who.transactional_id
            ]:
                late.update(record.id for record in event.records)
            case Acknowledged():
                for record in event.ids:
                    if record in late:
                        yield Anomaly("zombie", f"{record} of {facts.sent[record].producer}, which was fenced")


def _identity(event: Introduced) -> tuple[int, int]:
    return event.producer_id, event.epoch


# ---- groups ------------------------------------------------------------------------------------------------------------------


def _group_offsets(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    """What a group has committed is what it committed last, or what it tried to since without an answer."""
    possible: dict[tuple[str, TopicPartition], set[int]] = {}
    for event in events:
        match event:
            case CommitsOffset():
                if event.transaction is None or facts.outcomes.get(event.transaction) is not False:
                    possible.setdefault((event.group, event.partition), {-1}).add(event.offset)
            case OffsetCommitted(is_kept=True):
                possible[event.group, event.partition] = {event.offset}
            case Ended(is_committed=True):
                for commit in events:
                    if isinstance(commit, CommitsOffset) and commit.transaction == event.transaction:
                        possible[commit.group, commit.partition] = {commit.offset}
            case OffsetFetched():
                allowed = possible.get((event.group, event.partition), {-1})
                if event.offset not in allowed:
                    said = f"group {event.group} at {event.partition}: {event.offset}, may be {sorted(allowed)}"
                    yield Anomaly("offset went back", said)


def _pipes(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    """What a pipe has read in committed transactions is copied, once, and nothing else is."""
    read: dict[str, tuple[str, ...]] = {}
    for event in events:
        if isinstance(event, Polled) and event.transaction is not None:
            read[event.transaction] = tuple(record.id for record in event.records)
    copies: dict[str, list[str]] = defaultdict(list)
    by: set[str] = set()
    for (partition, is_committed), stored in facts.stored.items():
        for record in stored.records if is_committed else ():
            if record.id.startswith(COPY):
                original, transaction = copied(record.id)
                copies[original].append(f"{partition}@{record.offset}")
                by.add(transaction)
                if original not in read.get(transaction, ()):
                    yield Anomaly("inexact pipe", f"{record} was never read")
    for original, places in copies.items():
        if len(places) > 1:
            yield Anomaly("inexact pipe", f"{original} was copied to {places}")
    for transaction, originals in read.items():
        if facts.outcomes.get(transaction) or transaction in by:
            for original in originals:
                if original not in copies:
                    yield Anomaly("inexact pipe", f"{original}, read by {transaction}, was not copied")


def copy_id(original: str, transaction: str) -> str:
    """The id of a copy that a pipe makes in a transaction."""
    return f"{COPY}{original} by {transaction}"


def copied(copy: str) -> tuple[str, str]:
    """Of what a copy is, and by which transaction."""
    original, _, transaction = copy.removeprefix(COPY).rpartition(" by ")
    return original, transaction


# ---- times -------------------------------------------------------------------------------------------------------------------


def _times(events: list[Event], facts: _Facts) -> Iterator[Anomaly]:
    """An answer is that of a scan of the log as it was at some moment since the question."""
    ends: dict[TopicPartition, int] = defaultdict(int)
    ends_at: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        match event:
            case Acknowledged(base_offset=base) if base >= 0:
                ends[event.partition] = max(ends[event.partition], base + len(event.ids))
                ends_at[event.partition].append((event.at_ms, ends[event.partition]))
            case LookedUp() if event.partition not in facts.trimmed and (event.partition, False) in facts.stored:
                yield from _check_answer(event, facts, ends_at[event.partition])


def _check_answer(event: LookedUp, facts: _Facts, ends_at: list[tuple[int, int]]) -> Iterator[Anomaly]:
    stored = facts.stored[event.partition, False]
    stamps = sorted([(record.offset, record.timestamp) for record in stored.records] + list(stored.markers))
    first = next((stamp for stamp in stamps if stamp[1] >= event.timestamp), None)
    known_end = max((end for at_ms, end in ends_at if at_ms < event.begun_ms), default=0)
    asked = f"{event.who} asked {event.partition} for {event.timestamp}"
    if event.offset < 0:
        if first is not None and first[0] < known_end:
            yield Anomaly("wrong time", f"{asked}, was answered none, and there was {first}")
    elif first != (event.offset, event.found_timestamp):
        yield Anomaly("wrong time", f"{asked}, was answered {event.offset} at {event.found_timestamp}, the first is {first}")
