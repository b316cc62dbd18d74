"""Members of a consumer group that use the classic protocol (KIP-848; Kafka: GroupMetadataManager, its methods
classicGroup...ToConsumerGroup).

| request | effect |
|---|---|
| JoinGroup | the member joins or takes its next step to its target. It gets its epoch as the generation, and no leader |
| SyncGroup | the member gets its partitions |
| Heartbeat | REBALANCE_IN_PROGRESS when the member has to join again, see `ConsumerGroup.must_rejoin` |
| LeaveGroup | members of either protocol are taken out |

Nothing waits for other members. A member that has to join again, or to sync, has its rebalance timeout to do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ....protocol.coordinator.classic_group_records import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    decode_subscription,
)
from ....protocol.errors import ErrorCode, RemoteProtocolError, RequestError
from ..assigned.groups import Plan
from ..assigned.values import TimerKind
from ..classic.values import (
    Heartbeat,
    Join,
    JoinAnswer,
    LeaveAnswer,
    LeavingMember,
    LeftMember,
    Sync,
    SyncAnswer,
)
from ..values import NO_MEMBER_ID
from .conversion import assignment_bytes, partitions_of, subscribed_member
from .group import ConsumerDraft, ConsumerGroup, follow_subscription, reconcile
from .groups import ConsumerGroups, static_member
from .member import ClassicSide, ConsumerMember

ConsumerPlan = Plan[ConsumerGroup]
SUBSCRIPTION: Final = 0
"""All protocols of a member have the same subscription: the first one is read."""


@attrs.frozen(eq=False, repr=False)
class ClassicMembers:
    """See the module. Plans are the owner's to store and commit; a sync and a heartbeat change timers only."""

    groups: ConsumerGroups

    # ---- JoinGroup -------------------------------------------------------------------------------------------------------

    def join(self, request: Join, wall_ms: int) -> ConsumerPlan:
        """Plan a join of a group with members. Its answer is a JoinAnswer. Raises RequestError."""
        group = self.groups.known(request.group_id)
        member_id = request.member_id or self.groups.new_member_id()
        self.groups.check_space(group, request)
        if not group.supports(request.protocol_type, request.protocols):
            raise RequestError(f"Member {member_id}'s protocols are not supported.", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_unknown = request.member_id == NO_MEMBER_ID
        if is_unknown and request.group_instance_id is None and request.requires_known_member_id:
            answer = JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return Plan(records=(), answer=answer, base=group, group=group)
        subscription = _subscription(request)
        draft = ConsumerDraft(group, self.groups.topics, wall_ms)
        known = _joiner(draft, request, member_id)
        timeout_ms = request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
        member = subscribed_member(
            known,
            subscription,
            instance_id=request.group_instance_id or known.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=timeout_ms,
            classic=ClassicSide(request.session_timeout_ms, request.protocols),
        )
        if member != known or member_id not in draft.group.members:
            draft.put_member(member)
        follow_subscription(draft, known, member)
        owned = partitions_of(subscription.owned_partitions, self.groups.topics)
        if self._replaces_the_last(group, request) and self.groups.may_downgrade(draft.group):
            return self._downgrade(draft, member, owned)
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        member = reconcile(draft, member, owned)
        answer = _joined(member, member.epoch)
        version = self.groups.topics.version
        return self.groups.plan(draft, answer, alive=member_id, joined=member_id, seen_version=version)

    def _replaces_the_last(self, group: ConsumerGroup, request: Join) -> bool:
        """Return whether a static member takes the place of one that uses the consumer protocol."""
        before = group.static_members.get(request.group_instance_id or "")
        return before is not None and not group.members[before].is_classic

    def _downgrade(self, draft: ConsumerDraft, member: ConsumerMember, owned: frozenset[tuple[bytes, int]]) -> ConsumerPlan:
        """The group rebalances unless its members have what they are to have."""
        base = draft.base
        if draft.group.epoch == base.epoch == base.assignment_epoch:
            member = reconcile(draft, member, owned)
        members = draft.group.members.values()
        is_settled = all(each.epoch == base.epoch and each.is_reconciled_to(base.assignment_epoch) for each in members)
        answer = _joined(member, base.epoch)
        return self.groups.downgrade(base, members, answer, must_rebalance=not is_settled)

    # ---- SyncGroup and Heartbeat -----------------------------------------------------------------------------------------

    def sync(self, request: Sync, now_ms: int) -> SyncAnswer:
        """Return the partitions of a member. Raises RequestError."""
        group = self.groups.known(request.group_id)
        member, classic = _known(group, request)
        chosen = classic.protocols[SUBSCRIPTION][0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol not in (None, chosen):
            raise RequestError(
                f"member {member.member_id!r} of group {group.group_id!r} has joined with {CONSUMER_PROTOCOL_TYPE} {chosen!r}, "
                f"not {request.protocol_type!r} {request.protocol!r}",
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )
        if group.epoch > member.epoch and not member.has_to_revoke:
            self.groups.arm_once(member, group.group_id, TimerKind.JOIN, now_ms)
            raise RequestError(
                f"group {group.group_id!r} rebalances: member {member.member_id!r} has to join again",
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
        self.groups.disarm(group.group_id, member.member_id, TimerKind.SYNC)
        self.groups.time_session(group.group_id, member.member_id, now_ms)
        assignment = assignment_bytes(member.assigned, classic, self.groups.topics)
        return SyncAnswer(protocol_type=request.protocol_type, protocol=request.protocol, assignment=assignment)

    def heartbeat(self, request: Heartbeat, now_ms: int) -> ErrorCode:
        """Extend the session of a member. REBALANCE_IN_PROGRESS: it has to join again. Raises RequestError."""
        group = self.groups.known(request.group_id)
        member, _ = _known(group, request)
        self.groups.time_session(group.group_id, member.member_id, now_ms)
        if not group.must_rejoin(member):
            return ErrorCode.NONE
        self.groups.arm_once(member, group.group_id, TimerKind.JOIN, now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    # ---- LeaveGroup ------------------------------------------------------------------------------------------------------

    def leave(self, group_id: str, leaving: Sequence[LeavingMember], wall_ms: int) -> ConsumerPlan:
        """Plan to take members of either protocol out. Its answer is a LeaveAnswer with an outcome for each."""
        group = self.groups.known(group_id)
        gone: dict[str, None] = {}
        left = []
        for each in leaving:
            error: ErrorCode | int = ErrorCode.NONE
            try:
                gone[_leaver(group, each).member_id] = None
            except RequestError as exc:
                error = exc.code
            left.append(LeftMember(each.member_id, each.group_instance_id, ErrorCode(error)))
        answer = LeaveAnswer(members=tuple(left))
        if not gone:
            return Plan(records=(), answer=answer, base=group, group=group)
        return self.groups.fence(group, list(gone), wall_ms, answer)


def _subscription(request: Join) -> ConsumerProtocolSubscription:
    """Raises INCONSISTENT_GROUP_PROTOCOL for metadata that is not a consumer's."""
    name, metadata = request.protocols[SUBSCRIPTION]
    try:
        return decode_subscription(metadata)
    except RemoteProtocolError as exc:
        raise RequestError(f"protocol {name!r}: {exc}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from exc


def _joiner(draft: ConsumerDraft, request: Join, member_id: str) -> ConsumerMember:
    """Return the member that joins: known, new, or a static one in another's place, of either protocol. Raises
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    group, instance_id = draft.base, request.group_instance_id
    if instance_id is not None and request.member_id != NO_MEMBER_ID:
        return static_member(group, instance_id, request.member_id)
    if instance_id is not None and instance_id in group.static_members:
        return draft.replace_static(group.members[group.static_members[instance_id]], member_id)
    return group.members.get(member_id) or ConsumerMember(member_id=member_id)


def _known(group: ConsumerGroup, request: Sync | Heartbeat) -> tuple[ConsumerMember, ClassicSide]:
    """Return a member that uses the classic protocol. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    if request.group_instance_id is None:
        member = group.member(request.member_id)
    else:
        member = static_member(group, request.group_instance_id, request.member_id)
    if member.classic is None:
        raise RequestError(f"Member {member.member_id} does not use the classic protocol.", ErrorCode.UNKNOWN_MEMBER_ID)
    if request.generation != member.epoch:
        raise RequestError(
            f"The request generation id {request.generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
            ErrorCode.ILLEGAL_GENERATION,
        )
    return member, member.classic


def _leaver(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    """Return the member that leaves; an administrator names a static one without its member id. Raises UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID."""
    if leaving.group_instance_id is None:
        return group.member(leaving.member_id)
    member_id = leaving.member_id or group.static_members.get(leaving.group_instance_id, NO_MEMBER_ID)
    return static_member(group, leaving.group_instance_id, member_id)


def _joined(member: ConsumerMember, epoch: int) -> JoinAnswer:
    assert member.classic is not None
    return JoinAnswer(
        member_id=member.member_id,
        generation=epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=member.classic.protocols[SUBSCRIPTION][0],
    )
