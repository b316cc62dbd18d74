"""All Streams groups: heartbeats, and the passing of time (KIP-1071; Kafka: GroupMetadataManager's StreamsGroup half).

A command *plans*: it answers with records to store and changes nothing. Once they are in the log `commit` makes the plan true;
a plan that cannot be stored is dropped. Between a plan for a group and its commit no other one is made for that group: whoever
owns this sees to that. A plan without records is committed at once.

Kafka makes assignments no more often than `streams.assignment.interval.ms` says; here they are made at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import attrs

from ....protocol.coordinator.streams_group_records import StreamsGroupMetadataKey, StreamsGroupRecord
from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ..consumer_values import TopicImage
from ..managed.group_table import GroupTable
from ..managed.metadata_hash import metadata_hash
from .checks import check_heartbeat, check_tasks, unknown_group, unknown_member
from .configured import ConfiguredTopology, configure
from .draft import STANDBY_REPLICAS, StreamsDraft
from .endpoints import endpoint_partitions
from .group import GroupMemory, StreamsGroup
from .member import MemberState, StreamsMember
from .tasks import NO_TASKS, Tasks
from .topology import Topology
from .values import (
    EndpointPartitions,
    StreamsGroupDescription,
    StreamsGroupSettings,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    StreamsStatus,
    StreamsStatusCode,
    StreamsTimerKey,
    StreamsTimerKind,
    StreamsTimes,
)

DELAYED = StreamsStatus(
    StreamsStatusCode.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)


@attrs.frozen(kw_only=True)
class StreamsPlan:
    """What a command has come to: `commit` makes it so."""

    records: tuple[StreamsGroupRecord, ...]
    """To be stored, all or none."""
    answer: StreamsHeartbeatAnswer | None = None
    base: StreamsGroup
    group: StreamsGroup
    memory: GroupMemory
    reconciled: str | None = None
    """Whose state of revocation has changed."""
    alive: str | None = None
    """Whose session begins anew."""
    begins_delay: bool = False
    """The group waits for more members from now on."""


@attrs.define(eq=False, repr=False)
class StreamsGroups(GroupTable[StreamsGroup, StreamsTimerKey]):
    """See the module. Owner of all Streams groups; whoever makes it calls it from one task at a time."""

    METADATA_KEY: ClassVar[type[Any]] = StreamsGroupMetadataKey

    settings: StreamsGroupSettings
    topics: TopicImage
    times_of: Callable[[str], StreamsTimes] = lambda _: StreamsTimes()
    """Of a group; a change counts from the next heartbeat on."""

    def _new_group(self, group_id: str) -> StreamsGroup:
        return StreamsGroup(group_id=group_id)

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: StreamsHeartbeat, wall_ms: int) -> StreamsPlan:
        """What a heartbeat leads to. Raises RequestError; then nothing has come of it."""
        check_heartbeat(request)
        if request.is_leaving:
            return self._leave(request, wall_ms)
        draft = StreamsDraft(self._group_for(request), self.topics, wall_ms)
        base, times = draft.base, self.times_of(request.group_id)
        known = base.members.get(request.member_id)
        if known is None and not request.is_joining:
            raise unknown_member(request.group_id, request.member_id)
        before = known or StreamsMember(member_id=request.member_id)
        before.check_epoch(request)
        member = before.updated(request)
        if member != known:
            draft.put_member(member)
        topology = _topology(draft, request)
        configured = self._follow(draft, request, topology, is_changed=member != known, replicas=times.num_standby_replicas)
        begins_delay = not base.members and times.initial_rebalance_delay_ms > 0
        is_delayed = begins_delay or self._is_delayed(request.group_id)
        if is_delayed:
            target = NO_TASKS
        else:
            if draft.group.epoch > draft.group.assignment_epoch:
                draft.assign(configured)
            target = draft.group.targets.get(member.member_id, NO_TASKS)
        reconciled = _reconcile(draft, member, target, request)
        moves_tasks = member.endpoint is not None and _has_other_tasks(request, before, reconciled)
        memory = self._memory(base, request, configured, moves_tasks=moves_tasks)
        return StreamsPlan(
            records=tuple(draft.records),
            answer=StreamsHeartbeatAnswer(
                member_id=member.member_id,
                member_epoch=reconciled.epoch,
                heartbeat_interval_ms=times.heartbeat_interval_ms,
                statuses=(*_stale(base.topology, member), *_statuses(memory, is_delayed=is_delayed)),
                assignment=reconciled.assigned.tasks if _has_other_tasks(request, before, reconciled) else None,
                endpoint_epoch=memory.endpoint_epoch,
                endpoints=self._endpoints(draft.group, configured)
                if base.memory.endpoint_epoch + moves_tasks != request.endpoint_epoch
                else None,
                missing_topics=configured.missing,
            ),
            base=base,
            group=draft.group,
            memory=memory,
            reconciled=member.member_id if reconciled != member else None,
            alive=member.member_id,
            begins_delay=begins_delay,
        )

    def _group_for(self, request: StreamsHeartbeat) -> StreamsGroup:
        group = self._groups.get(request.group_id)
        if not request.is_joining:
            if group is None:
                raise RequestError(f"Streams group {request.group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)
            return group
        if group is None and len(self._groups) >= self.settings.max_groups:
            raise RequestError(
                f"there are {len(self._groups)} Streams groups, max_groups={self.settings.max_groups}",
                ErrorCode.POLICY_VIOLATION,
            )
        group = group or self._new_group(request.group_id)
        if len(group.members) >= self.settings.max_size:
            raise RequestError(
                f"The streams group has reached its maximum capacity of {self.settings.max_size} members.",
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )
        return group

    def _follow(
        self, draft: StreamsDraft, request: StreamsHeartbeat, topology: Topology, *, is_changed: bool, replicas: int
    ) -> ConfiguredTopology:
        """The topology with the topics as they are; the group has another epoch when what there is to assign, to whom, or how
        has changed."""
        base = draft.base
        configured, hash_now = base.memory.configured, base.metadata_hash
        if configured is None or base.topology is None or base.memory.seen_version != self.topics.version:
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
            draft.bump_epoch(*now)
        return configured

    def _memory(
        self, base: StreamsGroup, request: StreamsHeartbeat, configured: ConfiguredTopology, *, moves_tasks: bool
    ) -> GroupMemory:
        """What is remembered of a heartbeat. `moves_tasks`: of a member with an endpoint; as in Kafka those of the first member
        of a group do not count."""
        known, is_new = base.memory, request.group_id not in self._groups
        asks = request.member_id if request.shutdown_application else None
        return GroupMemory(
            configured=configured,
            seen_version=self.topics.version,
            endpoint_epoch=known.endpoint_epoch + (moves_tasks and not is_new),
            shutdown_member_id=known.shutdown_member_id or asks,
        )

    def _endpoints(self, group: StreamsGroup, configured: ConfiguredTopology) -> tuple[EndpointPartitions, ...]:
        found = (endpoint_partitions(group.members[name], configured, self.topics) for name in sorted(group.members))
        return tuple(each for each in found if each is not None)

    def _leave(self, request: StreamsHeartbeat, wall_ms: int) -> StreamsPlan:
        group = self.known(request.group_id)
        if request.member_id not in group.members:
            raise unknown_member(group.group_id, request.member_id)
        draft = StreamsDraft(group, self.topics, wall_ms)
        draft.fence(request.member_id)
        asks = request.member_id if request.shutdown_application else None
        memory = attrs.evolve(group.memory, shutdown_member_id=group.memory.shutdown_member_id or asks)
        return _fenced(draft, memory, StreamsHeartbeatAnswer(member_id=request.member_id, member_epoch=request.member_epoch))

    # ---- time ------------------------------------------------------------------------------------------------------------

    def expire(self, key: StreamsTimerKey, wall_ms: int) -> StreamsPlan | None:
        """What follows from a time that is over: a member goes, unless it has done meanwhile what was asked of it; a group that
        has waited for more members gets its tasks."""
        group = self._groups.get(key.group_id)
        if group is None or self.timers.deadline(key) is not None:
            return None
        draft = StreamsDraft(group, self.topics, wall_ms)
        if key.kind is StreamsTimerKind.INITIAL:
            return self._delay_over(draft)
        member = group.members.get(key.member_id)
        if member is None:
            return None
        if key.kind is StreamsTimerKind.REBALANCE and member.state is not MemberState.UNREVOKED_TASKS:
            return None
        draft.fence(key.member_id)
        return _fenced(draft, group.memory)

    def _delay_over(self, draft: StreamsDraft) -> StreamsPlan | None:
        group = draft.base
        if not group.members or group.epoch <= group.assignment_epoch or group.memory.configured is None:
            return None
        draft.assign(group.memory.configured)
        return StreamsPlan(records=tuple(draft.records), base=group, group=draft.group, memory=group.memory)

    # ---- what was planned comes true -------------------------------------------------------------------------------------

    def commit(self, plan: StreamsPlan, now_ms: int) -> None:
        """The records of a plan are in the log, or it has none."""
        group, before = plan.group, plan.base
        assert self._groups.get(group.group_id, before) is before, f"{group.group_id}: two plans at once"
        if plan.records:
            self._groups[group.group_id] = group
        group.memory = plan.memory
        for member_id in before.members.keys() - group.members.keys():
            for kind in (StreamsTimerKind.SESSION, StreamsTimerKind.REBALANCE):
                self.timers.cancel(StreamsTimerKey(group.group_id, member_id, kind))
        if plan.reconciled is not None:
            self._time_rebalance(group, plan.reconciled, now_ms)
        if plan.alive is not None:
            self._time_session(group.group_id, plan.alive, now_ms)
        if plan.begins_delay:
            self._time_delay(group.group_id, now_ms)

    def _time_rebalance(self, group: StreamsGroup, member_id: str, now_ms: int) -> None:
        key = StreamsTimerKey(group.group_id, member_id, StreamsTimerKind.REBALANCE)
        member = group.members[member_id]
        if member.state is MemberState.UNREVOKED_TASKS:
            self.timers.set(key, now_ms + max(member.rebalance_timeout_ms, 1))
        else:
            self.timers.cancel(key)

    def _time_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        key = StreamsTimerKey(group_id, member_id, StreamsTimerKind.SESSION)
        self.timers.set(key, now_ms + max(self.times_of(group_id).session_timeout_ms, 1))

    def _time_delay(self, group_id: str, now_ms: int) -> None:
        if not self._is_delayed(group_id):
            delay_ms = max(self.times_of(group_id).initial_rebalance_delay_ms, 1)
            self.timers.set(StreamsTimerKey(group_id, "", StreamsTimerKind.INITIAL), now_ms + delay_ms)

    def _is_delayed(self, group_id: str) -> bool:
        """Whether the group waits for more members."""
        return self.timers.deadline(StreamsTimerKey(group_id, "", StreamsTimerKind.INITIAL)) is not None

    def begin_sessions(self, now_ms: int) -> None:
        """The sessions of all members begin."""
        for group in self._groups.values():
            for member_id in group.members:
                self._time_rebalance(group, member_id, now_ms)
                self._time_session(group.group_id, member_id, now_ms)

    # ---- questions and removal -------------------------------------------------------------------------------------------

    def describe(self, group: StreamsGroup) -> StreamsGroupDescription:
        return group.describe(_statuses(group.memory, is_delayed=self._is_delayed(group.group_id)))

    def known(self, group_id: str) -> StreamsGroup:
        """Not to be changed. Raises GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise unknown_group(group_id)
        return group

    def plan_removal(self, group_id: str) -> StreamsPlan:
        """Take an empty group out. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.known(group_id)
        if group.members:
            raise RequestError("The group is not empty.", ErrorCode.NON_EMPTY_GROUP)
        return StreamsPlan(records=tuple(group.tombstones()), base=group, group=group, memory=group.memory)

    def forget(self, group_id: str) -> None:
        """Its removal is in the log."""
        self.timers.cancel(StreamsTimerKey(group_id, "", StreamsTimerKind.INITIAL))
        super().forget(group_id)


def _stale(topology: Topology | None, member: StreamsMember) -> list[StreamsStatus]:
    if topology is None or member.topology_epoch >= topology.epoch:
        return []
    detail = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}."
    return [StreamsStatus(StreamsStatusCode.STALE_TOPOLOGY, detail)]


def _topology(draft: StreamsDraft, request: StreamsHeartbeat) -> Topology:
    """The group's topology, which is that of its first member. Raises INVALID_REQUEST for another one."""
    known, said = draft.base.topology, request.topology
    if known is None:
        if said is None:
            raise RequestError("The topology is null and the group topology is also null.", ErrorCode.UNKNOWN_SERVER_ERROR)
        draft.put_topology(said)
        return Topology.of(said)
    if said is not None and said.epoch >= known.epoch and Topology.of(said) != known:
        raise InvalidRequestError("Topology updates are not supported yet.")
    return known


def _reconcile(draft: StreamsDraft, member: StreamsMember, target: Tasks, request: StreamsHeartbeat) -> StreamsMember:
    group = draft.group
    reconciled = member.reconciled(target, group.assignment_epoch, request.owned, group.holders)
    if reconciled != member:
        draft.put_current(reconciled)
    return reconciled


def _has_other_tasks(request: StreamsHeartbeat, before: StreamsMember, after: StreamsMember) -> bool:
    """Whether the member has to be told what it is to run."""
    return request.is_joining or after.assigned != before.assigned


def _statuses(memory: GroupMemory, *, is_delayed: bool) -> Iterator[StreamsStatus]:
    """What every member is told beside its tasks."""
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


def _fenced(draft: StreamsDraft, memory: GroupMemory, answer: StreamsHeartbeatAnswer | None = None) -> StreamsPlan:
    """A member is out. When it was the last one, nobody wants the end of the application any more."""
    if not draft.group.members:
        memory = attrs.evolve(memory, shutdown_member_id=None)
    return StreamsPlan(records=tuple(draft.records), answer=answer, base=draft.base, group=draft.group, memory=memory)
