"""What a group has committed: what was committed last, or what may still be on its way.

| anomaly | is |
|---|---|
| offset went back | a group's committed offset is none that it may have |

A commit counts at some moment between its beginning and its answer. One without an answer may count later, until somebody else
was told the partition: then its member is fenced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from triolog.protocol.types import TopicPartition

from ..checker import Anomaly
from ..checks.groups import Commit, Register, times_of
from ..history import Event
from .events import MIXED, Commits, Committed, MixedCommit, MixedEnd, Resumes, Told

NOTHING: Final = -1


def offsets(events: Sequence[Event]) -> Iterator[Anomaly]:
    """See the module."""
    registers: dict[tuple[str, TopicPartition], Register] = defaultdict(Register)
    commits: dict[tuple[str, str, int], Commit] = {}
    for number, event in enumerate(events):
        match event:
            case Commits():
                commit = commits[event.group, event.member, event.number] = Commit(number, event.offset, event.member)
                registers[event.group, event.partition].commits.append(commit)
            case Committed(is_kept=False):
                registers[event.group, event.partition].commits.remove(commits[event.group, event.member, event.number])
            case Committed(is_kept=True):
                commit = commits[event.group, event.member, event.number]
                commit.ended, commit.is_certain = number, True
            case Told():
                for where in event.partitions:
                    for commit in registers[event.group, where].commits:
                        if commit.who != event.member and commit.ended > number:
                            commit.ended, commit.is_certain = number, False
    for register in registers.values():
        register.finish(())
    times = times_of(events)
    for number, event in enumerate(events):
        if isinstance(event, Resumes) and event.group != MIXED:
            register, begun = registers[event.group, event.partition], bisect_left(times, event.begun_ms)
            if not register.may_be(event.offset, begun, number):
                allowed = register.allowed(begun, number)
                yield Anomaly("offset went back", f"group {event.group} at {event.partition}: {event.offset}, may be {allowed}")


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
