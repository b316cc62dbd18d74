"""All share groups: their members, and share states that come and go (KIP-932; Kafka: GroupMetadataManager's ShareGroup half).

A partition is assigned when it has a share state. A heartbeat that finds subscribed ones without requests states; `states_done`
says when they exist, and the next heartbeat assigns them.

A share group, as its records describe it, and the draft of its next state (KIP-932; Kafka: ShareGroup).

`assign_simple` is the assignor `simple` (Kafka: SimpleAssignor). Several members may read one partition. With P partitions and
M members each partition gets ceil(M / P) of them, where that can be, and no member more than its part of the result, so that
members differ by one at most. Every partition has a member, every member a partition. A member keeps what it has, unless that
is more than its part, or too many read it.

Where all members are subscribed to the same topics their partitions are assigned together, else topic by topic. Kafka takes
members and partitions in the order of a hash table; here they are sorted, so that the same question has the same answer.

A member of a share group: its subscription and its partitions (KIP-932; Kafka: ShareGroupMember). A member reaches its
target at once: another member need not give a partition up first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs

from ....protocol.coordinator import share_group_records as records
from ....protocol.coordinator.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)
from ....protocol.errors import InvalidRequestError
from ..assigned.group import AssignedGroup, AssignedMember, GroupDraft, RecordTypes, from_record, recorded
from ..assigned.groups import AssignedGroups, Plan, check_names
from ..assigned.values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_PARTITIONS,
    NOT_SEEN,
    HeartbeatAnswer,
    MemberHeartbeat,
    Partitions,
    TopicMetadata,
    TopicPartitionId,
    by_first,
    metadata_hash,
)
from ..consumer.assignors import Subscriber, Subscribers
from ..values import GroupState
from .states import StatePartitions

SHARE_TYPE: Final = "share"
"""What ListGroups calls groups of this kind, and their protocol type."""
MAX_MEMBER_ID_CHARS: Final = 36
"""Kafka's limit: as long as a UUID is."""
STABLE: Final = 0
"""The only state of a member that Kafka writes."""


@attrs.frozen(kw_only=True)
class ShareHeartbeat(MemberHeartbeat):
    """A sign of life of a member, with its news; None for a field that has not changed."""

    topic_names: tuple[str, ...] | None = None

    @property
    def is_full(self) -> bool:
        """Return whether the heartbeat states everything, as a client does that has lost the last response."""
        return self.is_joining or self.topic_names is not None


def check_heartbeat(request: ShareHeartbeat) -> None:
    """Check what a heartbeat has to state, whatever group it is for (Kafka: throwIfShareGroupHeartbeatRequestIsInvalid). Raises
    INVALID_REQUEST."""
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_CHARS:
        raise InvalidRequestError(
            f"a member id has 1 to {MAX_MEMBER_ID_CHARS} characters, this one has {len(request.member_id)}"
        )
    check_names(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id)
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.is_joining and not request.topic_names:
        raise InvalidRequestError("SubscribedTopicNames must be set in first request.")


@attrs.frozen(kw_only=True)
class ShareMember(AssignedMember):
    """See the module."""

    KIND: ClassVar[str] = SHARE_TYPE
    PLAIN: ClassVar[tuple[str, ...]] = ("rack_id", "client_id", "client_host")
    METADATA: ClassVar[type[Any]] = ShareGroupMemberMetadataValue
    UNASSIGNED: ClassVar[Mapping[str, Any]] = {"assigned": NO_PARTITIONS}

    topic_names: tuple[str, ...] = ()
    """Sorted, without repetitions."""
    assigned: Partitions = NO_PARTITIONS

    def news(self, request: ShareHeartbeat) -> dict[str, Any]:
        names = request.topic_names
        return {**super().news(request), "topic_names": None if names is None else tuple(sorted(set(names)))}

    def check_epoch(self, request: MemberHeartbeat) -> None:
        """Raises FENCED_MEMBER_EPOCH. The previous epoch is valid, and so is joining again."""
        epoch = request.member_epoch
        if epoch not in (JOIN_EPOCH, self.epoch, self.previous_epoch):
            lost = f", and it does not match the previous member epoch ({self.previous_epoch})"
            raise self.fenced(epoch, "" if epoch > self.epoch else lost)

    def at(self, epoch: int, target: Partitions) -> ShareMember:
        """Return the member with what it is to have at an epoch."""
        if (epoch, target) == (self.epoch, self.assigned):
            return self
        return attrs.evolve(self, epoch=epoch, previous_epoch=self.epoch, assigned=target)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def subscription(self) -> dict[str, Any]:
        return {"subscribed_topic_names": list(self.topic_names)}

    def subscription_of(self, value: ShareGroupMemberMetadataValue) -> dict[str, Any]:
        return {"topic_names": tuple(sorted(set(value.subscribed_topic_names)))}

    def current_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE,
            assigned_partitions=recorded(self.assigned),
        )

    def assignment_of(self, value: ShareGroupCurrentMemberAssignmentValue) -> dict[str, Any]:
        return {"assigned": from_record(value.assigned_partitions)}

    def described(self, target: Partitions, **more: Any) -> Any:
        return super().described(NO_PARTITIONS, assignment=self.assigned, **more)


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


@attrs.define(eq=False, repr=False)
class ShareGroups(AssignedGroups[ShareGroup]):
    """See the module and `AssignedGroups`."""

    GROUP: ClassVar[type[Any]] = ShareGroup
    DRAFT: ClassVar[type[Any]] = ShareDraft

    check = staticmethod(check_heartbeat)

    def advance(self, draft: ShareDraft, request: ShareHeartbeat, known: ShareMember, member: ShareMember) -> Plan[ShareGroup]:
        is_new = member.member_id not in draft.base.members
        is_changed = is_new or known.topic_names != member.topic_names
        is_stale = is_changed or self.topics.version != draft.base.seen_version
        if is_stale:
            draft.drop_deleted_topics()
        if is_changed or (is_stale and draft.has_something_else_to_assign()):
            draft.bump_epoch()
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        target = draft.group.targets.get(member.member_id, NO_PARTITIONS)
        reconciled = member.at(draft.group.assignment_epoch, target)
        if reconciled != member or is_new:
            draft.put_current(reconciled)
        if is_stale:
            draft.begin_missing_states()
        is_news = request.is_full or is_new or reconciled.assigned != known.assigned
        answer = HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self.times_of(request.group_id).heartbeat_interval_ms,
            assignment=reconciled.assigned if is_news else None,
        )
        return self.plan(draft, answer, alive=member.member_id, seen_version=self.topics.version)

    # ---- share states ----------------------------------------------------------------------------------------------------

    def waiting_states(self, group_id: str) -> Partitions:
        """Return the partitions whose share state was requested and is not known to exist."""
        group = self.find(group_id)
        return NO_PARTITIONS if group is None else group.states.initializing

    def plan_states(self, group_id: str, partitions: Partitions, names: Mapping[bytes, str], wall_ms: int) -> Plan[ShareGroup]:
        """Plan states of partitions for an administrator; `names` of their topics by id. An unknown group is created. Raises
        NON_EMPTY_GROUP."""
        group = self.empty_group(group_id) if group_id in self else self.new_group(group_id)
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.put_states(group.states.begin(partitions, names))
        return self.plan(draft)

    def states_done(self, group_id: str, partitions: Partitions, wall_ms: int) -> Plan[ShareGroup]:
        """Plan that the states of these partitions exist."""
        draft = ShareDraft(self.known(group_id), self.topics, wall_ms)
        draft.put_states(draft.base.states.done(partitions))
        return self.plan(draft)

    def plan_deletion(self, group_id: str, topic_ids: frozenset[bytes], wall_ms: int) -> Plan[ShareGroup]:
        """Plan that the states of these topics are to go. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.empty_group(group_id)
        draft = ShareDraft(group, self.topics, wall_ms)
        draft.put_states(group.states.begin_deletion(topic_ids & group.states.names.keys()))
        return self.plan(draft)

    def states_gone(self, group_id: str, topic_ids: frozenset[bytes], wall_ms: int) -> Plan[ShareGroup]:
        """Plan that they are gone."""
        draft = ShareDraft(self.known(group_id), self.topics, wall_ms)
        draft.put_states(draft.base.states.without(topic_ids))
        return self.plan(draft)
