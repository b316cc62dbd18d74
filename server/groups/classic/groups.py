"""All classic groups: the commands of clients, and the passing of time (Kafka: GroupMetadataManager and ClassicGroup; KIP-62,
KIP-345, KIP-394, KIP-559).

Every command returns an `Outcome`: answers for callers, named by their tokens, and records to store. A record counts when
`stored` is called, and callers that wait for it are not answered before. Call `on_time` at `next_deadline_ms`, or later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import attrs

from ....protocol.coordinator.classic_group_records import CONSUMER_PROTOCOL_TYPE, GroupMetadataValue
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...system.client_memory import Account, ClientMemory
from ..values import FIRST_COMMIT_WITH_EPOCHS, NO_GENERATION, NO_MEMBER_ID, CommittingMember, GroupListing
from .group import COMPLETING_REBALANCE, DEAD, EMPTY, PREPARING_REBALANCE, STABLE, ClassicGroup, Member, Usage
from .joining import Joining, NewMemberId, check_join, random_member_id
from .rebalance import Assignments, Rebalance
from .values import (
    GroupDescription,
    GroupSettings,
    Heartbeat,
    Join,
    JoinAnswer,
    LeaveAnswer,
    LeavingMember,
    LeftMember,
    Outcome,
    Sync,
    SyncAnswer,
    Token,
)


@attrs.define(eq=False, repr=False)
class ClassicGroups:
    """See the module. Owner of all groups; called from one task at a time."""

    settings: GroupSettings
    _new_member_id: NewMemberId = random_member_id
    _account: Account = attrs.field(factory=lambda: ClientMemory().account("classic groups"), kw_only=True)
    """Where what groups take is charged."""
    _usage: Usage = attrs.field(factory=Usage)
    _groups: dict[str, ClassicGroup] = attrs.field(factory=dict)
    _stores: dict[int, ClassicGroup] = attrs.field(factory=dict)
    """Whose record is being stored, by ticket."""
    _rebalance: Rebalance = attrs.field(init=False)
    _joining: Joining = attrs.field(init=False)
    _assignments: Assignments = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rebalance = Rebalance(self.settings)
        self._joining = Joining(self._rebalance, self._new_member_id)
        self._assignments = Assignments(self._rebalance)

    def __len__(self) -> int:
        return len(self._groups)

    # ---- members come and go ---------------------------------------------------------------------------------------------

    def check(self, request: Join) -> ErrorCode:
        """Return why a join is invalid, whatever its group."""
        return check_join(self.settings, request)

    def join(self, request: Join, token: Token, now_ms: int) -> Outcome:
        """Join a group. The token gets a JoinAnswer: at once, or when the next generation begins."""
        error = self.check(request)
        group = self._groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            error = self._check_new_group(request)
        if error is ErrorCode.NONE and not self._account.fits(request.group_id, self._joining.growth(group, request)):
            error = ErrorCode.POLICY_VIOLATION
        if error is not ErrorCode.NONE:
            self._rebalance.effects.answer(token, JoinAnswer(error=error, member_id=request.member_id))
            return self._outcome()
        if group is None:
            group = self._groups[request.group_id] = ClassicGroup(request.group_id, self._usage)
        self._joining.join(group, request, token, now_ms)
        return self._outcome(group)

    def _check_new_group(self, request: Join) -> ErrorCode:
        """Return why a join cannot make a group. A client with a member id was in a group that is gone."""
        if request.member_id != NO_MEMBER_ID:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if len(self._groups) >= self.settings.max_groups:
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    def sync(self, request: Sync, token: Token, now_ms: int) -> Outcome:
        """Request an assignment. The token gets a SyncAnswer: at once, or when the leader's assignment is stored."""
        group = self._groups.get(request.group_id)
        if group is None or group.state is EMPTY:
            self._rebalance.effects.answer(token, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
            return self._outcome()
        brought = sum(len(assignment) for _, assignment in request.assignments)
        if brought and not self._account.fits(group.group_id, brought - group.assignment_bytes):
            self._rebalance.effects.answer(token, SyncAnswer(error=ErrorCode.POLICY_VIOLATION))
            return self._outcome(group)
        self._assignments.sync(group, request, token, now_ms)
        return self._outcome(group)

    def heartbeat(self, request: Heartbeat, now_ms: int) -> ErrorCode:
        """Extend the session of a member. REBALANCE_IN_PROGRESS: it has to join again."""
        group = self._groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._rebalance.expect_heartbeat(group, group.members[request.member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, group_id: str, members: Sequence[LeavingMember], now_ms: int) -> tuple[LeaveAnswer, Outcome]:
        """Remove members. Returns an answer for each."""
        group = self._groups.get(group_id)
        if group is not None and group.state is DEAD:
            return LeaveAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE), self._outcome()
        before = len(group.members) if group is not None else 0
        left = tuple(
            LeftMember(
                each.member_id,
                each.group_instance_id,
                ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave(group, each),
            )
            for each in members
        )
        gone = [each.member_id or str(each.group_instance_id) for each in left if each.error is ErrorCode.NONE]
        if group is not None and len(group.members) < before:
            self._rebalance.prepare_or_complete(group, now_ms, f"{', '.join(gone)} left")
        elif group is not None:
            self._rebalance.maybe_complete_join(group, now_ms)
        return LeaveAnswer(members=left), self._outcome(group)

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == NO_MEMBER_ID:
            member_id = group.static_members.get(leaving.group_instance_id or "", NO_MEMBER_ID)
            if member_id == NO_MEMBER_ID:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_joins:
            error = group.check_member(member_id, leaving.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._rebalance.dismiss(group, member_id)
        return ErrorCode.NONE

    def check_commit(self, group_id: str, member: CommittingMember, *, is_transactional: bool, now_ms: int) -> None:
        """Raises RequestError unless this member, or a client without membership, may commit offsets of the group. A commit
        extends the member's session."""
        group = self._groups.get(group_id)
        error = _commit_error(group, member, is_transactional=is_transactional)
        if error is not ErrorCode.NONE:
            raise RequestError(
                f"group {group_id!r}: member {member.member_id!r} of generation {member.generation} cannot commit "
                f"offsets. The group is {_in_words(group)}",
                error,
            )
        if group is not None and group.state in (STABLE, PREPARING_REBALANCE) and member.member_id in group.members:
            self._rebalance.expect_heartbeat(group, group.members[member.member_id], now_ms)

    # ---- time and records ------------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time at which `on_time` has to be called; None: not before another event."""
        return self._rebalance.timers.next_deadline()

    @property
    def earliest_deadline_ms(self) -> int | None:
        """A lower bound of `next_deadline_ms` that costs nothing."""
        return self._rebalance.timers.earliest

    def on_time(self, now_ms: int, isolate: Isolate = nullcontext) -> Outcome:
        """Handle all timers that have ended. `isolate` keeps an error of one group from the others; its timer ends again
        later."""
        timers = self._rebalance.timers
        while (key := timers.pop_due(now_ms)) is not None:
            group = self._groups.get(key.group_id)
            if group is not None and group.is_converting:
                timers.set(key, now_ms + RETRY_MS)
            elif group is not None:
                with isolate(key.group_id):
                    try:
                        self._rebalance.came_due(group, key, now_ms)
                        self._forget_if_blank(group)
                        self._charge(group)
                    except Exception:
                        timers.set(key, now_ms + RETRY_MS)
                        raise
        return self._outcome()

    def stored(self, ticket: int, now_ms: int) -> Outcome:
        """A record of an outcome is in the log."""
        group = self._stores.pop(ticket)
        group.is_stored, group.lacks_empty_record = True, False
        back = self._joining.returns.pop(ticket, None)
        if back is not None:
            self._joining.return_stored(group, back, now_ms)
        self._assignments.stored(group, ticket, now_ms)
        return self._outcome(group)

    def store_failed(self, ticket: int, error: ErrorCode, now_ms: int) -> Outcome:
        """A record of an outcome could not be stored. Waiting callers get the error that clients expect."""
        group = self._stores.pop(ticket)
        answered = STORE_ERRORS.get(error, error)
        back = self._joining.returns.pop(ticket, None)
        if back is not None:
            self._joining.return_failed(group, back, answered, now_ms)
        self._assignments.store_failed(group, ticket, answered, now_ms)
        group.lacks_empty_record = group.state is EMPTY
        return self._outcome(group)

    def store_again(self) -> Outcome:
        """Return the records of groups whose last member is gone, where the log does not know that."""
        for group in self._groups.values():
            if group.lacks_empty_record and self.is_idle(group.group_id):
                self._rebalance.effects.store(group)
        return self._outcome()

    def restore(self, group_id: str, value: GroupMetadataValue, now_ms: int) -> Outcome:
        """Adopt a group from the log. Sessions of its members begin now."""
        group = self._groups[group_id] = ClassicGroup(group_id, self._usage, generation=value.generation, is_stored=True)
        for metadata in value.members:
            if metadata.member_id not in group.members:
                group.add(Member.restored(value.protocol or "", metadata), value.protocol_type)
        group.protocol_type, group.protocol = value.protocol_type or None, value.protocol
        if value.leader in group.members:
            group.leader = value.leader
        group.assignment_bytes = sum(len(member.assignment) for member in group.members.values())
        for member in group.members.values():
            group.state = STABLE
            self._rebalance.expect_heartbeat(group, member, now_ms)
        if len(group.members) > self.settings.max_size:
            self._rebalance.prepare(group, now_ms, f"it has {len(group.members)} members, {self.settings.max_size} are allowed")
        elif group.members and value.leader is None:
            self._rebalance.prepare(group, now_ms, DOWNGRADED)
        return self._outcome(group)

    # ---- conversion ------------------------------------------------------------------------------------------------------

    def with_members(self, group_id: str) -> ClassicGroup | None:
        """Return a group that has members. It is not to be changed."""
        group = self._groups.get(group_id)
        return group if group is not None and group.members else None

    def begin_conversion(self, group_id: str) -> None:
        """Let a group with members be as it is until `end_conversion`. Until then there must be no join, sync or leave."""
        self._groups[group_id].is_converting = True

    def end_conversion(self, group_id: str, *, is_converted: bool) -> Outcome:
        """Forget a group in whose place a consumer group is stored, or let it continue. Waiting members have to join again."""
        group = self._groups[group_id]
        group.is_converting = False
        if is_converted:
            for member in list(group.members.values()):
                self._rebalance.answer_parked(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            self._rebalance.forget_group(group)
            del self._groups[group_id]
            self._account.drop(group_id)
        return self._outcome()

    def adopt(self, group: ClassicGroup, now_ms: int, *, must_rebalance: bool) -> Outcome:
        """Adopt a group whose record is stored in place of a consumer group. Sessions of its members begin now."""
        self._groups[group.group_id] = group
        group.charge_to(self._usage)
        for member in group.members.values():
            self._rebalance.expect_heartbeat(group, member, now_ms)
        if must_rebalance:
            self._rebalance.prepare(group, now_ms, DOWNGRADED)
        return self._outcome(group)

    # ---- deletion --------------------------------------------------------------------------------------------------------

    def begin_delete(self, group_id: str) -> bool:
        """Refuse joins until `end_delete`, if the group is empty; False if it is not. An unknown group is empty."""
        if not self.is_idle(group_id):
            return False
        group = self._groups.get(group_id)
        if group is not None:
            for member_id in list(group.pending_joins):
                self._rebalance.dismiss(group, member_id)
            group.transition_to(DEAD)
        return True

    def end_delete(self, group_id: str, *, is_deleted: bool) -> None:
        """Forget the group, or let it be as it was."""
        group = self._groups.get(group_id)
        if group is None or group.state is not DEAD:
            return
        if is_deleted:
            del self._groups[group_id]
            self._account.drop(group_id)
        else:
            group.transition_to(EMPTY)

    def is_being_stored(self, group_id: str) -> bool:
        """Return whether a record of the group is on its way into the log."""
        group = self._groups.get(group_id)
        return group is not None and group in self._stores.values()

    def is_idle(self, group_id: str) -> bool:
        """Return whether the group is empty and no record of it is being stored."""
        group = self._groups.get(group_id)
        return group is None or (group.state is EMPTY and group not in self._stores.values())

    def is_expirable(self, group_id: str) -> bool:
        """Return whether offsets of the group may expire: it has no member, and none is about to join."""
        group = self._groups.get(group_id)
        return group is None or (not group.pending_joins and self.is_idle(group_id))

    def idle_groups(self) -> list[str]:
        """Return the groups without members, and without one that is about to join."""
        return [group_id for group_id, group in self._groups.items() if group.state is EMPTY and self.is_expirable(group_id)]

    def forget(self, group_id: str) -> None:
        """Forget an idle group: the log has nothing of it any more."""
        if self.is_expirable(group_id):
            self._groups.pop(group_id, None)
            self._account.drop(group_id)

    # ---- questions -------------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> GroupDescription | None:
        """None for an unknown group, which may have offsets all the same."""
        group = self._groups.get(group_id)
        return None if group is None else group.describe()

    def group_ids(self) -> Collection[str]:
        return self._groups.keys()

    def listing(self, group_id: str) -> GroupListing | None:
        """None for an unknown group, which may have offsets all the same."""
        group = self._groups.get(group_id)
        return None if group is None else group.listing()

    def check_delete_offsets(self, group_id: str) -> None:
        """Raises RequestError for a group with members whose topics are unknown here (KIP-496)."""
        group = self._groups.get(group_id)
        if group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise RequestError(
                f"group {group_id!r} is {_in_words(group)}. The server does not know their topics, so stop them first",
                ErrorCode.NON_EMPTY_GROUP,
            )

    def delete_offset_error(self, group_id: str, topic_partition: TopicPartition) -> RequestError | None:
        """Return why the group's offset of this partition cannot be deleted."""
        group = self._groups.get(group_id)
        if group is None or not group.is_subscribed_to(topic_partition.topic):
            return None
        return subscribed_error(group_id, topic_partition)

    def close(self) -> Outcome:
        """Answer all waiting callers: the coordinator stops."""
        for group in self._groups.values():
            for member in group.members.values():
                self._rebalance.answer_parked(group, member, ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
        return self._outcome()

    # ---- the end of a command --------------------------------------------------------------------------------------------

    def _outcome(self, group: ClassicGroup | None = None) -> Outcome:
        if group is not None:
            self._forget_if_blank(group)
            self._charge(group)
        outcome = self._rebalance.effects.take()
        for store in outcome.stores:
            self._stores[store.ticket] = self._groups[store.group_id]
        return outcome

    def _charge(self, group: ClassicGroup) -> None:
        if self._groups.get(group.group_id) is group:
            self._account.put(group.group_id, group.held_bytes)

    def _forget_if_blank(self, group: ClassicGroup) -> None:
        if group.is_blank and self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]
            self._account.drop(group.group_id)


def subscribed_error(group_id: str, topic_partition: TopicPartition) -> RequestError:
    """Return why an offset cannot be deleted."""
    return RequestError(
        f"group {group_id!r} is subscribed to {topic_partition.topic}. The offset of {topic_partition} can be "
        "deleted after it unsubscribes",
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    )


DOWNGRADED: Final = "it was a consumer group"
Isolate = Callable[[str], AbstractContextManager[object]]
"""From a group's name to a block that contains what it raises."""
RETRY_MS: Final = 1_000
"""After which a group is looked at again whose timer met an unhandled exception."""
STORE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What clients are told when a record could not be stored (Kafka: appendGroupMetadataErrorToResponseError)."""


def _commit_error(group: ClassicGroup | None, member: CommittingMember, *, is_transactional: bool) -> ErrorCode:
    """Check a commit (Kafka: ClassicGroup.validateOffsetCommit). Transactions have their own rules: one without membership may
    commit for a group with members."""
    if group is None:
        return ErrorCode.NONE if member.generation <= NO_GENERATION else _no_group(member)
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if group.state is EMPTY and member.generation <= NO_GENERATION:
        return ErrorCode.NONE
    if member.generation <= NO_GENERATION and member.member_id == NO_MEMBER_ID and member.group_instance_id is None:
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(member.member_id, member.group_instance_id)
    if error is ErrorCode.NONE and member.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.NONE and group.state is COMPLETING_REBALANCE and not is_transactional:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def _no_group(member: CommittingMember) -> ErrorCode:
    """Return the error for a generation of an unknown group; old clients know only the older one."""
    knows = member.version is not None and member.version >= FIRST_COMMIT_WITH_EPOCHS
    return ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION


def _in_words(group: ClassicGroup | None) -> str:
    if group is None:
        return "not known"
    return f"{group.state.value}, its generation is {group.generation} and it has {len(group.members)} members"
