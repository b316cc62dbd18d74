"""What a group has committed: what was committed last, or what may still be on its way.

| anomaly | is |
|---|---|
| offset went back | a group's committed offset is none that it may have |

A commit counts at some moment between its beginning and its answer. One without an answer may count later, until somebody else
was told the partition: then its member is fenced.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from triolog.protocol.types import TopicPartition

from ..checker import Anomaly
from ..history import Event
from .events import MIXED, Commits, Committed, MixedCommit, MixedEnd, Resumes, Told

NOTHING: Final = -1


@attrs.define(eq=False)
class _Commit:
    member: str
    number: int
    offset: int
    began: int
    over: float = math.inf
    """The event after which it changes nothing any more."""


@attrs.define(eq=False)
class _Place:
    """A partition of a group."""

    possible: list[_Commit] = attrs.field(factory=lambda: [_Commit("", 0, NOTHING, -1, -1)])
    """One of which was committed last."""
    before: list[tuple[int, frozenset[int]]] = attrs.field(factory=lambda: [(-1, frozenset({NOTHING}))])
    """Since when which offsets were possible."""

    def changed(self, at_ms: int) -> None:
        self.before.append((at_ms, frozenset(commit.offset for commit in self.possible)))

    def possible_since(self, begun_ms: int) -> set[int]:
        first = max(index for index, (at_ms, _) in enumerate(self.before) if at_ms < begun_ms)
        return {offset for _, offsets in self.before[first:] for offset in offsets}

    def find(self, event: Committed) -> _Commit:
        return next(each for each in self.possible if (each.member, each.number) == (event.member, event.number))

    def answered(self, event: Committed, number: int) -> None:
        commit = self.find(event)
        if event.is_kept is None:
            return
        commit.over = number
        if event.is_kept:
            self.possible = [each for each in self.possible if each.over > commit.began]
        else:
            self.possible.remove(commit)


def offsets(events: Sequence[Event]) -> Iterator[Anomaly]:
    """See the module."""
    places: dict[tuple[str, TopicPartition], _Place] = defaultdict(_Place)
    for number, event in enumerate(events):
        match event:
            case Commits():
                place = places[event.group, event.partition]
                place.possible.append(_Commit(event.member, event.number, event.offset, number))
                place.changed(event.at_ms)
            case Committed():
                place = places[event.group, event.partition]
                place.answered(event, number)
                place.changed(event.at_ms)
            case Told():
                for where in event.partitions:
                    for commit in places[event.group, where].possible:
                        if commit.member != event.member:
                            commit.over = min(commit.over, number)
            case Resumes() if event.group != MIXED:
                allowed = places[event.group, event.partition].possible_since(event.begun_ms)
                if event.offset not in allowed:
                    said = f"group {event.group} at {event.partition}: {event.offset}, may be {sorted(allowed)}"
                    yield Anomaly("offset went back", said)


def mixed_offsets(events: Sequence[Event]) -> Iterator[Anomaly]:
    """The same for a group whose offsets one client commits, inside and outside of transactions: the newest that counts."""
    commits: list[MixedCommit] = []
    outcomes: dict[int, bool | None] = {}
    for event in events:
        match event:
            case MixedCommit():
                commits.append(event)
            case MixedEnd():
                outcomes[event.transaction] = event.is_committed
            case Resumes() if event.group == MIXED:
                allowed = _newest(commits, outcomes)
                if event.offset not in allowed:
                    said = f"group {event.group} at {event.partition}: {event.offset}, may be {sorted(allowed)}"
                    yield Anomaly("offset went back", said)


def _newest(commits: Sequence[MixedCommit], outcomes: dict[int, bool | None]) -> set[int]:
    """Down to the newest that counts for certain; one without an answer, outside of a transaction, may count later, too."""
    allowed = {commit.offset for commit in commits if commit.transaction is None and commit.is_kept is None}
    for commit in reversed(commits):
        outcome = True if commit.transaction is None else outcomes.get(commit.transaction)
        if outcome is not False:
            allowed.add(commit.offset)
        if outcome and commit.is_kept:
            return allowed
    return allowed | {NOTHING}
