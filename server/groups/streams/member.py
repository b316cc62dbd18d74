"""A member of a Streams group, a thread of an instance of the application: its tasks, and its steps towards its target
(KIP-1071; Kafka: StreamsGroupMember, CurrentAssignmentBuilder)."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol

import attrs

from ....protocol.coordinator.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupEndpoint,
    StreamsGroupKeyValue,
    StreamsGroupMemberMetadataValue,
)
from ....protocol.errors import ErrorCode, RequestError
from ..assigned.group import AssignedMember
from .values import (
    NOTHING_HELD,
    STREAMS_TYPE,
    Endpoint,
    HeldTasks,
    StreamsHeartbeat,
    StreamsMemberDescription,
    TaskId,
    TaskIds,
    Tasks,
    epochs_from_record,
    from_record,
    recorded_held,
)

NO_TOPOLOGY: Final = -1


class MemberState(enum.IntEnum):
    """The numbers are in the log."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It has to give something up first."""
    UNRELEASED_TASKS = 3
    """Others have to give up what it is to have."""
    UNKNOWN = 127
    """A newer program wrote another one."""


_STATES: Final = {int(state): state for state in MemberState}


class Holders(Protocol):
    """The processes that have a task, or have not given it up yet: the group."""

    @property
    def active(self) -> Mapping[TaskId, str]: ...

    @property
    def copies(self) -> Mapping[TaskId, frozenset[str]]: ...


@attrs.frozen(kw_only=True)
class StreamsMember(AssignedMember):
    """See the module."""

    KIND: ClassVar[str] = STREAMS_TYPE
    PLAIN: ClassVar[tuple[str, ...]] = (*AssignedMember.PLAIN, "topology_epoch", "process_id")
    METADATA: ClassVar[type[Any]] = StreamsGroupMemberMetadataValue
    DESCRIPTION: ClassVar[type[Any]] = StreamsMemberDescription
    UNASSIGNED: ClassVar[Mapping[str, Any]] = {
        "state": MemberState.STABLE,
        "assigned": NOTHING_HELD,
        "revoking": NOTHING_HELD,
    }

    topology_epoch: int = NO_TOPOLOGY
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    """Sorted."""
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    revoking: HeldTasks = NOTHING_HELD
    """It was told to give these up, and has not confirmed it."""

    @property
    def is_revoking(self) -> bool:
        return self.state is MemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def held(self, *roles: str) -> Iterator[TaskId]:
        """Yield the tasks that it has in some roles, with those that it has to give up."""
        for tasks in (self.assigned, self.revoking):
            for role in roles:
                yield from getattr(tasks, role)

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    def news(self, request: StreamsHeartbeat) -> dict[str, Any]:
        tags = request.client_tags
        return {
            **super().news(request),
            "endpoint": request.endpoint,
            "client_tags": None if tags is None else _sorted(tags),
        }

    def has_all_of(self, request: StreamsHeartbeat) -> bool:
        owned = request.owned
        return owned is not None and self.assigned.has_all_of(owned)

    # ---- assignment ------------------------------------------------------------------------------------------------------

    def reconciled(self, target: Tasks, target_epoch: int, owned: Tasks | None, holders: Holders) -> StreamsMember:
        """Return the member a step closer to its target, if one can be made. `owned`: what it states that it has. Raises
        FENCED_MEMBER_EPOCH in an unknown state."""
        if self.is_reconciled_to(target_epoch):
            return self
        epoch = self.epoch
        if self.state is MemberState.UNREVOKED_TASKS:
            if owned is None or self.revoking.has_any_of(owned):
                return self
            epoch += 1
        if self.state is MemberState.UNKNOWN:
            if owned is None or owned:
                raise RequestError(
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                    ErrorCode.FENCED_MEMBER_EPOCH,
                )
            epoch = target_epoch
        return self._towards(target, target_epoch, epoch, owned, holders)

    def _towards(self, target: Tasks, target_epoch: int, epoch: int, owned: Tasks | None, holders: Holders) -> StreamsMember:
        before = self.assigned
        kept = HeldTasks(
            {task: since for task, since in before.active.items() if task in target.active},
            before.standby & target.standby,
            before.warmup & target.warmup,
        )
        leaving = HeldTasks(
            {task: since for task, since in before.active.items() if task not in target.active},
            before.standby - target.standby,
            before.warmup - target.warmup,
        )
        if leaving and (owned is None or leaving.has_any_of(owned)):
            return self._at(epoch, MemberState.UNREVOKED_TASKS, kept, leaving)
        coming = Tasks(target.active - kept.active.keys(), target.standby - kept.standby, target.warmup - kept.warmup)
        free = Tasks(
            frozenset(task for task in coming.active if task not in holders.active and not self._copies(holders, task)),
            self._free(coming.standby, holders),
            self._free(coming.warmup, holders),
        )
        state = MemberState.STABLE if free == coming else MemberState.UNRELEASED_TASKS
        assigned = HeldTasks(
            {**kept.active, **dict.fromkeys(free.active, target_epoch)}, kept.standby | free.standby, kept.warmup | free.warmup
        )
        return self._at(target_epoch, state, assigned, NOTHING_HELD)

    def _copies(self, holders: Holders, task: TaskId) -> bool:
        """Return whether this process has a task as standby or warm-up."""
        return self.process_id in holders.copies.get(task, ())

    def _free(self, tasks: TaskIds, holders: Holders) -> TaskIds:
        """Return the tasks of which this process has nothing in any role."""
        return frozenset(
            task for task in tasks if holders.active.get(task) != self.process_id and not self._copies(holders, task)
        )

    def _at(self, epoch: int, state: MemberState, assigned: HeldTasks, revoking: HeldTasks) -> StreamsMember:
        return attrs.evolve(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def subscription(self) -> dict[str, Any]:
        endpoint = self.endpoint
        return {
            "user_endpoint": None if endpoint is None else StreamsGroupEndpoint(host=endpoint.host, port=endpoint.port),
            "client_tags": [StreamsGroupKeyValue(key=key, value=value) for key, value in self.client_tags],
        }

    def subscription_of(self, value: StreamsGroupMemberMetadataValue) -> dict[str, Any]:
        endpoint = value.user_endpoint
        return {
            "endpoint": None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            "client_tags": _sorted({each.key: each.value for each in value.client_tags}),
        }

    def current_value(self) -> StreamsGroupCurrentMemberAssignmentValue:
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            active_tasks=recorded_held(self.assigned.active),
            standby_tasks=recorded_held(self.assigned.standby),
            warmup_tasks=recorded_held(self.assigned.warmup),
            active_tasks_pending_revocation=recorded_held(self.revoking.active),
            standby_tasks_pending_revocation=recorded_held(self.revoking.standby),
            warmup_tasks_pending_revocation=recorded_held(self.revoking.warmup),
        )

    def assignment_of(self, value: StreamsGroupCurrentMemberAssignmentValue) -> dict[str, Any]:
        return {
            "state": _STATES.get(value.state, MemberState.UNKNOWN),
            "assigned": HeldTasks(
                epochs_from_record(value.active_tasks, value.member_epoch),
                from_record(value.standby_tasks),
                from_record(value.warmup_tasks),
            ),
            "revoking": HeldTasks(
                epochs_from_record(value.active_tasks_pending_revocation, value.member_epoch),
                from_record(value.standby_tasks_pending_revocation),
                from_record(value.warmup_tasks_pending_revocation),
            ),
        }

    def described(self, target: Tasks, **more: Any) -> Any:
        return super().described(target, assignment=self.assigned.tasks, revoking=self.revoking.tasks, **more)


def _sorted(tags: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items()))
