"""One share group, as its records say it is (KIP-932; Kafka: ShareGroup). `put` is the only way in which it changes, whether a
record was just decided or read from the log.
"""

from __future__ import annotations

from collections import Counter

import attrs

from ....protocol.coordinator import share_group_records as records
from ....protocol.coordinator.share_group_records import ShareGroupKey, ShareGroupRecord, ShareGroupValue
from ..consumer_assignors import Partitions
from ..consumer_group import NOT_SEEN
from ..managed.assigned_partitions import from_record
from .assignor import SIMPLE
from .member import ShareMember
from .member_values import FIRST_EPOCH, ShareGroupDescription, ShareGroupState
from .share_states import StatePartitions


@attrs.define(eq=False, repr=False, kw_only=True)
class ShareGroup:
    """See the module. Owner: the `ShareGroups` that has it, or the draft that is to follow it."""

    group_id: str
    epoch: int = FIRST_EPOCH
    """Of who is a member and what there is to assign."""
    metadata_hash: int = records.NO_METADATA_HASH
    """Of the subscribed topics as they were at this epoch."""
    assignment_epoch: int = FIRST_EPOCH
    """The epoch for which the targets were made."""
    members: dict[str, ShareMember] = attrs.field(factory=dict)
    targets: dict[str, Partitions] = attrs.field(factory=dict)
    states: StatePartitions = attrs.field(factory=StatePartitions)
    """For which partitions there is a share state."""
    subscriptions: Counter[str] = attrs.field(factory=Counter)
    """How many members are subscribed to a topic, by name."""
    seen_version: int = NOT_SEEN
    """Of the topics, when it was last looked whether there is something else to assign. In memory only."""

    def copy(self) -> ShareGroup:
        """One that can change without this one."""
        return attrs.evolve(
            self, members=dict(self.members), targets=dict(self.targets), subscriptions=Counter(self.subscriptions)
        )

    # ---- records ---------------------------------------------------------------------------------------------------------

    def put(self, key: ShareGroupKey, value: ShareGroupValue | None, /) -> None:
        """What a record says, None for what it takes away. Records of one member may come in any order: compaction keeps the
        newest of each kind where it is."""
        match key:
            case records.ShareGroupMetadataKey():
                assert value is None or isinstance(value, records.ShareGroupMetadataValue)
                self.epoch, self.metadata_hash = (FIRST_EPOCH, 0) if value is None else (value.epoch, value.metadata_hash)
            case records.ShareGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, records.ShareGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
            case records.ShareGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, records.ShareGroupTargetAssignmentMemberValue)
                self._put_target(key.member_id, value)
            case records.ShareGroupMemberMetadataKey():
                assert value is None or isinstance(value, records.ShareGroupMemberMetadataValue)
                self._put_member(key.member_id, value)
            case records.ShareGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, records.ShareGroupCurrentMemberAssignmentValue)
                self._put_current(key.member_id, value)
            case records.ShareGroupStatePartitionMetadataKey():
                assert value is None or isinstance(value, records.ShareGroupStatePartitionMetadataValue)
                self.states = StatePartitions.of(value)
                self.seen_version = NOT_SEEN

    def _put_target(self, member_id: str, value: records.ShareGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = from_record(value.topic_partitions)

    def _put_member(self, member_id: str, value: records.ShareGroupMemberMetadataValue | None) -> None:
        member = self.members.pop(member_id, ShareMember(member_id=member_id))
        self.subscriptions -= Counter(member.topic_names)
        if value is not None:
            self.members[member_id] = updated = member.with_metadata(value)
            self.subscriptions.update(updated.topic_names)

    def _put_current(self, member_id: str, value: records.ShareGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if member is not None or value is not None:
            self.members[member_id] = (member or ShareMember(member_id=member_id)).with_current(value)

    def tombstones(self) -> list[ShareGroupRecord]:
        """What takes the whole group, which has no members, out of the log."""
        assert not self.members, f"{self.group_id} has members"
        gone: list[ShareGroupKey] = [
            records.ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id),
            records.ShareGroupStatePartitionMetadataKey(group_id=self.group_id),
            records.ShareGroupMetadataKey(group_id=self.group_id),
        ]
        return [(key, None) for key in gone]

    # ---- questions -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def describe(self) -> ShareGroupDescription:
        return ShareGroupDescription(
            group_id=self.group_id,
            state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=SIMPLE,
            members=tuple(self.members[member_id].described() for member_id in sorted(self.members)),
        )


def member_keys(group_id: str, member_id: str) -> list[ShareGroupKey]:
    """Everything that the log has of a member, in the order in which Kafka takes it out."""
    return [
        records.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        records.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        records.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    ]
