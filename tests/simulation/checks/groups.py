"""What groups have committed, whether they have read what lies before it, and what pipes make of it."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence

import attrs
from triolog.protocol.types import TopicPartition

from ..copies import COPY, copied
from ..history import CommitsOffset, Ended, Event, OffsetCommitted, OffsetFetched, Polled
from .facts import Anomaly, Facts

Of = tuple[str, TopicPartition]
"""A group in a partition."""


@attrs.define(eq=False)
class Commit:
    """From when on it may count, and from when on it does: numbers of events. Infinite: nobody knows whether it ever will."""

    begun: int
    offset: int
    who: str
    ended: float = math.inf
    is_certain: bool = True
    """False: after `ended` it changes nothing any more, and nobody knows whether it has counted."""


@attrs.define(eq=False)
class Register:
    """A committed offset. Whatever is read is what was written last, or what is being written."""

    commits: list[Commit] = attrs.field(factory=lambda: [Commit(-1, -1, "", -1)])
    _ends: list[float] = attrs.field(factory=list)
    _latest_begins: list[int] = attrs.field(factory=list)
    """Of all commits up to the one with this end."""
    _of_offset: dict[int, list[Commit]] = attrs.field(factory=dict)

    def finish(self, losses: Sequence[tuple[int, int]]) -> None:
        """There are no more commits. A loss is two events: before which a commit was over that has to be on the device, and
        after which there is again whatever a look from there on might have found."""
        self._put_in_order()
        for sure, lost in losses:
            self.commits += [Commit(lost, offset, "", lost) for offset in self.allowed(sure, lost)]
            self._put_in_order()

    def _put_in_order(self) -> None:
        self._ends, self._latest_begins, self._of_offset = [], [], {}
        latest = -1
        for commit in sorted(self.commits, key=lambda each: each.ended):
            latest = max(latest, commit.begun) if commit.is_certain else latest
            self._ends.append(commit.ended)
            self._latest_begins.append(latest)
            self._of_offset.setdefault(commit.offset, []).append(commit)

    def may_be(self, offset: int, begun: int, ended: int) -> bool:
        """Whether a look between two events may find it: it is not replaced by something that began and ended later."""
        replaced_before = self._latest_begins[bisect_left(self._ends, begun) - 1]
        there = self._of_offset.get(offset, ())
        return any(each.begun < ended and each.ended >= replaced_before for each in there)

    def allowed(self, begun: int, ended: int) -> list[int]:
        """All that it may find."""
        return sorted(offset for offset in self._of_offset if self.may_be(offset, begun, ended))


def check_group_offsets(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """What a group has committed is what it committed last, or what it tried to since without an answer."""
    registers = _registers(events, facts)
    times = times_of(events)
    for number, event in enumerate(events):
        if isinstance(event, OffsetFetched):
            begun = number if event.begun_ms is None else bisect_right(times, event.begun_ms)
            register = registers[event.group, event.partition]
            if not register.may_be(event.offset, begun, number):
                said = f"group {event.group} at {event.partition}: {event.offset} for {event.who}"
                yield Anomaly("offset went back", f"{said}, may be {register.allowed(begun, number)[-20:]}")


def times_of(events: Sequence[Event]) -> list[float]:
    """Ascending: a loss is told later than it was."""
    return list(itertools.accumulate((event.at_ms for event in events), max))


def _registers(events: Sequence[Event], facts: Facts) -> dict[Of, Register]:
    about = (event for event in events if isinstance(event, CommitsOffset | OffsetFetched))
    registers = {of: Register() for of in {(event.group, event.partition) for event in about}}
    by_transaction: dict[str, list[tuple[Of, Commit]]] = defaultdict(list)
    asked: dict[tuple[str, Of], Commit] = {}
    undecided: dict[tuple[str, Of], list[Commit]] = defaultdict(list)
    """Those of a client that are decided when one of its later ones is."""

    def decide(of: Of, commit: Commit, number: int) -> None:
        for each in (commit, *undecided.pop((commit.who, of), ())):
            each.ended = number

    for number, event in enumerate(events):
        match event:
            case CommitsOffset():
                of, commit = (event.group, event.partition), Commit(number, event.offset, event.who)
                if event.transaction is None:
                    asked[event.who, of] = commit
                elif facts.outcomes.get(event.transaction) is False:
                    continue
                else:
                    by_transaction[event.transaction].append((of, commit))
                registers[of].commits.append(commit)
            case OffsetCommitted():
                of = event.group, event.partition
                if event.is_kept:
                    decide(of, asked[event.who, of], number)
                else:
                    undecided[event.who, of].append(asked[event.who, of])
            case Ended():
                for of, commit in by_transaction.get(event.transaction, ()):
                    if event.is_committed:
                        decide(of, commit, number)
                    else:
                        undecided[commit.who, of].append(commit)
    times = times_of(events) if facts.losses else []
    losses = [
        (0 if loss.window_ms is None else bisect_right(times, loss.at_ms - loss.window_ms), number)
        for number, loss in facts.losses
    ]
    for register in registers.values():
        register.finish(losses)
    return registers


def check_coverage(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """Whatever lies before what a group has committed at the end was read by a member of it, with effect."""
    committed: dict[Of, int] = {}
    read: dict[Of, set[int]] = defaultdict(set)
    kinds: dict[Of, bool] = {}
    for event in events:
        match event:
            case OffsetFetched():
                committed[event.group, event.partition] = event.offset
            case Polled(group=str(group)):
                kinds[group, event.partition] = event.is_committed
                if event.transaction is None or event.transaction in facts.shaken or facts.is_effective(event.transaction):
                    read[group, event.partition].update(record.offset for record in event.records)
    for (group, partition), is_committed in kinds.items():
        if facts.has_lost(partition):
            continue
        stored, end = facts.stored.get((partition, is_committed)), committed.get((group, partition), -1)
        for record in () if stored is None else stored.between(0, end):
            if record.offset not in read[group, partition]:
                yield Anomaly("passed over", f"group {group} in {partition}: {record.id}@{record.offset}, committed is {end}")


def check_pipes(events: Sequence[Event], facts: Facts) -> Iterator[Anomaly]:
    """What a pipe has read in committed transactions is copied, once, and nothing else is; a loss may take some."""
    if facts.losses:
        return
    read: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if isinstance(event, Polled) and event.transaction is not None:
            read[event.transaction].update(record.id for record in event.records)
    copies: dict[str, list[str]] = defaultdict(list)
    for stored in facts.at_the_end(committed=True):
        for record in stored.records:
            if record.id.startswith(COPY):
                original, transaction = copied(record.id)
                copies[original].append(f"{stored.partition}@{record.offset}")
                if original not in read.get(transaction, ()):
                    yield Anomaly("inexact pipe", f"{record} was never read")
    for original, places in copies.items():
        if len(places) > 1:
            yield Anomaly("inexact pipe", f"{original} was copied to {places}")
    damaged = {known.transaction for record, known in facts.sent.items() if facts.hits_damage(record)}
    for transaction, originals in read.items():
        if facts.is_effective(transaction) and transaction not in damaged:
            for original in sorted(each for each in originals if each not in copies):
                yield Anomaly("inexact pipe", f"{original}, read by {transaction}, was not copied")
