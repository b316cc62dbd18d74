"""Who has which partitions of a consumer group, and who may commit.

| anomaly | is |
|---|---|
| owned twice | a member was told a partition that another one has, both members for certain; or two in one generation |
| another assignment | a member of a classic group was not told what the leader said |
| forgotten member | a member that was heard of in time was told that it is none |
| fenced commit | a commit is kept that began after the partition was somebody else's |
| epoch went back | a group is at an earlier epoch than the one that somebody was shown, or a member told, before |
| zombie heartbeat | a member of an earlier generation is told that all is well |
| unfenced member | a client is served as a static member after another one was told the partitions of that member |
| lost place | a static member returned in time, and has other partitions than before or the group has rebalanced |
| unsettled group | when nothing goes wrong any more a group does not become stable, or does not read to the end |
| unprocessed | a record below what a group has committed that none of its members has read |

What a group has committed: what was committed last, or what may still be on its way.

| anomaly | is |
|---|---|
| offset went back | a group's committed offset is none that it may have |

A commit counts at some moment between its beginning and its answer. One without an answer may count later, until somebody else
was told the partition: then its member is fenced.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from triolog.protocol.types import TopicPartition

from tests.simulation.checker import Anomaly
from tests.simulation.checks.groups import Commit, Register, times_of
from tests.simulation.groups import events as e
from tests.simulation.history import Event, Polled, Stored

NEVER: Final = -1
PATIENCE_MS: Final = 10_000
"""So long after it has begun to join a client has its answer, or none will come."""


@attrs.define(eq=False)
class _Member:
    until_ms: int = NEVER
    """Before then it is a member for certain."""
    held: dict[TopicPartition, int] = attrs.field(factory=dict)
    """What it has, and which event has told it."""
    client: str = ""
    """That was told last what it has. A static member may be several clients."""
    since: tuple[int, int] = NEVER, NEVER
    """Since when, and since which event, the client has the place."""
    joins: dict[str, int] = attrs.field(factory=dict)
    """When each client has begun to take the place."""

    def may_be_fenced(self, client: str) -> bool:
        """Whether another client may have taken its place since it was told what it has."""
        return any(name != client and at_ms > self.since[0] - PATIENCE_MS for name, at_ms in self.joins.items())


@attrs.define(eq=False)
class _Group:
    """What is known of a group as its events come."""

    is_classic: bool
    members: dict[str, _Member] = attrs.field(factory=lambda: defaultdict(_Member))
    began: dict[tuple[str, str, int], tuple[int, int]] = attrs.field(factory=dict)
    """Which event a commit began with, and which generation had been told by then; by client, member and number."""
    has_offsets: bool = False
    told: list[tuple[int, int]] = attrs.field(factory=list)
    """When members were told which epochs, and others were shown that of the group."""
    of_generation: dict[int, dict[TopicPartition, str]] = attrs.field(factory=lambda: defaultdict(dict))
    assigned: dict[tuple[int, str], set[tuple[TopicPartition, ...]]] = attrs.field(factory=lambda: defaultdict(set))

    def newest_before(self, at_ms: float) -> int:
        return max((epoch for told_ms, epoch in self.told if told_ms < at_ms), default=NEVER)

    def was_at(self, at_ms: int, epoch: int) -> None:
        """Somebody was told so."""
        if not self.has_offsets and epoch < self.newest_before(math.inf):
            self.told.clear()
        self.told.append((at_ms, epoch))

    def maybe_begin_anew(self, at_ms: int) -> None:
        """A group that has neither members nor offsets is forgotten, and its generations, or epochs, start again. A
        member that leaves gives up all its partitions first, and may no longer be one."""
        if not self.has_offsets and all(member.until_ms <= at_ms or not member.held for member in self.members.values()):
            self.told.clear()
            self.of_generation.clear()
            self.assigned.clear()


def ownership(events: Sequence[Event]) -> Iterator[Anomaly]:
    groups: dict[str, _Group] = {}
    for number, event in enumerate(events):
        if isinstance(event, e.Settled) and event.lacks:
            yield Anomaly("unsettled group", f"{event.group}: {event.lacks}")
        if isinstance(event, e.MemberEvent) and event.group in (*e.CONSUMING, e.SHARERS):
            group = groups.setdefault(event.group, _Group(event.group == e.CLASSIC))
            yield from _follow(group, number, event)
        if isinstance(event, e.Described):
            yield from _described(groups.setdefault(event.group, _Group(is_classic=False)), event)


def _described(group: _Group, event: e.Described) -> Iterator[Anomaly]:
    newest = group.newest_before(event.begun_ms)
    if event.epoch < newest and group.has_offsets and event.group != e.MIGRATING:  # an empty one begins anew
        yield Anomaly("epoch went back", f"{event.group} is at {event.epoch}, it was at {newest}")
    group.was_at(event.at_ms, event.epoch)


def _follow(group: _Group, number: int, event: e.MemberEvent) -> Iterator[Anomaly]:
    member = group.members[event.member]
    match event:
        case e.Told():
            yield from _told(group, number, event)
        case e.TakesPlace():
            member.joins[event.who] = event.at_ms
            if event.who == member.client:  # its id is a new one, which a kill before the next generation takes, as in Kafka
                member.until_ms = NEVER
        case e.Returned():
            if event.had != event.has or event.epochs != event.epochs_after:
                said = f"had {event.had} at {event.epochs}, has {event.has} at {event.epochs_after}"
                yield Anomaly("lost place", f"{event.member} of {event.group} {said}")
        case e.Heard():
            member.until_ms = event.until_ms
            if event.who != member.client and event.begun_ms > member.since[0] > NEVER:
                yield Anomaly("unfenced member", f"{event.who} is heard as {event.member}, which is {member.client}")
            if group.is_classic and event.epoch < (newest := group.newest_before(event.begun_ms)):
                yield Anomaly("zombie heartbeat", f"{event.member} of generation {event.epoch}, the group was at {newest}")
        case e.LetsGo():
            for where in event.partitions:
                member.held.pop(where, None)
        case e.Dismissed() if member.client in ("", event.who):
            if event.at_ms < member.until_ms and not (event.is_explained or member.may_be_fenced(event.who)):
                said = f"{event.error} at {event.at_ms}, it was a member until {member.until_ms}"
                yield Anomaly("forgotten member", f"{event.member} of {event.group}: {said}")
            member.held.clear()
            member.until_ms = NEVER
        case e.Assigns():
            group.maybe_begin_anew(event.at_ms)
            for name, partitions in event.assignment:
                group.assigned[event.epoch, name].add(tuple(sorted(partitions)))
        case e.Commits():
            group.began[event.who, event.member, event.number] = number, group.newest_before(math.inf)
        case e.Committed(is_kept=True):
            yield from _kept(group, event)


def _told(group: _Group, number: int, event: e.Told) -> Iterator[Anomaly]:
    member = group.members[event.member]
    for where in event.partitions:
        for name, other in group.members.items():
            is_certain = event.at_ms < min(other.until_ms, event.until_ms) and not other.may_be_fenced(other.client)
            if name != event.member and where in other.held and is_certain and where not in member.held:
                yield Anomaly("owned twice", f"{where} of {event.group}: {event.member} was told it, {name} has it")
    if group.is_classic:
        of_generation = group.of_generation[event.epoch]
        for where in event.partitions:
            if of_generation.setdefault(where, event.member) != event.member:
                yield Anomaly("owned twice", f"{where} in generation {event.epoch}: {event.member}, {of_generation[where]}")
        if event.partitions not in group.assigned[event.epoch, event.member]:
            said = f"{event.member} in generation {event.epoch}: {event.partitions}"
            yield Anomaly("another assignment", f"{said}, not {group.assigned[event.epoch, event.member]}")
    group.was_at(event.at_ms, event.epoch)
    if event.who != member.client:
        member.client, member.since = event.who, (event.at_ms, number)
    member.held = {where: member.held.get(where, number) for where in event.partitions}
    member.until_ms = event.until_ms


def _kept(group: _Group, event: e.Committed) -> Iterator[Anomaly]:
    group.has_offsets = True
    began, newest = group.began[event.who, event.member, event.number]
    member = group.members[event.member]
    if event.who != member.client and began > member.since[1] > NEVER:
        yield Anomaly("unfenced member", f"{event.partition}: {event.who} commits as {event.member}, which is {member.client}")
    if group.is_classic and event.epoch < newest:
        said = f"generation {event.epoch}, the group was at {newest}"
        yield Anomaly("fenced commit", f"{event.partition}: {event.member} of {said}")
    for name, other in group.members.items():
        is_theirs = other.held.get(event.partition, began) < began and event.at_ms < other.until_ms
        if name != event.member and is_theirs:
            yield Anomaly("fenced commit", f"{event.partition}: {event.member} at {event.epoch}, it was {name}'s")


def processed(events: Sequence[Event]) -> Iterator[Anomaly]:
    """Whether members have read everything that is below what their group has committed in the end."""
    read: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
    committed: dict[tuple[str, TopicPartition], int] = {}
    for event in events:
        if isinstance(event, Polled) and (group := event.who.split()[0]) in e.CONSUMING:
            read[group, event.partition].update(record.offset for record in event.records)
        if isinstance(event, e.Resumes) and event.group in e.CONSUMING:
            committed[event.group, event.partition] = event.offset
    stored = {event.partition: event for event in events if isinstance(event, Stored) and event.is_committed}
    for (group, where), offset in committed.items():
        for record in stored[where].records if where in stored else ():
            if record.offset < offset and record.offset not in read[group, where]:
                yield Anomaly("unprocessed", f"{group}: {record.id} at {where}@{record.offset}, committed is {offset}")


NOTHING: Final = -1


def offsets(events: Sequence[Event]) -> Iterator[Anomaly]:
    registers: dict[tuple[str, TopicPartition], Register] = defaultdict(Register)
    commits: dict[tuple[str, str, str, int], Commit] = {}
    for number, event in enumerate(events):
        match event:
            case e.Commits():
                commit = commits[_key(event)] = Commit(number, event.offset, event.member)
                registers[event.group, event.partition].commits.append(commit)
            case e.Committed(is_kept=False):
                registers[event.group, event.partition].commits.remove(commits[_key(event)])
            case e.Committed(is_kept=True):
                commit = commits[_key(event)]
                commit.ended, commit.is_certain = number, True
            case e.Told():
                for where in event.partitions:
                    for commit in registers[event.group, where].commits:
                        if commit.who != event.member and commit.ended > number:
                            commit.ended, commit.is_certain = number, False
    for register in registers.values():
        register.finish(())
    times = times_of(events)
    for number, event in enumerate(events):
        if isinstance(event, e.Resumes) and event.group != e.MIXED:
            register, begun = registers[event.group, event.partition], bisect_left(times, event.begun_ms)
            if not register.may_be(event.offset, begun, number):
                allowed = register.allowed(begun, number)
                yield Anomaly("offset went back", f"group {event.group} at {event.partition}: {event.offset}, may be {allowed}")


def _key(event: e.Commits | e.Committed) -> tuple[str, str, str, int]:
    return event.group, event.who, event.member, event.number


def mixed_offsets(events: Sequence[Event]) -> Iterator[Anomaly]:
    """The same for a group whose offsets one client commits, inside and outside of transactions: the newest that counts."""
    commits: list[e.MixedCommit] = []
    outcomes: dict[int, bool | None] = {}
    for event in events:
        match event:
            case e.MixedCommit():
                commits.append(event)
            case e.MixedEnd():
                outcomes[event.transaction] = event.is_committed
            case e.Resumes() if event.group == e.MIXED:
                allowed = _newest(commits, outcomes)
                if event.offset not in allowed:
                    said = f"group {event.group} at {event.partition}: {event.offset}, may be {sorted(allowed)}"
                    yield Anomaly("offset went back", said)


def _newest(commits: Sequence[e.MixedCommit], outcomes: dict[int, bool | None]) -> set[int]:
    """Down to the newest that counts for certain; one without an answer, outside of a transaction, may count later, too."""
    allowed = {commit.offset for commit in commits if commit.transaction is None and commit.is_kept is None}
    for commit in reversed(commits):
        outcome = True if commit.transaction is None else outcomes.get(commit.transaction)
        if outcome is not False:
            allowed.add(commit.offset)
        if outcome and commit.is_kept:
            return allowed
    return allowed | {NOTHING}
