"""What a Streams group is to be next, step by step (see `managed.drafting`)."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from ....protocol.coordinator import streams_group_records as records
from ....protocol.coordinator.streams_group_records import StreamsGroupKey, StreamsGroupValue
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.limits import INT32_MAX
from ..managed.drafting import GroupDraft
from .assignor import AssignedMember, SubtopologyTasks, assign_sticky
from .configured import ConfiguredTopology
from .group import StreamsGroup, member_keys
from .member import StreamsMember
from .tasks import NO_TASKS, Tasks, recorded

STANDBY_REPLICAS = "num.standby.replicas"
"""The only thing that the assignor is configured with."""


@attrs.define(eq=False, repr=False)
class StreamsDraft(GroupDraft[StreamsGroup, StreamsGroupKey, StreamsGroupValue]):
    """See the module. Made for one command."""

    # ---- members ---------------------------------------------------------------------------------------------------------

    def put_member(self, member: StreamsMember) -> None:
        key = records.StreamsGroupMemberMetadataKey(group_id=self.base.group_id, member_id=member.member_id)
        self.put(key, member.metadata_value())

    def put_current(self, member: StreamsMember) -> None:
        key = records.StreamsGroupCurrentMemberAssignmentKey(group_id=self.base.group_id, member_id=member.member_id)
        self.put(key, member.current_value())

    def fence(self, member_id: str) -> None:
        """Take a member out. The others get what it had when they ask next."""
        for key in member_keys(self.base.group_id, member_id):
            self.put(key, None)
        group = self.group
        self.bump_epoch(group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)

    # ---- topology and epoch ----------------------------------------------------------------------------------------------

    def put_topology(self, topology: records.StreamsGroupTopologyValue) -> None:
        self.put(records.StreamsGroupTopologyKey(group_id=self.base.group_id), topology)

    def bump_epoch(self, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]) -> None:
        """Something has changed that the targets depend on. Raises RequestError when there is no epoch left."""
        if self.group.epoch >= INT32_MAX:
            raise RequestError(
                f"group {self.base.group_id!r} is at its last epoch {INT32_MAX}; delete it", ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        self.put(
            records.StreamsGroupMetadataKey(group_id=self.base.group_id),
            records.StreamsGroupMetadataValue(
                epoch=self.group.epoch + 1,
                metadata_hash=metadata_hash,
                validated_topology_epoch=validated_topology_epoch,
                last_assignment_configs=[
                    records.StreamsGroupKeyValue(key=key, value=value) for key, value in sorted(configs.items())
                ],
            ),
        )

    # ---- targets ---------------------------------------------------------------------------------------------------------

    def assign(self, configured: ConfiguredTopology) -> None:
        """Make the targets of this epoch; those that are as they were are not written again. Without all topics nobody has a
        task."""
        group = self.group
        targets = self._targets(configured) if group.members else {}
        before = dict(group.targets)
        for member_id in sorted(targets):
            if targets[member_id] != before.get(member_id):
                self._put_target(member_id, targets[member_id])
        self.put(
            records.StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            records.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=group.epoch, assignment_timestamp=self.wall_ms),
        )

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

    def _put_target(self, member_id: str, target: Tasks) -> None:
        self.put(
            records.StreamsGroupTargetAssignmentMemberKey(group_id=self.base.group_id, member_id=member_id),
            records.StreamsGroupTargetAssignmentMemberValue(
                active_tasks=recorded(target.active),
                standby_tasks=recorded(target.standby),
                warmup_tasks=recorded(target.warmup),
            ),
        )
