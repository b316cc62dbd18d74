"""A Streams group, as its records describe it, and the draft of its next state (KIP-1071; Kafka: StreamsGroup). State without a
record is in `memory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import attrs

from ....protocol.coordinator import streams_group_records as records
from ....protocol.types import TopicPartition
from ..assigned.group import AssignedGroup, GroupDraft, RecordTypes, stale
from ..assigned.values import TopicImage
from ..values import GroupState
from .assignor import AssignedMember, SubtopologyTasks, assign_sticky
from .member import StreamsMember
from .topology import ConfiguredTopology, Topology, internal_topic
from .values import (
    NO_TASKS,
    STREAMS_TYPE,
    StreamsGroupDescription,
    StreamsStatus,
    SubtopologyDescription,
    TaskId,
    Tasks,
    from_record,
    recorded,
)

NO_PROCESSES: Final[frozenset[str]] = frozenset()
NO_CONFIGS: Final[Mapping[str, str]] = {}
STANDBY_REPLICAS: Final = "num.standby.replicas"
"""The only thing that the assignor is configured with."""


@attrs.frozen(kw_only=True)
class GroupMemory:
    """The state of a group that no record stores."""

    configured: ConfiguredTopology | None = None
    endpoint_epoch: int = 0
    """Changes when a member with an endpoint has other tasks."""
    shutdown_member_id: str | None = None
    """The member that requested the end of the application, until all have left."""


@attrs.define(eq=False, repr=False, kw_only=True)
class StreamsGroup(AssignedGroup[StreamsMember, Tasks]):
    """See the module. Owner: the `StreamsGroups` that has it, or the draft that is to follow it."""

    KIND: ClassVar[str] = STREAMS_TYPE
    TYPES: ClassVar[RecordTypes] = RecordTypes(
        records.StreamsGroupMetadataKey,
        records.StreamsGroupMetadataValue,
        records.StreamsGroupMemberMetadataKey,
        records.StreamsGroupTargetAssignmentMetadataKey,
        records.StreamsGroupTargetAssignmentMetadataValue,
        records.StreamsGroupTargetAssignmentMemberKey,
        records.StreamsGroupTargetAssignmentMemberValue,
        records.StreamsGroupCurrentMemberAssignmentKey,
    )
    MEMBER: ClassVar[type[StreamsMember]] = StreamsMember
    UNASSIGNED: ClassVar[Tasks] = NO_TASKS

    validated_topology_epoch: int = 0
    """The topology whose topics were as they should be at this epoch, -1 for none."""
    assignment_configs: Mapping[str, str] = NO_CONFIGS
    """What the assignor was configured with at this epoch."""
    topology: Topology | None = None
    active: dict[TaskId, str] = attrs.field(factory=dict)
    """The process that runs a task, or has not given it up yet (Kafka: StreamsGroup's maps of process ids)."""
    copies: dict[TaskId, frozenset[str]] = attrs.field(factory=dict)
    """The processes that have a task as standby or warm-up, or have not given it up yet."""
    memory: GroupMemory = attrs.field(factory=GroupMemory)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def put_metadata(self, value: records.StreamsGroupMetadataValue) -> None:
        super().put_metadata(value)
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}

    def put_other(self, key: Any, value: Any | None) -> None:
        self.topology = None if value is None else Topology.of(value)

    def target_of(self, value: records.StreamsGroupTargetAssignmentMemberValue) -> Tasks:
        return Tasks(*(from_record(each) for each in (value.active_tasks, value.standby_tasks, value.warmup_tasks)))

    def target_value(self, target: Tasks) -> Any:
        return self.TYPES.target_value(
            active_tasks=recorded(target.active),
            standby_tasks=recorded(target.standby),
            warmup_tasks=recorded(target.warmup),
        )

    def follow(self, before: StreamsMember | None, after: StreamsMember | None) -> None:
        if before is not None:
            for task in before.held("active"):
                if self.active.get(task) == before.process_id:
                    del self.active[task]
            for task in before.held("standby", "warmup"):
                left = self.copies.pop(task, NO_PROCESSES) - {before.process_id}
                if left:
                    self.copies[task] = left
        if after is not None:
            self.active.update(dict.fromkeys(after.held("active"), after.process_id))
            for task in after.held("standby", "warmup"):
                self.copies[task] = self.copies.get(task, NO_PROCESSES) | {after.process_id}

    def own_keys(self) -> list[Any]:
        return [*super().own_keys(), records.StreamsGroupTopologyKey(group_id=self.group_id)]

    # ---- questions -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if self.members and (self.topology is None or self.topology.epoch != self.validated_topology_epoch):
            return GroupState.NOT_READY
        return super().state

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and self.topology is not None and topic in self.topology.readers

    def check_since(self, member: StreamsMember, epoch: int, topic_partition: TopicPartition, topics: TopicImage) -> None:
        reader = None if self.topology is None else self.topology.readers.get(topic_partition.topic)
        if reader is None:
            raise stale(f"Topic {topic_partition.topic} is not in the topology.")
        task = TaskId(reader, topic_partition.partition)
        since = member.assigned.active.get(task, member.revoking.active.get(task))
        if since is None:
            raise stale(f"Task {task} is not assigned or pending revocation for member.")
        if epoch < since:
            raise stale(f"Received member epoch {epoch} is older than assignment epoch {since} for task {task}.")

    def describe(self, statuses: Iterable[StreamsStatus] = ()) -> StreamsGroupDescription:
        return StreamsGroupDescription(
            group_id=self.group_id,
            state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            topology_epoch=0 if self.topology is None else self.topology.epoch,
            subtopologies=tuple(self._described_parts()),
            members=self.described_members(),
            statuses=tuple(statuses),
            shutdown_member_id=self.memory.shutdown_member_id,
        )

    def _described_parts(self) -> list[SubtopologyDescription]:
        """Return the subtopologies, with numbers of partitions when all topics exist, else as the application states them."""
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


@attrs.define(eq=False, repr=False)
class StreamsDraft(GroupDraft[StreamsGroup]):
    """See `GroupDraft`."""

    def facts(self) -> Mapping[str, Any]:
        group = self.group
        return metadata_facts(group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)

    def assign(self, configured: ConfiguredTopology) -> None:
        """Make the targets of this epoch. Nobody has a task while topics are missing."""
        self.put_targets(self._targets(configured) if self.group.members else {})

    def _targets(self, configured: ConfiguredTopology) -> dict[str, Tasks]:
        group, parts = self.group, configured.subtopologies
        if not configured.is_ready or parts is None:
            return dict.fromkeys(group.members, NO_TASKS)
        members = {
            member_id: AssignedMember(member.process_id, group.targets.get(member_id, NO_TASKS))
            for member_id, member in group.members.items()
        }
        tasks = {name: SubtopologyTasks(part.task_count, part.is_stateful) for name, part in parts.items()}
        return assign_sticky(members, tasks, int(group.assignment_configs.get(STANDBY_REPLICAS, "0")))


def metadata_facts(metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what the metadata record says beside the epoch."""
    return {
        "metadata_hash": metadata_hash,
        "validated_topology_epoch": validated_topology_epoch,
        "last_assignment_configs": [
            records.StreamsGroupKeyValue(key=key, value=value) for key, value in sorted(configs.items())
        ],
    }
