"""Transactions: whole or not at all, no cycles of information, nobody who was fenced."""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from triolog.protocol.types import TopicPartition

from ..history import Acknowledged, Event, Introduced, Lost, Polled, Send
from .facts import Anomaly, Facts


def check_transactions(_: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """All records of a transaction are visible at the end, or none."""
    visible = {record.id for stored in facts.at_the_end(committed=True) for record in stored.records}
    there = {record.id for stored in facts.at_the_end(committed=False) for record in stored.records}
    members: dict[str, list[str]] = defaultdict(list)
    for record, known in facts.sent.items():
        if known.transaction is not None and record in there:
            members[known.transaction].append(record)
    for transaction, records in members.items():
        seen = [record for record in records if record in visible]
        if transaction not in facts.shaken and seen and len(seen) != len(records):
            yield Anomaly("intermediate read", f"{transaction}: {seen} of {records}")


def check_flows(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
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
    facts = Facts.of(list(events))
    orders: dict[TopicPartition, dict[str, int]] = {}
    for stored in facts.at_the_end(committed=True):
        first = orders.setdefault(stored.partition, {})
        for record in stored.records:
            transaction = facts.sent[record.id].transaction
            if transaction is not None:
                first.setdefault(transaction, record.offset)
    found: set[frozenset[str]] = set()
    for one, other in itertools.combinations(orders.values(), 2):
        found |= _inversions([(other[each], each) for each in one if each in other])
    return len(found)


def _inversions(places: Iterable[tuple[int, str]]) -> set[frozenset[str]]:
    """Pairs of which the first has the higher place. Few are expected of many: it looks at no others."""
    before: list[tuple[int, str]] = []
    found: set[frozenset[str]] = set()
    for place in places:
        found.update(frozenset((each[1], place[1])) for each in before[bisect_right(before, place) :])
        insort(before, place)
    return found


def check_zombies(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """Who sends in the name of a transactional id after somebody was introduced with a higher epoch is not acknowledged."""
    newest: dict[str, tuple[int, int]] = {}
    introduced: dict[str, Introduced] = {}
    late: set[str] = set()
    for event in events:
        match event:
            case Lost():
                newest.clear()
                late.clear()  # it may be taken now: who has fenced may be forgotten
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
