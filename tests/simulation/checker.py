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
| zombie | a record that a producer has sent after somebody got a higher epoch of its transactional id is acknowledged |
| inexact pipe | a copy of what was not committed, or of the input before the pipe's offset too few or too many |
| wrong time | an answer to offsets-for-times that no scan between the question and the answer would give |
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from triolog.protocol.types import TopicPartition

from .facts import ENDLESS, Anomaly, Facts
from .history import (
    Acknowledged,
    CommitsOffset,
    Damaged,
    Ended,
    Event,
    Found,
    Introduced,
    LookedUp,
    Lost,
    Moved,
    OffsetCommitted,
    OffsetFetched,
    Polled,
    Send,
    Stored,
    Survived,
    Wrong,
)
from .kept import missing, refusals, wrong_starts

COPY: Final = "copy of "


def check(events: Iterable[Event]) -> list[Anomaly]:
    """Every anomaly; none: every promise was kept."""
    events = list(events)
    facts = Facts.of(events)
    found: list[Anomaly] = []
    for part in (_offsets, _polls, _stored, missing, refusals, _transactions, _flows, _group_offsets, _zombies, _pipes, _times):
        found += part(events, facts)
    found += [Anomaly(event.kind, event.detail) for event in events if isinstance(event, Wrong)]
    return found + facts.broken_promises


# ---- records and offsets -----------------------------------------------------------------------------------------------------


def _offsets(events: list[Event], facts: Facts) -> Iterator[Anomaly]:
    """One record at each offset, one offset for each record, whoever was told of it."""
    at: dict[tuple[TopicPartition, int], str] = {}
    where: dict[str, tuple[TopicPartition, int]] = {}
    for index, event in enumerate(events):
        if isinstance(event, Survived):
            _forget(at, where, event.partition, range(dict(facts.ends[event.partition])[index], ENDLESS))
        elif isinstance(event, Damaged):
            for offset in event.offsets:
                where.pop(at.get((event.partition, offset), ""), None)
        for partition, offset, record in _told(event, facts):
            before = at.setdefault((partition, offset), record)
            if before != record:
                yield Anomaly("divergent", f"{partition}@{offset} was {before}, and is {record} for {event.who}")
            place = where.setdefault(record, (partition, offset))
            if place != (partition, offset):
                yield Anomaly("duplicate", f"{record} is at {place[0]}@{place[1]} and at {partition}@{offset}")


def _forget(
    at: dict[tuple[TopicPartition, int], str],
    where: dict[str, tuple[TopicPartition, int]],
    partition: TopicPartition,
    offsets: range,
) -> None:
    """What was there is lost: the offsets are given out again, the records may be sent again."""
    for place in [place for place in at if place[0] == partition and place[1] in offsets]:
        where.pop(at.pop(place), None)


def _told(event: Event, facts: Facts) -> Iterator[tuple[TopicPartition, int, str]]:
    match event:
        case Acknowledged(base_offset=base) if base >= 0:
            for offset, record in enumerate(event.ids, base):
                if facts.sent[record].producer not in facts.doubtful:
                    yield event.partition, offset, record
        case Polled() | Stored():
            yield from ((event.partition, found.offset, found.id) for found in event.records)


def _polls(events: list[Event], facts: Facts) -> Iterator[Anomaly]:
    positions: dict[tuple[str, TopicPartition], int] = {}
    for index, event in enumerate(events):
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
        yield from _skipped(index, event, facts)
        if event.is_committed:
            for record in event.records:
                if record.id in facts.sent and facts.outcome(record.id) is False:
                    yield Anomaly(
                        "aborted read", f"{place}: {record.id}@{record.offset} of {facts.sent[record.id].transaction}"
                    )


def _skipped(index: int, event: Polled, facts: Facts) -> Iterator[Anomaly]:
    stored = facts.stored.get((event.partition, event.is_committed))
    if stored is None:
        return
    read = {record.offset for record in event.records}
    end = min(event.next_position, facts.kept_end(event.partition, index))
    for record in stored.records:
        is_undecided = event.is_committed and facts.is_shaken(record.id)
        if event.position <= record.offset < end and record.offset not in read and not is_undecided:
            yield Anomaly("skipped", f"{event.who} in {event.partition}: {record.id}@{record.offset}")


def _unsent(records: Iterable[Found], facts: Facts, partition: TopicPartition) -> Iterator[Anomaly]:
    for record in records:
        known = facts.sent.get(record.id)
        if known is None or known.partition != partition or known.sent.timestamp != record.timestamp:
            yield Anomaly("unsent", f"{partition}: {record}, was sent as {known}")
        elif record.id in facts.refused:
            yield Anomaly("unsent", f"{partition}: {record}, which its client had refused")


def _stored(_: list[Event], facts: Facts) -> Iterator[Anomaly]:
    for (partition, is_committed), stored in facts.stored.items():
        yield from _unsent(stored.records, facts, partition)
        yield from _reordered(stored, facts)
        yield from wrong_starts(stored, facts)
        if is_committed:
            for record in stored.records:
                if record.id in facts.sent and facts.outcome(record.id) is False:
                    yield Anomaly("aborted read", f"{partition}: {record.id}@{record.offset} at the end")


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


# ---- transactions ------------------------------------------------------------------------------------------------------------


def _transactions(_: list[Event], facts: Facts) -> Iterator[Anomaly]:
    """All records of a transaction are visible at the end, or none."""
    visible = {record.id for (_, is_committed), stored in facts.stored.items() if is_committed for record in stored.records}
    there = {record.id for (_, is_committed), stored in facts.stored.items() if not is_committed for record in stored.records}
    members: dict[str, list[str]] = defaultdict(list)
    for record, known in facts.sent.items():
        if known.transaction is not None and record in there:
            members[known.transaction].append(record)
    for transaction, records in members.items():
        seen = [record for record in records if record in visible]
        if transaction not in facts.shaken and seen and len(seen) != len(records):
            yield Anomaly("intermediate read", f"{transaction}: {seen} of {records}")


def _flows(events: list[Event], facts: Facts) -> Iterator[Anomaly]:
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
    facts = Facts.of(events)
    orders: set[tuple[str, str]] = set()
    for (_, is_committed), stored in facts.stored.items():
        first: dict[str, int] = {}
        for record in stored.records if is_committed else ():
            transaction = facts.sent[record.id].transaction
            if transaction is not None:
                first.setdefault(transaction, record.offset)
        orders.update(itertools.combinations(sorted(first, key=lambda each: first[each]), 2))
    return sum((b, a) in orders for a, b in orders) // 2


def _zombies(events: list[Event], facts: Facts) -> Iterator[Anomaly]:
    """Who sends in the name of a transactional id after somebody was introduced with a higher epoch is not acknowledged."""
    newest: dict[str, tuple[int, int]] = {}
    introduced: dict[str, Introduced] = {}
    late: set[str] = set()
    for event in events:
        match event:
            case Lost():
                newest.clear()
            case Introduced():
                introduced[event.producer] = event
                newest[event.transactional_id] = max(newest.get(event.transactional_id, (-1, -1)), _identity(event))
            case Send() if (who := introduced.get(event.producer)) is not None and _identity(who) < newest.get(
                who.transactional_id, (-1, -1)
            ):
                late.update(record.id for record in event.records)
            case Acknowledged():
                for record in event.ids:
                    if record in late:
                        yield Anomaly("zombie", f"{record} of {facts.sent[record].producer}, which was fenced")


def _identity(event: Introduced) -> tuple[int, int]:
    return event.producer_id, event.epoch


# ---- groups ------------------------------------------------------------------------------------------------------------------


def _group_offsets(events: list[Event], facts: Facts) -> Iterator[Anomaly]:
    """What a group has committed is what it committed last, or what it tried to since without an answer."""
    possible: dict[tuple[str, TopicPartition], set[int]] = {}
    kept: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        match event:
            case Lost():
                for place in possible:
                    possible[place] |= _since(kept[place], event)
            case CommitsOffset():
                if event.transaction is None or facts.outcomes.get(event.transaction) is not False:
                    possible.setdefault((event.group, event.partition), {-1}).add(event.offset)
            case OffsetCommitted(is_kept=True):
                possible[event.group, event.partition] = {event.offset}
                kept[event.group, event.partition].append((event.at_ms, event.offset))
            case Ended(is_committed=True):
                for commit in events:
                    if isinstance(commit, CommitsOffset) and commit.transaction == event.transaction:
                        possible[commit.group, commit.partition] = {commit.offset}
                        kept[commit.group, commit.partition].append((event.at_ms, commit.offset))
            case OffsetFetched():
                allowed = possible.get((event.group, event.partition), {-1})
                if event.offset not in allowed:
                    said = f"group {event.group} at {event.partition}: {event.offset}, may be {sorted(allowed)}"
                    yield Anomaly("offset went back", said)


def _since(kept: list[tuple[int, int]], loss: Lost) -> set[int]:
    """What a group may be back at: what it had committed last when everything was on the device, and what came since."""
    sure = [slot for slot, (at_ms, _) in enumerate(kept) if loss.window_ms is not None and at_ms <= loss.at_ms - loss.window_ms]
    return {offset for _, offset in kept[sure[-1] :]} if sure else {-1, *(offset for _, offset in kept)}


def _pipes(events: list[Event], facts: Facts) -> Iterator[Anomaly]:
    """What a pipe has read in committed transactions is copied, once, and nothing else is; a loss may take some."""
    if facts.losses:
        return
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
    damaged = {known.transaction for record, known in facts.sent.items() if facts.hits_damage(record)}
    for transaction, originals in read.items():
        if (facts.outcomes.get(transaction) or transaction in by) and transaction not in damaged:
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


def _times(events: list[Event], facts: Facts) -> Iterator[Anomaly]:
    """An answer is that of a scan of the log as it was at some moment since the question."""
    ends: dict[TopicPartition, int] = defaultdict(int)
    ends_at: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        match event:
            case Acknowledged(base_offset=base) if base >= 0:
                ends[event.partition] = max(ends[event.partition], base + len(event.ids))
                ends_at[event.partition].append((event.at_ms, ends[event.partition]))
            case LookedUp() if _is_told_by_the_end(event.partition, facts):
                yield from _check_answer(event, facts, ends_at[event.partition])


def _is_told_by_the_end(partition: TopicPartition, facts: Facts) -> bool:
    """Whether what is there at the end tells what was there before."""
    stored = facts.stored.get((partition, False))
    is_whole = stored is not None and not stored.start_offset and not facts.damaged.get(partition)
    return is_whole and not facts.has_lost(partition) and partition not in facts.trimmed


def _check_answer(event: LookedUp, facts: Facts, ends_at: list[tuple[int, int]]) -> Iterator[Anomaly]:
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
