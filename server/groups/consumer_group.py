"""One group whose assignments the server makes, as its records say it is (KIP-848; Kafka: ConsumerGroup). `put` is the only way
in which it changes, whether a record was just decided or read from the log.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from ...protocol.coordinator import consumer_group_records as records
from ...protocol.coordinator.consumer_group_records import ConsumerGroupKey, ConsumerGroupRecord, ConsumerGroupValue
from .consumer_assignors import ASSIGNORS, NO_PARTITIONS, UNIFORM, Partitions, TopicPartitionId
from .consumer_member import ConsumerMember
from .consumer_values import ConsumerGroupDescription, ConsumerGroupState, ConsumerMemberDescription
from .managed.assigned_partitions import from_record

NOT_SEEN = -1
FIRST_EPOCH: Final = 1
"""Of a group that has nothing yet, without a record. What its first member gets is the assignment of the next one."""


@attrs.define(eq=False, repr=False, kw_only=True)
class ConsumerGroup:
    """See the module. Owner: the `ConsumerGroups` that has it, or the draft that is to follow it."""

    group_id: str
    epoch: int = FIRST_EPOCH
    """Of who is a member and what there is to assign."""
    metadata_hash: int = records.NO_METADATA_HASH
    """Of the subscribed topics as they were at this epoch."""
    assignment_epoch: int = FIRST_EPOCH
    """The epoch for which the targets were made."""
    members: dict[str, ConsumerMember] = attrs.field(factory=dict)
    targets: dict[str, Partitions] = attrs.field(factory=dict)
    regexes: dict[str, records.ConsumerGroupRegularExpressionValue] = attrs.field(factory=dict)
    """What each regular expression of a member matched."""
    has_partition_metadata: bool = False
    """The log has a record of it that Kafka wrote before 4.1."""
    static_members: dict[str, str] = attrs.field(factory=dict)
    """Member ids by instance id."""
    owners: dict[TopicPartitionId, str] = attrs.field(factory=dict)
    """Who has a partition, or has not given it up yet."""
    seen_version: int = NOT_SEEN
    """Of the topics, when the hash was last compared. In memory only."""

    def copy(self) -> ConsumerGroup:
        """One that can change without this one."""
        return attrs.evolve(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
            static_members=dict(self.static_members),
            owners=dict(self.owners),
        )

    # ---- records ---------------------------------------------------------------------------------------------------------

    def put(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        """What a record says, None for what it takes away. Records of one member may come in any order: compaction keeps the
        newest of each kind where it is."""
        match key:
            case records.ConsumerGroupMetadataKey():
                assert value is None or isinstance(value, records.ConsumerGroupMetadataValue)
                self.epoch, self.metadata_hash = (FIRST_EPOCH, 0) if value is None else (value.epoch, value.metadata_hash)
            case records.ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case records.ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, records.ConsumerGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
            case records.ConsumerGroupRegularExpressionKey():
                assert value is None or isinstance(value, records.ConsumerGroupRegularExpressionValue)
                self._put_regex(key.regular_expression, value)
            case records.ConsumerGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, records.ConsumerGroupTargetAssignmentMemberValue)
                self._put_target(key.member_id, value)
            case records.ConsumerGroupMemberMetadataKey():
                assert value is None or isinstance(value, records.ConsumerGroupMemberMetadataValue)
                self._put_member(key.member_id, value)
            case records.ConsumerGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, records.ConsumerGroupCurrentMemberAssignmentValue)
                self._put_current(key.member_id, value)

    def _put_regex(self, regex: str, value: records.ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = value

    def _put_target(self, member_id: str, value: records.ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = from_record(value.topic_partitions)

    def _put_member(self, member_id: str, value: records.ConsumerGroupMemberMetadataValue | None) -> None:
        member = self.members.get(member_id, ConsumerMember(member_id=member_id))
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if value is None:
            self._hold(member, NO_PARTITIONS)
            self.members.pop(member_id, None)
            return
        self.members[member_id] = member.with_metadata(value)
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id

    def _put_current(self, member_id: str, value: records.ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if value is None:
            if member is not None:
                self._hold(member, NO_PARTITIONS)
                blank = ConsumerMember(member_id=member_id)
                self.members[member_id] = blank.with_metadata(member.metadata_value())
            return
        member = member or ConsumerMember(member_id=member_id)
        updated = member.with_current(value)
        self._hold(member, updated.held)
        self.members[member_id] = updated

    def _hold(self, member: ConsumerMember, held: Partitions) -> None:
        for partition in member.held - held:
            if self.owners.get(partition) == member.member_id:
                del self.owners[partition]
        for partition in held:
            self.owners[partition] = member.member_id

    def tombstones(self) -> list[ConsumerGroupRecord]:
        """What takes the whole group out of the log."""
        group_id = self.group_id
        gone: list[ConsumerGroupKey] = []
        for member_id in self.members:
            gone += member_keys(group_id, member_id)
        gone += [
            records.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex) for regex in self.regexes
        ]
        if self.has_partition_metadata:
            gone.append(records.ConsumerGroupPartitionMetadataKey(group_id=group_id))
        gone.append(records.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
        gone.append(records.ConsumerGroupMetadataKey(group_id=group_id))
        return [(key, None) for key in gone]

    # ---- subscriptions ---------------------------------------------------------------------------------------------------

    def names_of(self, member: ConsumerMember) -> set[str]:
        """Topics that a member is subscribed to, by name or because its regular expression matches them."""
        matched = self.regexes.get(member.topic_regex or "")
        return {*member.topic_names, *(matched.topics if matched is not None else ())}

    def subscribed_names(self) -> set[str]:
        named = {name for member in self.members.values() for name in member.topic_names}
        return named.union(*(self.regexes[regex].topics for regex in self.used_regexes() if regex in self.regexes))

    def used_regexes(self) -> set[str]:
        return {member.topic_regex for member in self.members.values() if member.topic_regex}

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_names()

    @property
    def preferred_assignor(self) -> str:
        """What most members ask for."""
        asked = (member.server_assignor for member in self.members.values())
        wishes = Counter(name for name in asked if name is not None and name in ASSIGNORS)
        return min(wishes, key=lambda name: (-wishes[name], name), default=UNIFORM)

    # ---- questions -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def describe(self) -> ConsumerGroupDescription:
        return ConsumerGroupDescription(
            group_id=self.group_id,
            state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self.preferred_assignor,
            members=tuple(self._described(self.members[member_id]) for member_id in sorted(self.members)),
        )

    def _described(self, member: ConsumerMember) -> ConsumerMemberDescription:
        return ConsumerMemberDescription(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=member.topic_names,
            topic_regex=member.topic_regex,
            assignment=member.held,
            target_assignment=self.targets.get(member.member_id, NO_PARTITIONS),
        )


def member_keys(group_id: str, member_id: str) -> list[ConsumerGroupKey]:
    """Everything that the log has of a member, in the order in which Kafka takes it out."""
    return [
        records.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        records.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        records.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    ]
