"""What a share group has delivered to its members, and what they have said of it.

| anomaly | is |
|---|---|
| given twice | a record that a member was given while another one had it, and both for certain |
| given again | a record that was accepted, rejected or said to be none, and was given once more |
| another record | a member was given another record than the log has at that offset, or none |
| wrong count | a delivery count above the limit, or not above the one with which the record was given back |
| broken lock | what a member says of records that it has for certain is refused because it has not, or has no session |
| unconsumed | a record that the group never finished, although nothing goes wrong any more, and no damage is before it |
| no dead letter | a record that was rejected, or given back for the last time, is not in the group's queue |
| wrong dead letter | a record is in the queue that was accepted, or that nobody rejected, or as another record |

A member has a record for certain until its lock may have ended, it has begun to say something of it, or its session is over.
A later acknowledgement may be accepted without effect, as in Kafka: records before the start offset are finished.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from triolog.protocol.types import TopicPartition

from ..checker import Anomaly
from ..history import Damaged, Event, Happened, Send, Stored
from . import events as e

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
ENDS: Final = (GAP, ACCEPT, REJECT)
NOT_ITS_OWN: Final = ("INVALID_RECORD_STATE", "SHARE_SESSION_NOT_FOUND")

Place = tuple[TopicPartition, int]


@attrs.define(eq=False)
class _Lock:
    member: str
    until_ms: int
    session: int


@attrs.define(eq=False)
class _Said:
    """Something that a member says."""

    event: e.Acknowledges
    locks: list[_Lock] | None
    """Of all its records, if it had them for certain."""
    counts: dict[int, int]
    """Delivery counts by offset."""


@attrs.define(eq=False)
class _Share:
    """What is known as events come."""

    config: e.ShareGroupIs
    locks: dict[Place, _Lock] = attrs.field(factory=dict)
    until_ms: dict[str, int] = attrs.field(factory=lambda: defaultdict(lambda: -1))
    """Before then each member is one for certain."""
    sessions: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    """How many each member has had."""
    said: dict[tuple[str, int], _Said] = attrs.field(factory=dict)
    done_ms: dict[Place, int] = attrs.field(factory=dict)
    """Since when nobody gets it any more."""
    maybe_done: set[Place] = attrs.field(factory=set)
    counts: dict[Place, tuple[int, int]] = attrs.field(factory=dict)
    """The last delivery count that was told, and by which event."""
    given_back: dict[Place, tuple[int, int]] = attrs.field(factory=dict)
    """With which delivery count it was given back, and when."""
    unanswered: list[int] = attrs.field(factory=list)
    given_up: set[Place] = attrs.field(factory=set)
    """Rejected for certain, or given back for the last time."""
    accepted: set[Place] = attrs.field(factory=set)
    maybe_rejected: set[Place] = attrs.field(factory=set)
    damaged: dict[TopicPartition, list[range]] = attrs.field(factory=lambda: defaultdict(list))
    stands_at: dict[TopicPartition, int] = attrs.field(factory=dict)
    """The damage over which the group does not come."""

    def has(self, lock: _Lock | None, at_ms: int) -> bool:
        return (
            lock is not None
            and at_ms < min(lock.until_ms, self.until_ms[lock.member])
            and lock.session == self.sessions[lock.member]
        )

    def follow(self, number: int, event: e.MemberEvent) -> Iterator[Anomaly]:
        match event:
            case e.Heard():
                self.until_ms[event.member] = event.until_ms
            case e.SessionEnded():
                self.sessions[event.member] += 1
            case e.Dismissed():
                self.sessions[event.member] += 1
                self.until_ms[event.member] = -1
            case e.Unanswered():
                self.unanswered.append(number)
            case e.Acquired():
                yield from self._acquired(number, event)
            case e.Acknowledges():
                self._says(event)
            case e.Accepted():
                yield from self._answered(event)

    def _acquired(self, number: int, event: e.Acquired) -> Iterator[Anomaly]:
        count = event.delivery_count
        where = f"{event.partition}@{event.first} to {event.last} for {event.member}"
        if not 1 <= count <= self.config.delivery_limit:
            yield Anomaly("wrong count", f"{where}: {count}, the limit is {self.config.delivery_limit}")
        lock = _Lock(event.member, event.begun_ms + self.config.lock_ms, self.sessions[event.member])
        for offset in range(event.first, event.last + 1):
            place = event.partition, offset
            if self.has(other := self.locks.get(place), event.at_ms) and self.has(lock, event.at_ms):
                yield Anomaly("given twice", f"{where}: offset {offset}, {other and other.member} has it")
            if self.done_ms.get(place, event.begun_ms) < event.begun_ms:
                yield Anomaly("given again", f"{where}: offset {offset} was done at {self.done_ms[place]}")
            before, at_ms = self.given_back.get(place, (0, -1))
            if at_ms < event.begun_ms and count <= before:
                yield Anomaly("wrong count", f"{where}: {count}, it was given back with {before}")
            self.locks[place] = lock
            self.counts[place] = count, number

    def _says(self, event: e.Acknowledges) -> None:
        places = [(event.partition, offset) for offset, _ in event.said]
        locks = [self.locks.get(place) for place in places]
        mine = [lock for lock in locks if lock is not None and lock.member == event.member and self.has(lock, event.at_ms)]
        counts = {offset: self.counts.get((event.partition, offset), (0, 0))[0] for offset, _ in event.said}
        self.said[event.member, event.number] = _Said(event, mine if len(mine) == len(places) else None, counts)
        for place, lock, (_, kind) in zip(places, locks, event.said, strict=True):
            if kind != RENEW and lock is not None and lock.member == event.member:
                del self.locks[place]
            if kind in ENDS:
                self.maybe_done.add(place)
            if kind == REJECT:
                self.maybe_rejected.add(place)

    def _answered(self, event: e.Accepted) -> Iterator[Anomaly]:
        said = self.said[event.member, event.number]
        is_certain = bool(said.locks) and all(self.has(each, event.at_ms) for each in said.locks or ())
        if event.is_kept is False:
            self.maybe_done.difference_update(
                (said.event.partition, offset) for offset, kind in said.event.said if kind in ENDS
            )
            if event.error in NOT_ITS_OWN and is_certain:
                yield Anomaly("broken lock", f"{event.member} of {said.event.partition}: {said.event.said}")
        for offset, kind in said.event.said if event.is_kept else ():
            place, count = (said.event.partition, offset), said.counts[offset]
            lock = self.locks.get(place)
            if kind == RENEW and lock is not None and lock.member == event.member:
                lock = self.locks[place] = attrs.evolve(lock, until_ms=said.event.at_ms + self.config.lock_ms)
            elif kind in ENDS or (kind == RELEASE and count >= self.config.delivery_limit):
                self.done_ms.setdefault(place, event.at_ms)
                if is_certain:
                    (self.given_up if kind in (REJECT, RELEASE) else self.accepted).add(place)
            elif kind == RELEASE:
                self.given_back[place] = count, event.at_ms

    def dead(self, queue: e.DeadLetters, stored: dict[TopicPartition, Stored], *, has_failed: bool) -> Iterator[Anomaly]:
        """`has_failed`: a disk had failures. An ended lock that could not be stored gives a record up until the next start."""
        there = {(letter.partition, letter.offset) for letter in queue.letters}
        missing = sorted(self.given_up - there)
        if len(missing) > queue.failed:
            said = f"{missing[:3]} of {len(missing)} records are not in the queue, the server could not write {queue.failed}"
            yield Anomaly("no dead letter", said)
        for letter in queue.letters:
            place = letter.partition, letter.offset
            ids = {record.offset: record.id for record in stored[letter.partition].records}
            is_other = bool(letter.id) and letter.id != ids.get(letter.offset, letter.id)
            is_accepted = place in self.accepted and (letter.is_rejected or not has_failed)
            if is_accepted or is_other or (letter.is_rejected and place not in self.maybe_rejected):
                yield Anomaly("wrong dead letter", f"{letter}")

    def stands(self, event: e.StandsAt) -> None:
        if any(event.offset in damage for damage in self.damaged[event.partition]):
            self.stands_at[event.partition] = event.offset

    def unconsumed(self, stored: Stored, sent: dict[str, int]) -> Iterator[Anomaly]:
        """Records that were neither finished nor delivered as often as there may be, also when all that nobody knows of was."""
        end = self.stands_at.get(stored.partition, math.inf)
        for record in stored.records:
            place = stored.partition, record.offset
            if place in self.done_ms or place in self.maybe_done or record.offset >= end:
                continue
            count, number = self.counts.get(place, (0, sent.get(record.id, 0)))
            unknown = sum(number < each for each in self.unanswered)
            if count + unknown < self.config.delivery_limit:
                said = f"delivered {count} times, with {unknown} fetches since without an answer"
                yield Anomaly("unconsumed", f"{record.id} at {stored.partition}@{record.offset}: {said}")


def deliveries(events: Sequence[Event]) -> Iterator[Anomaly]:
    share: _Share | None = None
    sent: dict[str, int] = {}
    stored = {(event.partition, event.is_committed): event for event in events if isinstance(event, Stored)}
    for number, event in enumerate(events):
        match event:
            case e.ShareGroupIs():
                share = _Share(event)
            case Send():
                sent.update((record.id, number) for record in event.records)
            case Damaged() if share is not None:
                share.damaged[event.partition].append(event.offsets)
            case e.StandsAt() if share is not None:
                share.stands(event)
            case e.MemberEvent() if share is not None and event.group == e.SHARERS:
                yield from share.follow(number, event)
    if share is None:
        return
    has_failed = any(isinstance(event, Happened) and event.what.startswith("fail") for event in events)
    uncommitted = {where: each for (where, is_committed), each in stored.items() if not is_committed}
    for event in events:
        if isinstance(event, e.DeadLetters):
            yield from share.dead(event, uncommitted, has_failed=has_failed)
    for (where, is_committed), everything in stored.items():
        if where.topic in share.config.topics and is_committed == share.config.is_committed:
            yield from share.unconsumed(everything, sent)
            yield from _other_records(events, everything, share.damaged[where])


def _other_records(events: Sequence[Event], stored: Stored, damaged: Sequence[range]) -> Iterator[Anomaly]:
    there = {record.offset: record.id for record in stored.records}
    for event in events:
        if isinstance(event, e.Acquired) and event.partition == stored.partition:
            given = dict(event.ids)
            for offset in range(event.first, event.last + 1):
                if given.get(offset) != there.get(offset) and not any(offset in damage for damage in damaged):
                    said = f"{event.member} was given {given.get(offset)}, there is {there.get(offset)}"
                    yield Anomaly("another record", f"{event.partition}@{offset}: {said}")
