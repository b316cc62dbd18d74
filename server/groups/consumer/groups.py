"""All consumer groups (KIP-848; Kafka: GroupMetadataManager's half for them).

A group of one protocol becomes one of the other while it has members (Kafka's online migration): a classic group when the first
member joins that uses this protocol, a consumer group when the last one of these has gone. Both replace all records of the
group in one batch. See `conversion` for the rules, and `classic_members` for members of the other protocol in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, ClassVar, Final

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ..assigned.groups import AssignedGroups, Plan
from ..assigned.values import LEAVE_STATIC_EPOCH, HeartbeatAnswer, TimerKey, TimerKind
from ..classic.group import ClassicGroup
from .conversion import check_upgrade, downgraded, put_upgraded
from .group import ConsumerDraft, ConsumerGroup, follow_subscription, reconcile
from .member import ConsumerHeartbeat, ConsumerMember, check_heartbeat

CLASSIC_TIMERS: Final = (TimerKind.JOIN, TimerKind.SYNC)


@attrs.define(eq=False, repr=False)
class ConsumerGroups(AssignedGroups[ConsumerGroup]):
    """See the module and `AssignedGroups`."""

    GROUP: ClassVar[type[Any]] = ConsumerGroup
    DRAFT: ClassVar[type[Any]] = ConsumerDraft

    new_member_id: Callable[[], str] = lambda: str(uuid.uuid4())
    _armed: set[TimerKey] = attrs.field(factory=set, init=False)
    """Timers of joins and syncs that still count: one that has ended may wait for the group's lock."""

    check = staticmethod(check_heartbeat)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def speaker(self, draft: ConsumerDraft, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member is known, new, or a static one in another's place."""
        group, instance_id = draft.base, request.instance_id
        if instance_id is None or (request.is_joining and instance_id not in group.static_members):
            if request.is_joining and request.member_id not in group.members:
                return ConsumerMember(member_id=request.member_id or self.new_member_id())
            member = group.member(request.member_id)
            if instance_id is None:
                member.check_epoch(request)
            return member
        if not request.is_joining:
            member = static_member(group, instance_id, request.member_id)
            member.check_epoch(request)
            return member
        before = group.members[group.static_members[instance_id]]
        if before.epoch != LEAVE_STATIC_EPOCH and not before.is_classic:
            raise RequestError(
                f"static member {request.member_id!r} with instance id {instance_id!r} cannot join group {group.group_id!r}: "
                f"member {before.member_id!r} has that instance id and has not left",
                ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        return draft.replace_static(before, request.member_id or self.new_member_id())

    def leave(self, request: ConsumerHeartbeat, wall_ms: int) -> Plan[ConsumerGroup]:
        group = self.known(request.group_id)
        static = request.instance_id is not None
        member = (
            static_member(group, request.instance_id or "", request.member_id) if static else group.member(request.member_id)
        )
        if request.member_epoch != LEAVE_STATIC_EPOCH:
            return self.fence(group, [member.member_id], wall_ms, self.farewell(request))
        draft = ConsumerDraft(group, self.topics, wall_ms)
        draft.put_current(member.away())
        return self.plan(draft, self.farewell(request))

    # ---- conversion ------------------------------------------------------------------------------------------------------

    def upgrade(self, classic: ClassicGroup, request: ConsumerHeartbeat, wall_ms: int) -> Plan[ConsumerGroup]:
        """Plan a consumer group in place of a classic one, with its members and the one that joins. Raises
        GROUP_ID_NOT_FOUND where that is not possible; then nothing has come of it."""
        self.check(request)
        check_upgrade(classic, self.settings)
        upgraded = ConsumerDraft(self.new_group(classic.group_id), self.topics, wall_ms)
        put_upgraded(upgraded, classic)
        self.check_space(upgraded.group, request)
        draft = ConsumerDraft(upgraded.group, self.topics, wall_ms, upgraded.records, upgraded.touched)
        return self.continue_heartbeat(draft, request)

    def may_downgrade(self, group: ConsumerGroup, without: Collection[str] = ()) -> bool:
        """Return whether a classic group may take the place of this one once some members have gone."""
        is_small = len(group.members) - len(without) <= self.settings.max_size
        return self.settings.migration_policy.downgrades and is_small and group.has_only_classic(without)

    def fence(
        self, group: ConsumerGroup, member_ids: Collection[str], wall_ms: int, answer: Any | None = None
    ) -> Plan[ConsumerGroup]:
        if not self.may_downgrade(group, member_ids):
            return super().fence(group, member_ids, wall_ms, answer)
        left = [member for member_id, member in group.members.items() if member_id not in member_ids]
        return self.downgrade(group, left, answer, must_rebalance=True)

    def downgrade(
        self, group: ConsumerGroup, members: Iterable[ConsumerMember], answer: Any, *, must_rebalance: bool
    ) -> Plan[ConsumerGroup]:
        """Plan a classic group with these members, which all use the classic protocol, in place of a consumer group."""
        keys = [key for member_id in group.members for key in group.member_keys(member_id)]
        downgrade = downgraded(group, members, self.topics, must_rebalance=must_rebalance)
        removed = tuple((key, None) for key in [*keys, *group.own_keys()])
        return Plan(records=removed, answer=answer, base=group, group=group, downgrade=downgrade)

    # ---- assignment ------------------------------------------------------------------------------------------------------

    def advance(
        self, draft: ConsumerDraft, request: ConsumerHeartbeat, known: ConsumerMember, member: ConsumerMember
    ) -> Plan[ConsumerGroup]:
        if known.is_classic:
            draft.touched.add(member.member_id)  # its timers are others from now on
        follow_subscription(draft, known, member)
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        member = reconcile(draft, member, request.owned)
        # What the client knows is what it was told before this heartbeat, whoever it was then.
        is_news = request.is_joining or request.is_full or member.assigned != known.assigned
        answer = HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.times_of(request.group_id).heartbeat_interval_ms,
            assignment=member.assigned if is_news else None,
        )
        return self.plan(draft, answer, alive=member.member_id, seen_version=self.topics.version)

    # ---- commit and time -------------------------------------------------------------------------------------------------

    def commit(self, plan: Plan[ConsumerGroup], now_ms: int) -> None:
        group_id = plan.group.group_id
        if plan.downgrade is not None:
            self.forget(group_id)
            return
        is_new = group_id not in self
        super().commit(plan, now_ms)
        if is_new:
            for member_id in plan.group.members:
                self.time_session(group_id, member_id, now_ms)
        if plan.joined is not None:
            self.disarm(group_id, plan.joined, TimerKind.JOIN)
            self.arm(plan.group.members[plan.joined], group_id, TimerKind.SYNC, now_ms)

    def forget(self, group_id: str) -> None:
        for member_id in self.known(group_id).members:
            for kind in TimerKind:
                self.disarm(group_id, member_id, kind)
        super().forget(group_id)

    def expire(self, key: TimerKey, wall_ms: int) -> Plan[ConsumerGroup] | None:
        if key.kind in CLASSIC_TIMERS and key not in self._armed:
            return None
        return super().expire(key, wall_ms)

    def session_timeout_ms(self, group_id: str, member_id: str) -> int:
        classic = self._groups[group_id].members[member_id].classic
        return super().session_timeout_ms(group_id, member_id) if classic is None else classic.session_timeout_ms

    def time_member(self, group: ConsumerGroup, member_id: str, now_ms: int) -> None:
        super().time_member(group, member_id, now_ms)
        if member_id not in group.members or not group.members[member_id].is_classic:
            for kind in CLASSIC_TIMERS:
                self.disarm(group.group_id, member_id, kind)

    def arm(self, member: ConsumerMember, group_id: str, kind: TimerKind, now_ms: int) -> None:
        """Give a member that uses the classic protocol its rebalance timeout to join again, or to request its assignment."""
        key = TimerKey(group_id, member.member_id, kind)
        self._armed.add(key)
        self.timers.set(key, now_ms + max(member.rebalance_timeout_ms, 1))

    def arm_once(self, member: ConsumerMember, group_id: str, kind: TimerKind, now_ms: int) -> None:
        """Do the same unless the member has been told before."""
        if TimerKey(group_id, member.member_id, kind) not in self._armed:
            self.arm(member, group_id, kind, now_ms)

    def disarm(self, group_id: str, member_id: str, kind: TimerKind) -> None:
        """End a timer of a member."""
        key = TimerKey(group_id, member_id, kind)
        self._armed.discard(key)
        self.timers.cancel(key)


def static_member(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID for a member whose place another one has."""
    if instance_id not in group.static_members:
        raise RequestError(
            f"instance id {instance_id!r} is not a member of group {group.group_id!r}", ErrorCode.UNKNOWN_MEMBER_ID
        )
    member = group.members[group.static_members[instance_id]]
    if member.member_id != member_id:
        raise RequestError(
            f"static member {member_id!r} with instance id {instance_id!r} was fenced by "
            f"{member.member_id!r}, which took its place in group {group.group_id!r}",
            ErrorCode.FENCED_INSTANCE_ID,
        )
    return member
