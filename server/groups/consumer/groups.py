"""All consumer groups (KIP-848; Kafka: GroupMetadataManager's ConsumerGroup half).

Not built: members that speak the classic protocol in a group of this kind (Kafka's online migration). A group changes its kind
when it is empty.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, ClassVar

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ..assigned.groups import AssignedGroups, Plan
from ..assigned.values import FIRST_EPOCH, LEAVE_STATIC_EPOCH, NO_PARTITIONS, HeartbeatAnswer
from .group import ConsumerDraft, ConsumerGroup
from .member import ConsumerHeartbeat, ConsumerMember, check_heartbeat


@attrs.define(eq=False, repr=False)
class ConsumerGroups(AssignedGroups[ConsumerGroup]):
    """See the module and `AssignedGroups`."""

    GROUP: ClassVar[type[Any]] = ConsumerGroup
    DRAFT: ClassVar[type[Any]] = ConsumerDraft

    _new_member_id: Callable[[], str] = lambda: str(uuid.uuid4())

    check = staticmethod(check_heartbeat)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def speaker(self, draft: ConsumerDraft, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member is known, new, or a static one in another's place."""
        group, instance_id = draft.base, request.instance_id
        if instance_id is None or (request.is_joining and instance_id not in group.static_members):
            if request.is_joining and request.member_id not in group.members:
                return ConsumerMember(member_id=request.member_id or self._new_member_id())
            member = group.member(request.member_id)
            if instance_id is None:
                member.check_epoch(request)
            return member
        if not request.is_joining:
            member = _static_member(group, request)
            member.check_epoch(request)
            return member
        before = group.members[group.static_members[instance_id]]
        if before.epoch != LEAVE_STATIC_EPOCH:
            raise RequestError(
                f"static member {request.member_id!r} with instance id {instance_id!r} cannot join group {group.group_id!r}: "
                f"member {before.member_id!r} has that instance id and has not left",
                ErrorCode.UNRELEASED_INSTANCE_ID,
            )
        return draft.replace_static(before, request.member_id or self._new_member_id())

    def leave(self, request: ConsumerHeartbeat, wall_ms: int) -> Plan[ConsumerGroup]:
        group = self.known(request.group_id)
        static = request.instance_id is not None
        member = _static_member(group, request) if static else group.member(request.member_id)
        draft = ConsumerDraft(group, self.topics, wall_ms)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            draft.put_current(member.away())
        else:
            draft.fence(member.member_id)
        return self.plan(draft, self.farewell(request))

    # ---- assignment ------------------------------------------------------------------------------------------------------

    def advance(
        self, draft: ConsumerDraft, request: ConsumerHeartbeat, known: ConsumerMember, member: ConsumerMember
    ) -> Plan[ConsumerGroup]:
        _follow_subscription(draft, known, member)
        if draft.group.epoch > draft.group.assignment_epoch:
            draft.assign()
        member = _reconcile(draft, member, request)
        # What the client knows is what it was told before this heartbeat, whoever it was then.
        is_news = request.is_joining or request.is_full or member.assigned != known.assigned
        answer = HeartbeatAnswer(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.times_of(request.group_id).heartbeat_interval_ms,
            assignment=member.assigned if is_news else None,
        )
        return self.plan(draft, answer, alive=member.member_id, seen_version=self.topics.version)


def _static_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    instance_id = request.instance_id or ""
    if instance_id not in group.static_members:
        raise RequestError(
            f"instance id {instance_id!r} is not a member of group {group.group_id!r}", ErrorCode.UNKNOWN_MEMBER_ID
        )
    member = group.members[group.static_members[instance_id]]
    if member.member_id != request.member_id:
        raise RequestError(
            f"static member {request.member_id!r} with instance id {instance_id!r} was fenced by {member.member_id!r}, which "
            f"has taken its place in group {group.group_id!r}",
            ErrorCode.FENCED_INSTANCE_ID,
        )
    return member


def _follow_subscription(draft: ConsumerDraft, known: ConsumerMember, member: ConsumerMember) -> None:
    """Begin another epoch when what there is to assign, or to whom, has changed."""
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


def _reconcile(draft: ConsumerDraft, member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
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
