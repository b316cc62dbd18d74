"""One Streams group, as its records say it is (KIP-1071; Kafka: StreamsGroup). `put` is the only way in which it changes,
whether a record was just decided or read from the log; what is in memory only is in `memory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from ....protocol.coordinator import streams_group_records as records
from ....protocol.coordinator.streams_group_records import StreamsGroupKey, StreamsGroupRecord, StreamsGroupValue
from ..consumer_group import NOT_SEEN
from .configured import ConfiguredTopology, internal_topic
from .holders import TaskHolders
from .member import StreamsMember
from .tasks import NO_TASKS, Tasks, from_record
from .topology import Topology
from .values import (
    FIRST_EPOCH,
    StreamsGroupDescription,
    StreamsGroupState,
    StreamsStatus,
    SubtopologyDescription,
)

NO_CONFIGS: Final[Mapping[str, str]] = {}


@attrs.frozen(kw_only=True)
class GroupMemory:
    """What no record says of a group."""

    configured: ConfiguredTopology | None = None
    seen_version: int = NOT_SEEN
    """Of the topics, when it was last looked whether they fit."""
    endpoint_epoch: int = 0
    """Another one when somebody with an endpoint has other tasks."""
    shutdown_member_id: str | None = None
    """Who has asked for the end of the application; until nobody is left."""


@attrs.define(eq=False, repr=False, kw_only=True)
class StreamsGroup:
    """See the module. Owner: the `StreamsGroups` that has it, or the draft that is to follow it."""

    group_id: str
    epoch: int = FIRST_EPOCH
    """Of who is a member and what there is to assign."""
    metadata_hash: int = 0
    """Of the topics that it needs, as they were at this epoch."""
    validated_topology_epoch: int = 0
    """The topology whose topics were as they should be at this epoch, -1 for none."""
    assignment_configs: Mapping[str, str] = NO_CONFIGS
    """What the assignor was configured with at this epoch."""
    assignment_epoch: int = FIRST_EPOCH
    """The epoch for which the targets were made."""
    topology: Topology | None = None
    members: dict[str, StreamsMember] = attrs.field(factory=dict)
    targets: dict[str, Tasks] = attrs.field(factory=dict)
    holders: TaskHolders = attrs.field(factory=TaskHolders)
    memory: GroupMemory = attrs.field(factory=GroupMemory)

    def copy(self) -> StreamsGroup:
        """One that can change without this one."""
        return attrs.evolve(self, members=dict(self.members), targets=dict(self.targets), holders=self.holders.copy())

    # ---- records ---------------------------------------------------------------------------------------------------------

    def put(self, key: StreamsGroupKey, value: StreamsGroupValue | None, /) -> None:
        """What a record says, None for what it takes away. Records of one member may come in any order: compaction keeps the
        newest of each kind where it is."""
        match key:
            case records.StreamsGroupMetadataKey():
                assert isinstance(value, records.StreamsGroupMetadataValue)
                self._put_metadata(value)
            case records.StreamsGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, records.StreamsGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = FIRST_EPOCH if value is None else value.assignment_epoch
            case records.StreamsGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, records.StreamsGroupTargetAssignmentMemberValue)
                self._put_target(key.member_id, value)
            case records.StreamsGroupMemberMetadataKey():
                assert value is None or isinstance(value, records.StreamsGroupMemberMetadataValue)
                self._put_member(key.member_id, value)
            case records.StreamsGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, records.StreamsGroupCurrentMemberAssignmentValue)
                self._put_current(key.member_id, value)
            case records.StreamsGroupTopologyKey():
                assert value is None or isinstance(value, records.StreamsGroupTopologyValue)
                self.topology = None if value is None else Topology.of(value)

    def _put_metadata(self, value: records.StreamsGroupMetadataValue) -> None:
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}

    def _put_target(self, member_id: str, value: records.StreamsGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            parts = value.active_tasks, value.standby_tasks, value.warmup_tasks
            self.targets[member_id] = Tasks(*(from_record(each) for each in parts))

    def _put_member(self, member_id: str, value: records.StreamsGroupMemberMetadataValue | None) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self._set_member(known, (known or StreamsMember(member_id=member_id)).with_metadata(value))
        elif known is not None:
            del self.members[member_id]
            self.holders.replace(known, None)

    def _put_current(self, member_id: str, value: records.StreamsGroupCurrentMemberAssignmentValue | None) -> None:
        known = self.members.get(member_id)
        if known is not None or value is not None:
            self._set_member(known, (known or StreamsMember(member_id=member_id)).with_current(value))

    def _set_member(self, known: StreamsMember | None, member: StreamsMember) -> None:
        self.members[member.member_id] = member
        self.holders.replace(known, member)

    def tombstones(self) -> list[StreamsGroupRecord]:
        """What takes the whole group, which has no members, out of the log."""
        assert not self.members, f"{self.group_id} has members"
        gone: list[StreamsGroupKey] = [
            records.StreamsGroupTargetAssignmentMetadataKey(group_id=self.group_id),
            records.StreamsGroupMetadataKey(group_id=self.group_id),
            records.StreamsGroupTopologyKey(group_id=self.group_id),
        ]
        return [(key, None) for key in gone]

    # ---- questions -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic."""
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def describe(self, statuses: Iterable[StreamsStatus] = ()) -> StreamsGroupDescription:
        return StreamsGroupDescription(
            group_id=self.group_id,
            state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            topology_epoch=0 if self.topology is None else self.topology.epoch,
            subtopologies=tuple(self._described_parts()),
            members=tuple(
                self.members[member_id].described(self.targets.get(member_id, NO_TASKS)) for member_id in sorted(self.members)
            ),
            statuses=tuple(statuses),
            shutdown_member_id=self.memory.shutdown_member_id,
        )

    def _described_parts(self) -> list[SubtopologyDescription]:
        """With their numbers of partitions when all topics are there, otherwise as the application has said them."""
        configured = self.memory.configured
        if configured is not None and configured.is_ready and configured.subtopologies is not None:
            return [part.described() for part in configured.subtopologies.values()]
        if self.topology is None:
            return []
        return [_as_said(part) for part in self.topology.subtopologies.values()]


def _as_said(part: records.StreamsGroupSubtopology) -> SubtopologyDescription:
    changelogs = sorted(part.state_changelog_topics, key=lambda topic: topic.name)
    repartition = sorted(part.repartition_source_topics, key=lambda topic: topic.name)
    return SubtopologyDescription(
        subtopology_id=part.subtopology_id,
        source_topics=tuple(sorted(part.source_topics)),
        repartition_sink_topics=tuple(sorted(part.repartition_sink_topics)),
        state_changelog_topics=tuple(internal_topic(each, each.partitions) for each in changelogs),
        repartition_source_topics=tuple(internal_topic(each, each.partitions) for each in repartition),
    )


def member_keys(group_id: str, member_id: str) -> list[StreamsGroupKey]:
    """Everything that the log has of a member, in the order in which Kafka takes it out."""
    return [
        records.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        records.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        records.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    ]
