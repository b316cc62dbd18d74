"""The second half of a rebalance: the leader brings the assignment, it is stored, and every member gets its part (Kafka:
GroupMetadataManager.classicGroupSync)."""

from __future__ import annotations

import attrs

from ....protocol.errors import ErrorCode
from .group import COMPLETING_REBALANCE, DEAD, PREPARING_REBALANCE, STABLE, ClassicGroup
from .rebalance import Rebalance, synced
from .values import Sync, SyncAnswer, Token


@attrs.define(eq=False, repr=False)
class Assignments:
    """See the module. Changes the group that it is given."""

    rebalance: Rebalance
    _stored: dict[int, dict[str, bytes]] = attrs.field(factory=dict)
    """Assignments by member id, by the ticket of the record that is being stored."""

    def sync(self, group: ClassicGroup, request: Sync, token: Token, now_ms: int) -> None:
        """Answer a sync, now or later."""
        error = check_sync(group, request)
        if error is not ErrorCode.NONE:
            self.rebalance.effects.answer(token, SyncAnswer(error=error))
            return
        member = group.members[request.member_id]
        self.rebalance.has_synced(group, member)
        if group.state is STABLE:
            self.rebalance.expect_heartbeat(group, member, now_ms)
            self.rebalance.effects.answer(token, synced(group, member))
            return
        # The one that waited has been given up by its client, or it would not ask again.
        self.rebalance.answer_parked(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        member.sync_token = token
        if group.leader == member.member_id and group.assignment_ticket is None:
            brought = dict(request.assignments)
            assignments = {member_id: brought.get(member_id, b"") for member_id in group.members}
            group.assignment_bytes = sum(map(len, assignments.values()))
            group.assignment_ticket = self.rebalance.effects.store(group, assignments)
            self._stored[group.assignment_ticket] = assignments

    def stored(self, group: ClassicGroup, ticket: int, now_ms: int) -> None:
        """Let the assignment count, unless a rebalance has begun meanwhile."""
        assignments = self._stored.pop(ticket, None)
        if assignments is None or group.assignment_ticket != ticket:
            return
        group.assignment_ticket = None
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.transition_to(STABLE)
        self.rebalance.propagate(group, ErrorCode.NONE, now_ms)

    def store_failed(self, group: ClassicGroup, ticket: int, error: ErrorCode, now_ms: int) -> None:
        """Answer the waiting members with the error; all have to join again."""
        if self._stored.pop(ticket, None) is None or group.assignment_ticket != ticket:
            return
        group.assignment_ticket = None
        self.rebalance.reset_assignments(group, error, now_ms)
        self.rebalance.prepare(group, now_ms, f"its assignment could not be stored: {error.name}")


def check_sync(group: ClassicGroup, request: Sync) -> ErrorCode:
    """Return why this member of this generation may not sync now."""
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    assert group.state in (STABLE, COMPLETING_REBALANCE)
    return ErrorCode.NONE


def _differs(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known
