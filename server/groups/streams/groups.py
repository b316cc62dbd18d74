"""All Streams groups, and the checks of their heartbeats (KIP-1071; Kafka: GroupMetadataManager's StreamsGroup half,
throwIfStreamsGroupHeartbeatRequestIsInvalid).

Kafka makes assignments no more often than `streams.assignment.interval.ms` says; here they are made at once. Heartbeats are
refused for the parts of KIP-1071 that Kafka 4.3 refuses too: static members, offsets of tasks, warm-up tasks, patterns for
source topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import attrs

from ....protocol.coordinator import streams_group_records as records
from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ..assigned.group import GroupDraft
from ..assigned.groups import AssignedGroups, Plan, check_names
from ..assigned.values import (
    LEAVE_STATIC_EPOCH,
    NO_TIMEOUT,
    MemberHeartbeat,
    TimerKey,
    TimerKind,
    TopicImage,
    by_first,
    metadata_hash,
)
from .group import STANDBY_REPLICAS, GroupMemory, StreamsDraft, StreamsGroup, metadata_facts
from .member import StreamsMember
from .topology import ConfiguredSubtopology, ConfiguredTopology, Topology, check_topology, configure
from .values import (
    NO_TASKS,
    EndpointPartitions,
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    StreamsStatus,
    StreamsStatusCode,
    StreamsTimes,
    TaskIds,
    Tasks,
)


def check_heartbeat(request: StreamsHeartbeat) -> None:
    """Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    _check_supported(request)
    check_names(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id)
    if request.is_joining:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    owned = request.active, request.standby, request.warmup
    if any(each is not None for each in owned) and any(each is None for each in owned):
        raise InvalidRequestError("If one task-type is non-null, all must be non-null.")
    if not request.is_joining and request.topology is not None:
        raise InvalidRequestError("Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsHeartbeat) -> None:
    for is_there, refusal in (
        (request.instance_id is not None, "Static membership is not yet supported."),
        (request.has_task_offsets, "TaskOffsets are not supported yet."),
        (request.has_task_end_offsets, "TaskEndOffsets are not supported yet."),
        (bool(request.warmup), "WarmupTasks are not supported yet."),
    ):
        if is_there:
            raise InvalidRequestError(refusal)
    parts = request.topology.subtopologies if request.topology is not None else ()
    if any(part.source_topic_regex for part in parts):
        raise InvalidRequestError("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    for name, owned in (("Active", request.active), ("Standby", request.standby), ("Warmup", request.warmup)):
        if owned is None or owned:
            raise InvalidRequestError(f"{name}Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidRequestError("Topology must be non-null when (re-)joining.")
    check_topology(request.topology)


def check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology], tasks: TaskIds | None) -> None:
    """Raises INVALID_REQUEST for tasks that do not exist."""
    for task in sorted(tasks or ()):
        part = subtopologies.get(task.subtopology_id)
        if part is None:
            raise InvalidRequestError(f"Subtopology {task.subtopology_id} does not exist in the topology.")
        if not 0 <= task.partition < part.task_count:
            raise InvalidRequestError(
                f"Task {task.partition} for subtopology {task.subtopology_id} is invalid. Number of tasks for this "
                f"subtopology: {part.task_count}"
            )


DELAYED = StreamsStatus(
    StreamsStatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)


@attrs.define(eq=False, repr=False)
class StreamsGroups(AssignedGroups[StreamsGroup]):
    """See the module and `AssignedGroups`."""

    GROUP: ClassVar[type[Any]] = StreamsGroup
    DRAFT: ClassVar[type[Any]] = StreamsDraft
    ANSWER: ClassVar[type[Any]] = StreamsHeartbeatAnswer

    times_of: Callable[[str], StreamsTimes] = lambda _: StreamsTimes()

    check = staticmethod(check_heartbeat)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def needs_space(self, group: StreamsGroup, request: MemberHeartbeat) -> bool:
        """A full group refuses its own members too when they join again, as in Kafka."""
        return request.is_joining

    def leave(self, request: StreamsHeartbeat, wall_ms: int) -> Plan[StreamsGroup]:
        plan = super().leave(request, wall_ms)
        return attrs.evolve(plan, memory=_requested_shutdown(plan.memory, request)) if plan.group.members else plan

    def plan(self, draft: GroupDraft[StreamsGroup], answer: Any | None = None, **more: Any) -> Plan[StreamsGroup]:
        """Plan as usual, but withdraw the requested shutdown of the application once the last member has left."""
        memory = more.pop("memory", draft.base.memory)
        if not draft.group.members:
            memory = attrs.evolve(memory, shutdown_member_id=None)
        return super().plan(draft, answer, memory=memory, **more)

    # ---- assignment ------------------------------------------------------------------------------------------------------

    def advance(
        self, draft: StreamsDraft, request: StreamsHeartbeat, known: StreamsMember, member: StreamsMember
    ) -> Plan[StreamsGroup]:
        base, times = draft.base, self.times_of(request.group_id)
        topology = _topology(draft, request)
        is_changed = member.member_id not in base.members or member is not known
        configured = self._follow(draft, request, topology, is_changed=is_changed, replicas=times.num_standby_replicas)
        begins_delay = not base.members and times.initial_rebalance_delay_ms > 0
        is_delayed = begins_delay or self._is_delayed(request.group_id)
        if not is_delayed and draft.group.epoch > draft.group.assignment_epoch:
            draft.assign(configured)
        target = NO_TASKS if is_delayed else draft.group.targets.get(member.member_id, NO_TASKS)
        reconciled = _reconcile(draft, member, target, request)
        is_news = request.is_joining or reconciled.assigned != known.assigned
        moves_tasks = member.endpoint is not None and is_news
        memory = self._memory(base, request, configured, moves_tasks=moves_tasks)
        knows_endpoints = base.memory.endpoint_epoch + moves_tasks == request.endpoint_epoch
        answer = StreamsHeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=times.heartbeat_interval_ms,
            statuses=(*_stale(base.topology, member), *_statuses(memory, is_delayed=is_delayed)),
            assignment=reconciled.assigned.tasks if is_news else None,
            endpoint_epoch=memory.endpoint_epoch,
            endpoints=None if knows_endpoints else self._endpoints(draft.group, configured),
            missing_topics=configured.missing,
        )
        return self.plan(
            draft,
            answer,
            alive=member.member_id,
            seen_version=self.topics.version,
            memory=memory,
            begins_delay=begins_delay,
        )

    def _follow(
        self, draft: StreamsDraft, request: StreamsHeartbeat, topology: Topology, *, is_changed: bool, replicas: int
    ) -> ConfiguredTopology:
        """Return the topology with the present topics. Begin another epoch when what there is to assign, to whom, or how has
        changed."""
        base = draft.base
        configured, hash_now = base.memory.configured, base.metadata_hash
        if configured is None or base.topology is None or base.seen_version != self.topics.version:
            hash_now = metadata_hash(topology.required_topics(), self.topics)
            if configured is None or base.topology is None or hash_now != base.metadata_hash:
                configured = configure(topology, self.topics)
                # A description shows it from now on, also when this heartbeat is refused below (as in Kafka).
                base.memory = attrs.evolve(base.memory, configured=configured)
        validated = topology.epoch if configured.is_ready else -1
        if configured.subtopologies is not None and configured.is_ready:
            for owned in (request.active, request.standby, request.warmup):
                check_tasks(configured.subtopologies, owned)
        now = hash_now, validated, {STANDBY_REPLICAS: str(replicas)}
        if is_changed or now != (base.metadata_hash, base.validated_topology_epoch, base.assignment_configs):
            draft.bump_epoch(**metadata_facts(*now))
        return configured

    def _memory(
        self, base: StreamsGroup, request: StreamsHeartbeat, configured: ConfiguredTopology, *, moves_tasks: bool
    ) -> GroupMemory:
        """Return what the group remembers of a heartbeat. `moves_tasks`: of a member with an endpoint; as in Kafka those of the
        first member of a group do not count."""
        counts = moves_tasks and request.group_id in self
        memory = GroupMemory(
            configured=configured,
            endpoint_epoch=base.memory.endpoint_epoch + counts,
            shutdown_member_id=base.memory.shutdown_member_id,
        )
        return _requested_shutdown(memory, request)

    def _endpoints(self, group: StreamsGroup, configured: ConfiguredTopology) -> tuple[EndpointPartitions, ...]:
        found = (_endpoint_partitions(group.members[name], configured, self.topics) for name in sorted(group.members))
        return tuple(each for each in found if each is not None)

    # ---- time ------------------------------------------------------------------------------------------------------------

    def expire(self, key: TimerKey, wall_ms: int) -> Plan[StreamsGroup] | None:
        """As for other groups. A group that has waited for more members gets its tasks."""
        if key.kind is not TimerKind.INITIAL:
            return super().expire(key, wall_ms)
        group = self.find(key.group_id)
        configured = None if group is None else group.memory.configured
        if group is None or configured is None or not group.members or group.epoch <= group.assignment_epoch:
            return None
        if self._is_delayed(key.group_id):
            return None
        draft = StreamsDraft(group, self.topics, wall_ms)
        draft.assign(configured)
        return self.plan(draft)

    def commit(self, plan: Plan[StreamsGroup], now_ms: int) -> None:
        super().commit(plan, now_ms)
        plan.group.memory = plan.memory
        group_id = plan.group.group_id
        if plan.begins_delay and not self._is_delayed(group_id):
            delay_ms = max(self.times_of(group_id).initial_rebalance_delay_ms, 1)
            self.timers.set(TimerKey(group_id, "", TimerKind.INITIAL), now_ms + delay_ms)

    def _is_delayed(self, group_id: str) -> bool:
        """Return whether the group waits for more members."""
        return self.timers.deadline(TimerKey(group_id, "", TimerKind.INITIAL)) is not None

    def describe(self, group: StreamsGroup) -> StreamsGroupDescription:
        return group.describe(_statuses(group.memory, is_delayed=self._is_delayed(group.group_id)))


def _requested_shutdown(memory: GroupMemory, request: StreamsHeartbeat) -> GroupMemory:
    """Remember the first member that requests the end of the application."""
    if not request.shutdown_application or memory.shutdown_member_id is not None:
        return memory
    return attrs.evolve(memory, shutdown_member_id=request.member_id)


def _stale(topology: Topology | None, member: StreamsMember) -> list[StreamsStatus]:
    if topology is None or member.topology_epoch >= topology.epoch:
        return []
    detail = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}."
    return [StreamsStatus(StreamsStatusCode.STALE_TOPOLOGY, detail)]


def _topology(draft: StreamsDraft, request: StreamsHeartbeat) -> Topology:
    """Return the group's topology, which is that of its first member. Raises INVALID_REQUEST for another one."""
    known, said = draft.base.topology, request.topology
    if known is None:
        if said is None:
            raise RequestError("The topology is null and the group topology is also null.", ErrorCode.UNKNOWN_SERVER_ERROR)
        draft.put_own(records.StreamsGroupTopologyKey, said)
        return Topology.of(said)
    if said is not None and said.epoch >= known.epoch and Topology.of(said) != known:
        raise InvalidRequestError("Topology updates are not supported yet.")
    return known


def _reconcile(draft: StreamsDraft, member: StreamsMember, target: Tasks, request: StreamsHeartbeat) -> StreamsMember:
    group = draft.group
    reconciled = member.reconciled(target, group.assignment_epoch, request.owned, group)
    if reconciled != member:
        draft.put_current(reconciled)
    return reconciled


def _statuses(memory: GroupMemory, *, is_delayed: bool) -> Iterator[StreamsStatus]:
    """Yield the statuses that every member gets beside its tasks."""
    if is_delayed:
        yield DELAYED
    if memory.configured is not None and memory.configured.problem is not None:
        yield memory.configured.problem
    if memory.shutdown_member_id is not None:
        detail = (
            f"Streams group member {memory.shutdown_member_id} encountered a fatal error and requested a shutdown for the "
            "entire application."
        )
        yield StreamsStatus(StreamsStatusCode.SHUTDOWN_APPLICATION, detail)


def _endpoint_partitions(
    member: StreamsMember, configured: ConfiguredTopology | None, topics: TopicImage
) -> EndpointPartitions | None:
    """Return the partitions that an endpoint has the state of (Kafka: EndpointToPartitionsManager); None without one."""
    if member.endpoint is None:
        return None
    active = _read_by(frozenset(member.assigned.active), configured, topics)
    return EndpointPartitions(member.endpoint, active, _read_by(member.assigned.standby, configured, topics))


def _read_by(
    tasks: TaskIds, configured: ConfiguredTopology | None, topics: TopicImage
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the partitions of the topics that tasks read. A topic with fewer partitions than tasks has the first ones, as in
    Kafka."""
    parts = (None if configured is None else configured.subtopologies) or {}
    found = []
    for subtopology_id, numbers in by_first(tasks).items():
        part = parts.get(subtopology_id)
        names = () if part is None else {*part.source_topics, *(each.name for each in part.repartition_source_topics)}
        for name in sorted(names):
            topic = topics.find(name)
            if topic is not None:
                found.append((name, tuple(numbers[: topic.partitions])))
    return tuple(found)
