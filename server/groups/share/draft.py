"""What a share group is to be next, step by step (see `managed.drafting`)."""

from __future__ import annotations

import attrs

from ....protocol.coordinator import share_group_records as records
from ....protocol.coordinator.share_group_records import NO_METADATA_HASH, ShareGroupKey, ShareGroupValue
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.limits import INT32_MAX
from ..consumer_assignors import NO_PARTITIONS, Partitions, Subscriber, TopicPartitionId
from ..consumer_values import TopicMetadata
from ..managed.assigned_partitions import by_topic, recorded
from ..managed.drafting import GroupDraft
from ..managed.metadata_hash import metadata_hash
from .assignor import assign_simple
from .group import ShareGroup, member_keys
from .member import ShareMember
from .share_states import StatePartitions


@attrs.define(eq=False, repr=False)
class ShareDraft(GroupDraft[ShareGroup, ShareGroupKey, ShareGroupValue]):
    """See the module. Made for one command."""

    # ---- members ---------------------------------------------------------------------------------------------------------

    def put_member(self, member: ShareMember) -> None:
        key = records.ShareGroupMemberMetadataKey(group_id=self.base.group_id, member_id=member.member_id)
        self.put(key, member.metadata_value())

    def put_current(self, member: ShareMember) -> None:
        key = records.ShareGroupCurrentMemberAssignmentKey(group_id=self.base.group_id, member_id=member.member_id)
        self.put(key, member.current_value())

    def fence(self, member_id: str) -> None:
        """Take a member out. The others get what it had when they ask next."""
        for key in member_keys(self.base.group_id, member_id):
            self.put(key, None)
        self.bump_epoch()

    # ---- topics ----------------------------------------------------------------------------------------------------------

    def subscribed(self) -> dict[bytes, TopicMetadata]:
        """The topics that somebody is subscribed to and that there are, by id."""
        found = (self.topics.find(name) for name in self.group.subscriptions)
        return {topic.topic_id: topic for topic in found if topic is not None}

    def has_something_else_to_assign(self) -> bool:
        """Whether topics have changed, or partitions can be read now for which there was no share state before."""
        if self.metadata_hash() != self.group.metadata_hash:
            return True
        return bool(self.group.members) and self._assignable() != NO_PARTITIONS.union(*self.group.targets.values())

    def _assignable(self) -> Partitions:
        subscribed = self.subscribed()
        return frozenset(each for each in self.group.states.initialized if _is_there(each, subscribed))

    def metadata_hash(self) -> int:
        names = self.group.subscriptions
        return metadata_hash(names, self.topics) if names else NO_METADATA_HASH

    # ---- epochs and targets ----------------------------------------------------------------------------------------------

    def bump_epoch(self) -> None:
        """Something has changed that the targets depend on. Raises RequestError when there is no epoch left."""
        if self.group.epoch >= INT32_MAX:
            raise RequestError(
                f"group {self.base.group_id!r} is at its last epoch {INT32_MAX}; delete it", ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        key = records.ShareGroupMetadataKey(group_id=self.base.group_id)
        self.put(key, records.ShareGroupMetadataValue(epoch=self.group.epoch + 1, metadata_hash=self.metadata_hash()))

    def assign(self) -> None:
        """Make the targets of this epoch; those that are as they were are not written again."""
        group = self.group
        ids = {name: topic.topic_id for name in group.subscriptions if (topic := self.topics.find(name)) is not None}
        subscribers = {
            member_id: Subscriber(
                topics=frozenset(ids[name] for name in member.topic_names if name in ids),
                owned=group.targets.get(member_id, NO_PARTITIONS),
            )
            for member_id, member in group.members.items()
        }
        targets = assign_simple(subscribers, by_topic(self._assignable()))
        before = dict(group.targets)
        for member_id in sorted(targets):
            if targets[member_id] != before.get(member_id):
                key = records.ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
                value = records.ShareGroupTargetAssignmentMemberValue(topic_partitions=recorded(targets[member_id]))
                self.put(key, value)
        self.put(
            records.ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            records.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=group.epoch, assignment_timestamp=self.wall_ms),
        )

    # ---- share states ----------------------------------------------------------------------------------------------------

    def put_states(self, states: StatePartitions) -> None:
        if states != self.group.states:
            self.put(records.ShareGroupStatePartitionMetadataKey(group_id=self.base.group_id), states.value())

    def drop_deleted_topics(self) -> None:
        """Forget the states of topics that are gone: whoever kept them has no such partition any more."""
        states = self.group.states
        gone = frozenset(topic_id for topic_id, name in states.names.items() if not self._exists(topic_id, name))
        if gone:
            self.put_states(states.without(gone))

    def _exists(self, topic_id: bytes, name: str) -> bool:
        found = self.topics.find(name)
        return found is not None and found.topic_id == topic_id

    def begin_missing_states(self) -> None:
        """Ask for states of the subscribed partitions that have none."""
        names: dict[bytes, str] = {}
        wanted: set[TopicPartitionId] = set()
        for name in self.group.subscriptions:
            topic = self.topics.find(name)
            if topic is not None and topic.topic_id not in self.group.states.deleting:
                names[topic.topic_id] = name
                wanted.update((topic.topic_id, number) for number in range(topic.partitions))
        missing = frozenset(wanted - self.group.states.known)
        if missing:
            self.put_states(self.group.states.begin(missing, {topic_id: names[topic_id] for topic_id, _ in missing}))


def _is_there(partition: TopicPartitionId, topics: dict[bytes, TopicMetadata]) -> bool:
    topic_id, number = partition
    return topic_id in topics and number < topics[topic_id].partitions
