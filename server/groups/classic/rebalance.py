"""Rebalances a classic group: leads it from one generation to the next (Kafka: GroupMetadataManager, its part for a
ClassicGroup).

| state | event that ends it | next |
|---|---|---|
| Empty | a member joins | PreparingRebalance |
| PreparingRebalance | all have joined, or the rebalance timeout; after Empty the initial delay | Completing..., Empty |
| CompletingRebalance | the leader's assignment is stored | Stable |
| Stable | a member joins, leaves or expires | PreparingRebalance |

The group removes members that have not joined by the rebalance timeout, except static members. A member has to send something
within its session timeout, except while it is parked in a join or sync. A new member is parked for the new-member timeout at
most, because the server does not notice its end. The group removes a member that got a generation and does not request its
assignment within the rebalance timeout. A waiting member gets a response when it is removed or replaced.

`Assignments` has the second half: the leader brings the assignment, it is stored, and every member gets its part (Kafka:
classicGroupSync).
"""

from __future__ import annotations

import enum
import itertools
import logging
from typing import Final, NamedTuple

import attrs

from ....protocol.errors import ErrorCode
from ..timers import Timers
from .group import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE, ClassicGroup, Member
from .values import NO_LEADER, GroupSettings, JoinAnswer, Outcome, Store, Sync, SyncAnswer, Token

LOGGER: Final = logging.getLogger(__name__)

NOBODY_JOINED_RETRY_MS: Final = 100
"""At least this long passes before it is looked again whether one of the static members has come back."""


class TimerKind(enum.Enum):
    """The reason of a timer."""

    MEMBER = enum.auto()
    """A member, or a member id that was given out, was not heard of."""
    JOIN = enum.auto()
    """The rebalance timeout, or the initial delay."""
    SYNC = enum.auto()
    """The time for asking for an assignment."""


class TimerKey(NamedTuple):
    """`member_id` is empty where the whole group is meant."""

    kind: TimerKind
    group_id: str
    member_id: str = ""


@attrs.define(eq=False, repr=False)
class Effects:
    """The outcome of the command that is being carried out."""

    _answers: list[tuple[Token, JoinAnswer | SyncAnswer]] = attrs.field(factory=list)
    _stores: list[Store] = attrs.field(factory=list)
    _tickets: itertools.count[int] = attrs.field(factory=itertools.count)

    def answer(self, token: Token, answer: JoinAnswer | SyncAnswer) -> None:
        self._answers.append((token, answer))

    def store(self, group: ClassicGroup, assignments: dict[str, bytes] | None = None) -> int:
        """Request that the group's record is stored. Returns its ticket."""
        ticket = next(self._tickets)
        self._stores.append(Store(ticket, group.group_id, group.record(assignments)))
        return ticket

    def take(self) -> Outcome:
        """Return everything since the last call."""
        outcome = Outcome(tuple(self._answers), tuple(self._stores))
        self._answers.clear()
        self._stores.clear()
        return outcome


@attrs.define(eq=False, repr=False)
class Rebalance:
    """See the module. Holds the timers of all groups; changes the group that it is given."""

    settings: GroupSettings
    timers: Timers[TimerKey] = attrs.field(factory=Timers)
    effects: Effects = attrs.field(factory=Effects)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def expect_heartbeat(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """Begin the session of a member again."""
        self._set(TimerKey(TimerKind.MEMBER, group.group_id, member.member_id), now_ms, member.session_timeout_ms)

    def expect_new_member(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """Time a member that is parked in its first join."""
        timeout_ms = self.settings.new_member_join_timeout_ms
        self._set(TimerKey(TimerKind.MEMBER, group.group_id, member.member_id), now_ms, timeout_ms)

    def expect_pending_member(self, group: ClassicGroup, member_id: str, timeout_ms: int, now_ms: int) -> None:
        """Time a member id that was given out: its client ought to join with it."""
        self._set(TimerKey(TimerKind.MEMBER, group.group_id, member_id), now_ms, timeout_ms)

    def dismiss(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member or a member id that was given out; a waiting client learns that it is not a member, and joins
        again."""
        member = group.members.get(member_id)
        if member is not None:
            self.answer_parked(group, member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        group.remove(member_id)
        self.forget_member(group, member_id)

    def forget_member(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the timer of a member id."""
        self.timers.cancel(TimerKey(TimerKind.MEMBER, group.group_id, member_id))

    def forget_group(self, group: ClassicGroup) -> None:
        """Dismiss all members of a group that ends, and cancel its timers."""
        for member_id in [*group.members, *group.pending_joins]:
            self.dismiss(group, member_id)
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            self.timers.cancel(TimerKey(kind, group.group_id))

    def answer_parked(self, group: ClassicGroup, member: Member, error: ErrorCode, member_id: str) -> None:
        """Answer the callers that wait for a member with an error."""
        if member.is_awaiting_join:
            self.effects.answer(group.take_join(member), JoinAnswer(error=error, member_id=member_id))
        if member.sync_token is not None:
            self.effects.answer(member.sync_token, SyncAnswer(error=error))
            member.sync_token = None

    def member_came_due(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """A member, or a member id that was given out, was silent for too long."""
        member = group.members.get(member_id)
        if member is None:
            group.remove(member_id)
            self.maybe_complete_join(group, now_ms)
        elif not member.has_satisfied_heartbeat:
            LOGGER.info("member %s of group %s removed: session timed out", member_id, group.group_id)
            self.dismiss(group, member_id)
            self.prepare_or_complete(group, now_ms, f"member {member_id} was not heard of in time")

    # ---- join ------------------------------------------------------------------------------------------------------------

    def prepare_or_complete(self, group: ClassicGroup, now_ms: int, reason: str) -> None:
        """Begin a rebalance; if one has begun, complete it if that is possible now."""
        if group.can_rebalance and (group.state is not EMPTY or group.members):
            self.prepare(group, now_ms, reason)
        else:
            self.maybe_complete_join(group, now_ms)

    def prepare(self, group: ClassicGroup, now_ms: int, reason: str) -> None:
        """Begin a rebalance: all members have to join again."""
        if group.state is COMPLETING_REBALANCE:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.assignment_ticket = None
        self.timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))
        group.transition_to(PREPARING_REBALANCE)
        LOGGER.info("group %s rebalances after generation %d: %s", group.group_id, group.generation, reason)
        if group.is_initial_rebalance:
            self._begin_initial_delay(group, now_ms)
        elif group.has_all_joined:
            self.complete_join(group, now_ms)
        else:
            self._set_join(group, now_ms, group.rebalance_timeout_ms)

    def _begin_initial_delay(self, group: ClassicGroup, now_ms: int) -> None:
        delay_ms = self.settings.initial_rebalance_delay_ms
        group.was_joined = False
        if delay_ms <= 0:
            self.complete_join(group, now_ms)
            return
        group.initial_delay = (delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        self._set_join(group, now_ms, delay_ms)

    def join_came_due(self, group: ClassicGroup, now_ms: int) -> None:
        """The rebalance timeout is over; or the initial delay, which is extended while members keep coming."""
        if group.initial_delay is not None:
            delay_ms, remaining_ms = group.initial_delay
            if group.was_joined and remaining_ms:
                group.was_joined = False
                next_ms = min(self.settings.initial_rebalance_delay_ms, remaining_ms)
                group.initial_delay = (next_ms, max(remaining_ms - delay_ms, 0))
                self._set_join(group, now_ms, next_ms)
                return
        if group.state is PREPARING_REBALANCE:
            self.complete_join(group, now_ms)

    def maybe_complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        """Continue if all members have joined, unless the group waits for more."""
        if group.state is PREPARING_REBALANCE and not group.is_initial_rebalance and group.has_all_joined:
            self.complete_join(group, now_ms)

    def complete_join(self, group: ClassicGroup, now_ms: int) -> None:
        """Begin the next generation with the members that have joined, and with static members that may come back."""
        self.timers.cancel(TimerKey(TimerKind.JOIN, group.group_id))
        for member in [each for each in group.members.values() if not each.is_awaiting_join and not each.is_static]:
            LOGGER.info("member %s of group %s removed: it did not join in time", member.member_id, group.group_id)
            self.dismiss(group, member.member_id)
        if not group.elect_leader() and group.members:
            self._set_join(group, now_ms, max(group.rebalance_timeout_ms, NOBODY_JOINED_RETRY_MS))
            return
        group.initial_delay = None
        group.begin_generation()
        if group.state is EMPTY:
            LOGGER.info("group %s with generation %d is empty", group.group_id, group.generation)
            self.effects.store(group)
            return
        LOGGER.info("group %s has generation %d with %d members", group.group_id, group.generation, len(group.members))
        for member in group.members.values():
            if member.is_awaiting_join:
                self.effects.answer(group.take_join(member), joined(group, member))
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.expect_heartbeat(group, member, now_ms)
        self._set(TimerKey(TimerKind.SYNC, group.group_id), now_ms, group.rebalance_timeout_ms)

    # ---- sync ------------------------------------------------------------------------------------------------------------

    def has_synced(self, group: ClassicGroup, member: Member) -> None:
        """Note that the member requests its assignment."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self.timers.cancel(TimerKey(TimerKind.SYNC, group.group_id))

    def sync_came_due(self, group: ClassicGroup, now_ms: int) -> None:
        """Remove members that know the generation and have not requested their assignment."""
        if group.state not in (COMPLETING_REBALANCE, STABLE) or not group.pending_syncs:
            return
        silent = [member_id for member_id in group.members if member_id in group.pending_syncs]
        for member_id in silent:
            self.dismiss(group, member_id)
        self.prepare(group, now_ms, f"{', '.join(silent)} did not request an assignment in time")

    def reset_assignments(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        """Answer waiting members with the error: the assignment of this generation does not come."""
        group.assignment_bytes = 0
        for member in group.members.values():
            member.assignment = b""
        self.propagate(group, error, now_ms)

    def propagate(self, group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
        """Answer all members that wait for an assignment; their sessions begin again."""
        for member in group.members.values():
            if member.sync_token is not None:
                self.effects.answer(
                    member.sync_token, SyncAnswer(error=error) if error is not ErrorCode.NONE else synced(group, member)
                )
                member.sync_token = None
                self.expect_heartbeat(group, member, now_ms)

    # ---- timers ----------------------------------------------------------------------------------------------------------

    def came_due(self, group: ClassicGroup, key: TimerKey, now_ms: int) -> None:
        """Handle a timer of the group that has ended."""
        if group.state is DEAD:
            return
        if key.kind is TimerKind.MEMBER:
            self.member_came_due(group, key.member_id, now_ms)
        elif key.kind is TimerKind.JOIN:
            self.join_came_due(group, now_ms)
        else:
            self.sync_came_due(group, now_ms)

    def _set_join(self, group: ClassicGroup, now_ms: int, timeout_ms: int) -> None:
        self._set(TimerKey(TimerKind.JOIN, group.group_id), now_ms, timeout_ms)

    def _set(self, key: TimerKey, now_ms: int, timeout_ms: int) -> None:
        """Set a timer. It never ends in the moment in which it is set: the loop over ended timers would not end."""
        self.timers.set(key, now_ms + max(timeout_ms, 1))


def joined(group: ClassicGroup, member: Member, *, shows_members: bool | None = None, skip: bool = False) -> JoinAnswer:
    """Return the current generation for one of its members. The leader sees the members unless stated otherwise."""
    is_leader = group.leader == member.member_id
    return JoinAnswer(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader or NO_LEADER,
        skip_assignment=skip,
        members=group.joined_members() if (is_leader if shows_members is None else shows_members) else (),
    )


def synced(group: ClassicGroup, member: Member) -> SyncAnswer:
    """Return the member's assignment in the current generation."""
    return SyncAnswer(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)


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
