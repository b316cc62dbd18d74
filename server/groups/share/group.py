"""A share group, as its records describe it, and the draft of its next state (KIP-932; Kafka: ShareGroup).

`assign_simple` is the assignor `simple` (Kafka: SimpleAssignor). Several members may read one partition. With P partitions and
M members each partition gets ceil(M / P) of them, where that can be, and no member more than its part of the result, so that
members differ by one at most. Every partition has a member, every member a partition. A member keeps what it has, unless that
is more than its part, or too many read it.

Where all members are subscribed to the same topics their partitions are assigned together, else topic by topic. Kafka takes
members and partitions in the order of a hash table; here they are sorted, so that the same question has the same answer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs

from ....protocol.coordinator import share_group_records as records
from ..assigned.group import AssignedGroup, GroupDraft, RecordTypes
from ..assigned.values import NO_PARTITIONS, NOT_SEEN, Partitions, TopicMetadata, TopicPartitionId, by_first, metadata_hash
from ..consumer.assignors import Subscriber, Subscribers
from ..values import GroupState
from .member import SHARE_TYPE, ShareMember
from .states import StatePartitions


@attrs.define(eq=False, repr=False, kw_only=True)
class ShareGroup(AssignedGroup[ShareMember, Partitions]):
    """See the module. Owner: the `ShareGroups` that has it, or the draft that is to follow it."""

    KIND: ClassVar[str] = SHARE_TYPE
    TYPES: ClassVar[RecordTypes] = RecordTypes(
        records.ShareGroupMetadataKey,
        records.ShareGroupMetadataValue,
        records.ShareGroupMemberMetadataKey,
        records.ShareGroupTargetAssignmentMetadataKey,
        records.ShareGroupTargetAssignmentMetadataValue,
        records.ShareGroupTargetAssignmentMemberKey,
        records.ShareGroupTargetAssignmentMemberValue,
        records.ShareGroupCurrentMemberAssignmentKey,
    )
    MEMBER: ClassVar[type[ShareMember]] = ShareMember
    UNASSIGNED: ClassVar[Partitions] = NO_PARTITIONS

    states: StatePartitions = attrs.field(factory=StatePartitions)
    """The partitions that have a share state."""
    subscriptions: Counter[str] = attrs.field(factory=Counter)
    """How many members are subscribed to a topic, by name."""

    # ---- records ---------------------------------------------------------------------------------------------------------

    def put_other(self, key: Any, value: Any | None) -> None:
        self.states = StatePartitions.of(value)
        self.seen_version = NOT_SEEN

    def follow(self, before: ShareMember | None, after: ShareMember | None) -> None:
        gone, come = (() if each is None else each.topic_names for each in (before, after))
        if gone != come:
            self.subscriptions = self.subscriptions - Counter(gone) + Counter(come)

    def own_keys(self) -> list[Any]:
        targets, metadata = super().own_keys()
        return [targets, records.ShareGroupStatePartitionMetadataKey(group_id=self.group_id), metadata]

    # ---- questions -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def assignor(self) -> str:
        return SIMPLE


@attrs.define(eq=False, repr=False)
class ShareDraft(GroupDraft[ShareGroup]):
    """See `GroupDraft`."""

    # ---- topics and targets ----------------------------------------------------------------------------------------------

    def _subscribed(self) -> dict[str, TopicMetadata]:
        """Return the existing topics that a member is subscribed to, by name."""
        found = {name: self.topics.find(name) for name in self.group.subscriptions}
        return {name: topic for name, topic in found.items() if topic is not None}

    def has_something_else_to_assign(self) -> bool:
        """Return whether topics have changed, or partitions without share state before can be read now."""
        if self.metadata_hash() != self.group.metadata_hash:
            return True
        return bool(self.group.members) and self._assignable() != NO_PARTITIONS.union(*self.group.targets.values())

    def _assignable(self) -> Partitions:
        counts = {topic.topic_id: topic.partitions for topic in self._subscribed().values()}
        return frozenset(
            (topic_id, number) for topic_id, number in self.group.states.initialized if number < counts.get(topic_id, 0)
        )

    def metadata_hash(self) -> int:
        names = self.group.subscriptions
        return metadata_hash(names, self.topics) if names else records.NO_METADATA_HASH

    def assign(self) -> None:
        """Make the targets of this epoch."""
        group, topics = self.group, self._subscribed()
        subscribers = {
            member_id: Subscriber(
                topics=frozenset(topics[name].topic_id for name in member.topic_names if name in topics),
                owned=group.targets.get(member_id, NO_PARTITIONS),
            )
            for member_id, member in group.members.items()
        }
        self.put_targets(assign_simple(subscribers, by_first(self._assignable())))

    # ---- share states ----------------------------------------------------------------------------------------------------

    def put_states(self, states: StatePartitions) -> None:
        if states != self.group.states:
            self.put_own(records.ShareGroupStatePartitionMetadataKey, states.value())

    def drop_deleted_topics(self) -> None:
        """Forget the states of deleted topics: their keeper has no such partition any more."""
        states = self.group.states
        found = {topic_id: self.topics.find(name) for topic_id, name in states.names.items()}
        if gone := frozenset(topic_id for topic_id, topic in found.items() if topic is None or topic.topic_id != topic_id):
            self.put_states(states.without(gone))

    def begin_missing_states(self) -> None:
        """Request states of the subscribed partitions that have none."""
        states = self.group.states
        topics = {name: topic for name, topic in self._subscribed().items() if topic.topic_id not in states.deleting}
        wanted: set[TopicPartitionId] = set()
        for topic in topics.values():
            wanted.update((topic.topic_id, number) for number in range(topic.partitions))
        if missing := frozenset(wanted - states.known):
            ids = {topic_id for topic_id, _ in missing}
            names = {topic.topic_id: name for name, topic in topics.items() if topic.topic_id in ids}
            self.put_states(states.begin(missing, names))


SIMPLE: Final = "simple"

AssignablePartitions = Mapping[bytes, Sequence[int]]
"""The partitions of each topic that may be read, by id, in order. A topic that is not here has none."""


def assign_simple(subscribers: Subscribers, assignable: AssignablePartitions) -> dict[str, Partitions]:
    """See the module."""
    given: dict[str, set[TopicPartitionId]] = {member_id: set() for member_id in subscribers}
    members = sorted(subscribers)
    if len({subscriber.topics for subscriber in subscribers.values()}) == 1:
        topics = sorted(next(iter(subscribers.values())).topics)
        partitions = [(topic_id, number) for topic_id in topics for number in assignable.get(topic_id, ())]
        _share_out(members, partitions, subscribers, given)
    else:
        for topic_id in sorted(assignable):
            readers = [member_id for member_id in members if topic_id in subscribers[member_id].topics]
            _share_out(readers, [(topic_id, number) for number in assignable[topic_id]], subscribers, given)
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _share_out(
    members: Sequence[str],
    partitions: Sequence[TopicPartitionId],
    subscribers: Subscribers,
    given: dict[str, set[TopicPartitionId]],
) -> None:
    """Give these partitions to these members, and nothing else."""
    if not members or not partitions:
        return
    sharing = _divided_up(len(members), len(partitions))
    total = sharing * len(partitions)
    quotas = [
        _divided_up(total * (place + 1), len(members)) - _divided_up(total * place, len(members))
        for place in range(len(members))
    ]
    readers: dict[TopicPartitionId, int] = dict.fromkeys(partitions, 0)
    unfilled: deque[tuple[str, int]] = deque()
    for member_id, quota in zip(members, quotas, strict=True):
        kept = 0
        for partition in sorted(subscribers[member_id].owned & readers.keys(), key=lambda each: (readers[each], each)):
            if kept < quota and readers[partition] < sharing:
                given[member_id].add(partition)
                readers[partition] += 1
                kept += 1
        if kept < quota:
            unfilled.append((member_id, quota - kept))
    for partition, count in readers.items():
        _fill(partition, sharing - count, unfilled, given)


def _fill(
    partition: TopicPartitionId, wanted: int, unfilled: deque[tuple[str, int]], given: dict[str, set[TopicPartitionId]]
) -> None:
    """Give a partition to the next members that have space and do not have it; a member that got one goes to the end of the
    row."""
    for _ in range(len(unfilled)):
        if not wanted:
            return
        member_id, room = unfilled.popleft()
        if partition in given[member_id]:
            unfilled.append((member_id, room))
            continue
        given[member_id].add(partition)
        wanted -= 1
        if room > 1:
            unfilled.append((member_id, room - 1))


def _divided_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
