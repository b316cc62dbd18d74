"""The assignors `uniform` and `range` (KIP-848; Kafka: UniformAssignor, RangeAssignor).

Both give every subscribed partition to exactly one member that is subscribed to its topic, and give the same answer to the
same question. They ignore racks, as Kafka does since 4.0.

*uniform* counts partitions over all topics, moves as few as it can, and balances as well as subscriptions allow: no member
could pass a partition on, directly or by way of others, to one that has at least two fewer. Where all subscribe to the same
topics, members differ by one at most. *range* goes topic by topic: members in the order of their instance ids, then of their
member ids, each get a piece of consecutive partitions, so partitions of the same number in topics of the same size go
together.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from ..assigned.values import NO_PARTITIONS, Partitions, TopicPartitionId


@attrs.frozen(kw_only=True)
class Subscriber:
    """A member as assignors see it."""

    topics: frozenset[bytes]
    """Ids of the topics that it is subscribed to."""
    instance_id: str | None = None
    owned: Partitions = NO_PARTITIONS
    """What the assignment before this one gave it."""


Subscribers = Mapping[str, Subscriber]
"""By member id."""
PartitionCounts = Mapping[bytes, int]
"""How many partitions a topic has, by id. A topic that is not here has none."""
Assignor = Callable[[Subscribers, PartitionCounts], dict[str, Partitions]]


def assign_range(subscribers: Subscribers, counts: PartitionCounts) -> dict[str, Partitions]:
    """See the module."""
    given: dict[str, list[TopicPartitionId]] = {member_id: [] for member_id in subscribers}
    order = sorted(subscribers, key=lambda each: _range_order(each, subscribers[each]))
    for topic_id, count in counts.items():
        members = [member_id for member_id in order if topic_id in subscribers[member_id].topics]
        next_partition = 0
        for place, member_id in enumerate(members):
            size = count // len(members) + (place < count % len(members))
            given[member_id] += [(topic_id, number) for number in range(next_partition, next_partition + size)]
            next_partition += size
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _range_order(member_id: str, subscriber: Subscriber) -> tuple[bool, str, str]:
    """Static members first: they keep their place when they come back under another member id."""
    return subscriber.instance_id is None, subscriber.instance_id or "", member_id


def assign_uniform(subscribers: Subscribers, counts: PartitionCounts) -> dict[str, Partitions]:
    """See the module."""
    uniform = _Uniform.of(subscribers, counts)
    uniform.keep()
    uniform.hand_out()
    uniform.balance()
    return {member_id: frozenset(uniform.partitions_of(member_id)) for member_id in subscribers}


@attrs.define(eq=False, repr=False)
class _Kind:
    """Topics with the same subscribers: a member that may have one of their partitions may have all of them."""

    members: tuple[str, ...]
    partitions: list[TopicPartitionId] = attrs.field(factory=list)


@attrs.define(eq=False, repr=False)
class _Uniform:
    """An assignment while it is made."""

    subscribers: Subscribers
    kinds: list[_Kind]
    load: dict[str, int]
    held: dict[str, dict[int, set[TopicPartitionId]]]
    """What a member has, by the number of its kind."""

    @classmethod
    def of(cls, subscribers: Subscribers, counts: PartitionCounts) -> _Uniform:
        members_of: dict[bytes, list[str]] = {}
        for member_id in sorted(subscribers):
            for topic_id in subscribers[member_id].topics:
                if counts.get(topic_id):
                    members_of.setdefault(topic_id, []).append(member_id)
        kinds: dict[tuple[str, ...], _Kind] = {}
        for topic_id in sorted(members_of):
            members = tuple(members_of[topic_id])
            kind = kinds.setdefault(members, _Kind(members))
            kind.partitions += [(topic_id, number) for number in range(counts[topic_id])]
        # Where there is little choice it is made first.
        ordered = sorted(kinds.values(), key=lambda kind: (len(kind.members), kind.members))
        return cls(subscribers, ordered, dict.fromkeys(subscribers, 0), {each: defaultdict(set) for each in subscribers})

    def partitions_of(self, member_id: str) -> Iterable[TopicPartitionId]:
        return (each for partitions in self.held[member_id].values() for each in partitions)

    def _give(self, member_id: str, kind: int, partition: TopicPartitionId) -> None:
        self.held[member_id][kind].add(partition)
        self.load[member_id] += 1

    def keep(self) -> None:
        """Let members keep what they have and may have; the first of two that had a partition keeps it."""
        kind_of = {partition: number for number, kind in enumerate(self.kinds) for partition in kind.partitions}
        for member_id in sorted(self.subscribers):
            subscriber = self.subscribers[member_id]
            for partition in sorted(subscriber.owned):
                if partition[0] in subscriber.topics and partition in kind_of:
                    self._give(member_id, kind_of.pop(partition), partition)

    def hand_out(self) -> None:
        """Give each free partition to the member with the fewest."""
        for number, kind in enumerate(self.kinds):
            taken = set().union(*(self.held[member_id][number] for member_id in kind.members))
            waiting = [(self.load[member_id], member_id) for member_id in kind.members]
            heapq.heapify(waiting)
            for partition in kind.partitions:
                if partition not in taken:
                    load, member_id = waiting[0]
                    self._give(member_id, number, partition)
                    heapq.heapreplace(waiting, (load + 1, member_id))

    def balance(self) -> None:
        """Pass partitions on while that makes a difference smaller. Each time the sum of the squares falls, so it ends. The
        member with the most gives first; else one could fall below what another has to give, and partitions would move
        twice."""
        moved = True
        while moved:
            moved = False
            waiting = [(-load, member_id) for member_id, load in self.load.items()]
            heapq.heapify(waiting)
            while waiting and -waiting[0][0] - min(self.load.values()) > 1:
                _, member_id = heapq.heappop(waiting)
                if steps := self._way_down(member_id):
                    for giver, kind, taker in steps:
                        self._pass_on(giver, kind, taker)
                    heapq.heappush(waiting, (-self.load[member_id], member_id))
                    moved = True

    def _way_down(self, start: str) -> list[tuple[str, int, str]]:
        """Return (giver, kind, taker) of each step from a member to the one with the fewest that its partitions can reach;
        nothing when that one has nearly as many. Breadth first: the shortest way moves the fewest partitions."""
        came_by: dict[str, tuple[str, int]] = {}
        queue, seen_kinds, best = [start], set[int](), start
        for giver in queue:
            for number, partitions in self.held[giver].items():
                if not partitions or number in seen_kinds:
                    continue
                seen_kinds.add(number)
                for taker in self.kinds[number].members:
                    if taker != start and taker not in came_by:
                        came_by[taker] = (giver, number)
                        queue.append(taker)
                        if self.load[taker] < self.load[best]:
                            best = taker
        if self.load[start] - self.load[best] < 2:
            return []
        steps, taker = [], best
        while taker != start:
            giver, number = came_by[taker]
            steps.append((giver, number, taker))
            taker = giver
        return steps

    def _pass_on(self, giver: str, kind: int, taker: str) -> None:
        """Pass on a partition that is new to the giver, if there is one, and best one that the taker had."""
        had, wanted = self.subscribers[giver].owned, self.subscribers[taker].owned
        partition = max(self.held[giver][kind], key=lambda each: (each in wanted, each not in had, each))
        self.held[giver][kind].remove(partition)
        self.load[giver] -= 1
        self._give(taker, kind, partition)


UNIFORM: Final = "uniform"
RANGE: Final = "range"
ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}
"""By the name under which clients ask for them; the first one is taken where nobody asks."""
