"""All groups whose assignments the server makes: heartbeats, and the passing of time (KIP-848; Kafka: GroupMetadataManager's
ConsumerGroup half).

A command *plans*: it answers with records to store and changes nothing. Once they are in the log `commit` makes the plan true;
a plan that cannot be stored is dropped. Between a plan for a group and its commit no other one is made for that group: whoever
owns this sees to that. A plan without records is committed at once.

Not built: members that speak the classic protocol in a group of this kind (Kafka's online migration). A group changes its kind
when it is empty.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from ...protocol.coordinator.consumer_group_records import ConsumerGroupMetadataKey, ConsumerGroupRecord
from ...protocol.errors import ErrorCode, RequestError
from .consumer_assignors import NO_PARTITIONS
from .consumer_checks import check_heartbeat, check_room, unknown_member
from .consumer_draft import Draft
from .consumer_group import FIRST_EPOCH, ConsumerGroup
from .consumer_member import ConsumerMember, MemberState
from .consumer_values import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    ConsumerTimerKey,
    MemberTimes,
    TimerKind,
    TopicImage,
)
from .managed.group_table import GroupTable


@attrs.frozen(kw_only=True)
class Plan:
    """What a command has come to: `commit` makes it so."""

    records: tuple[ConsumerGroupRecord, ...]
    """To be stored, all or none."""
    answer: ConsumerHeartbeatAnswer | None = None
    base: ConsumerGroup
    group: ConsumerGroup
    touched: frozenset[str] = frozenset()
    alive: str | None = None
    """Whose session begins anew."""
    seen_version: int | None = None


@attrs.define(eq=False, repr=False)
class ConsumerGroups(GroupTable[ConsumerGroup, ConsumerTimerKey]):
    """See the module. Owner of all groups of this kind; whoever makes it calls it from one task at a time."""

    METADATA_KEY: ClassVar[type[Any]] = ConsumerGroupMetadataKey

    settings: ConsumerGroupSettings
    topics: TopicImage
    times_of: Callable[[str], MemberTimes] | None = None
    """Of a group's members, where groups have their own; a change counts from the next heartbeat on."""
    _new_member_id: Callable[[], str] = lambda: str(uuid.uuid4())

    def _new_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id=group_id)

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat, wall_ms: int) -> Plan:
        """What a heartbeat leads to. Raises RequestError; then nothing has come of it."""
        check_heartbeat(request)
        if request.is_leaving:
            return self._leave(request, wall_ms)
        draft = Draft(self._group_for(request), self.topics, wall_ms)
        check_room(draft.base, request.member_id, self.settings)
        member_id = request.member_id or self._new_member_id()
        known = self._subscribe(draft, request, member_id)
        member = known.updated(request)
        if member != known or member_id not in draft.group.members:
            draft.put_member(member)
        self._follow_subscription(draft, known, member)
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        member = self._reconcile(draft, member, request)
        # What the client knows is what it was told before this heartbeat, whoever it was then.
        is_told = request.member_epoch == JOIN_EPOCH or request.is_full or member.assigned != known.assigned
        answer = ConsumerHeartbeatAnswer(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._times(request.group_id).heartbeat_interval_ms,
            assignment=member.assigned if is_told else None,
        )
        return _plan(draft, answer, alive=member_id, seen_version=self.topics.version)

    def _group_for(self, request: ConsumerHeartbeat) -> ConsumerGroup:
        group = self._groups.get(request.group_id)
        if group is not None:
            return group
        if request.member_epoch != JOIN_EPOCH:
            raise _unknown_to_heartbeat(request.group_id)
        if len(self._groups) >= self.settings.max_groups:
            raise RequestError(
                f"there are {len(self._groups)} groups, max_groups={self.settings.max_groups}", ErrorCode.POLICY_VIOLATION
            )
        return self._new_group(request.group_id)

    def _subscribe(self, draft: Draft, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
        """The member that speaks: known, new, or a static one in another's place."""
        group, instance_id = draft.base, request.instance_id
        is_joining = request.member_epoch == JOIN_EPOCH
        if instance_id is None or (is_joining and instance_id not in group.static_members):
            member = group.members.get(member_id)
            if member is None and not is_joining:
                raise unknown_member(request.group_id, f"{member_id!r}")
            member = member or ConsumerMember(member_id=member_id)
            if instance_id is None:
                member.check_epoch(request)
            return member
        if not is_joining:
            member = self._static_member(group, request)
            member.check_epoch(request)
            return member
        there = group.members[group.static_members[instance_id]]
        if there.epoch != LEAVE_STATIC_EPOCH:
            raise RequestError(
                f"static member {member_id!r} with instance id {instance_id!r} cannot join group {group.group_id!r}: member "
                f"{there.member_id!r} has that instance id and has not left",
                ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        return draft.replace_static(there, member_id)

    @staticmethod
    def _static_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        instance_id = request.instance_id or ""
        if instance_id not in group.static_members:
            raise unknown_member(group.group_id, f"instance id {instance_id!r}")
        there = group.members[group.static_members[instance_id]]
        if there.member_id != request.member_id:
            raise RequestError(
                f"static member {request.member_id!r} with instance id {instance_id!r} was fenced by {there.member_id!r}, which"
                f" has taken its place in group {group.group_id!r}",
                ErrorCode.FENCED_INSTANCE_ID,
            )
        return there

    @staticmethod
    def _follow_subscription(draft: Draft, known: ConsumerMember, member: ConsumerMember) -> None:
        """The group has another epoch when what there is to assign, or to whom, has changed."""
        regex_changed = (known.topic_regex or "") != (member.topic_regex or "")
        changed = draft.base.epoch <= FIRST_EPOCH or known.topic_names != member.topic_names or regex_changed
        if member.topic_regex:
            changed |= member.topic_regex not in draft.group.regexes
            draft.resolve_new_regex(member.topic_regex)
        if regex_changed:
            draft.drop_unused_regexes()
        if draft.topics.version != draft.base.seen_version:
            changed |= draft.refresh_regexes()
            changed |= draft.metadata_hash() != draft.group.metadata_hash
        if changed:
            draft.bump_epoch()

    @staticmethod
    def _reconcile(draft: Draft, member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
        group = draft.group
        reconciled = member.reconciled(
            group.targets.get(member.member_id, NO_PARTITIONS),
            group.assignment_epoch,
            request.owned,
            lambda partition: group.owners.get(partition, member.member_id) != member.member_id,
        )
        if reconciled != member:
            draft.put_current(reconciled)
        return reconciled

    def _leave(self, request: ConsumerHeartbeat, wall_ms: int) -> Plan:
        group = self._groups.get(request.group_id)
        if group is None:
            raise _unknown_to_heartbeat(request.group_id)
        draft = Draft(group, self.topics, wall_ms)
        if request.instance_id is not None:
            member = self._static_member(group, request)
        elif request.member_id in group.members:
            member = group.members[request.member_id]
        else:
            raise unknown_member(group.group_id, f"{request.member_id!r}")
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            draft.put_current(member.away())
        else:
            draft.fence(member.member_id)
        return _plan(draft, ConsumerHeartbeatAnswer(member_id=member.member_id, member_epoch=request.member_epoch))

    # ---- time ------------------------------------------------------------------------------------------------------------

    def expire(self, key: ConsumerTimerKey, wall_ms: int) -> Plan | None:
        """Take a member out whose time is over, unless it has done meanwhile what was asked of it."""
        group = self._groups.get(key.group_id)
        member = group.members.get(key.member_id) if group is not None else None
        if group is None or member is None or self.timers.deadline(key) is not None:
            return None
        if key.kind is TimerKind.REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return None
        draft = Draft(group, self.topics, wall_ms)
        draft.fence(key.member_id)
        return _plan(draft)

    # ---- what was planned comes true -------------------------------------------------------------------------------------

    def commit(self, plan: Plan, now_ms: int) -> None:
        """The records of a plan are in the log, or it has none."""
        group, before = plan.group, plan.base
        assert self._groups.get(group.group_id, before) is before, f"{group.group_id}: two plans at once"
        if plan.records:
            self._groups[group.group_id] = group
        if plan.seen_version is not None:
            group.seen_version = plan.seen_version
        for member_id in plan.touched:
            self._time_rebalance(group, member_id, now_ms)
        if plan.alive is not None:
            self._time_session(group.group_id, plan.alive, now_ms)

    def _time_rebalance(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        key = ConsumerTimerKey(group.group_id, member_id, TimerKind.REBALANCE)
        member = group.members.get(member_id)
        if member is not None and member.state is MemberState.UNREVOKED_PARTITIONS:
            self.timers.set(key, now_ms + max(member.rebalance_timeout_ms, 1))
        else:
            self.timers.cancel(key)
        if member is None:
            self.timers.cancel(key._replace(kind=TimerKind.SESSION))

    def _times(self, group_id: str) -> MemberTimes:
        if self.times_of is not None:
            return self.times_of(group_id)
        return MemberTimes(self.settings.heartbeat_interval_ms, self.settings.session_timeout_ms)

    def _time_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        key = ConsumerTimerKey(group_id, member_id, TimerKind.SESSION)
        self.timers.set(key, now_ms + max(self._times(group_id).session_timeout_ms, 1))

    # ---- the log ---------------------------------------------------------------------------------------------------------

    def begin_sessions(self, now_ms: int) -> None:
        """The sessions of all members begin."""
        for group in self._groups.values():
            for member_id in group.members:
                self._time_rebalance(group, member_id, now_ms)
                self._time_session(group.group_id, member_id, now_ms)

    def plan_removal(self, group_id: str) -> Plan:
        """Take an empty group out. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise unknown_group(group_id)
        if group.members:
            raise RequestError(
                f"group {group_id!r} has {len(group.members)} members; stop them first", ErrorCode.NON_EMPTY_GROUP
            )
        return Plan(records=tuple(group.tombstones()), base=group, group=group)


def unknown_group(group_id: str) -> RequestError:
    return RequestError(f"Group {group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)


def _unknown_to_heartbeat(group_id: str) -> RequestError:
    return RequestError(f"Consumer group {group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)


def _plan(
    draft: Draft,
    answer: ConsumerHeartbeatAnswer | None = None,
    *,
    alive: str | None = None,
    seen_version: int | None = None,
) -> Plan:
    return Plan(
        records=tuple(draft.records),
        answer=answer,
        base=draft.base,
        group=draft.group,
        touched=frozenset(draft.touched),
        alive=alive,
        seen_version=seen_version,
    )
