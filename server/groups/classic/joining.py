"""Rules for joining a classic group (Kafka: GroupMetadataManager.classicGroupJoin; KIP-345 static members, KIP-394 required
member ids, KIP-814 leaders that need not assign).

| request to join | effect |
|---|---|
| without a member id or an instance id | the client gets a member id and joins again with it; before JoinGroup v4 it is added |
| without a member id, its instance id known | it replaces that member, whose old member id is fenced; no rebalance |
| | if the group is stable and keeps its protocol |
| without a member id, its instance id not known | it is added |
| with a member id that the server issued | it is added |
| from a member | it waits for the next generation; a follower without changes gets the current one at once |

Beyond Kafka: a static member that returns counts as a member even without its member id, so a full group accepts it. The number
of issued member ids is limited.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable

import attrs

from ....protocol.errors import ErrorCode
from ....protocol.limits import INT16_MAX, INT32_MAX
from ..values import NO_MEMBER_ID
from .group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    GROUP_BYTES,
    PREPARING_REBALANCE,
    STABLE,
    ClassicGroup,
    Member,
    member_bytes,
    metadata_bytes,
)
from .rebalance import Rebalance, joined
from .values import (
    MAX_CLIENT_ID_CHARS_IN_MEMBER_ID,
    MAX_INSTANCE_ID_CHARS,
    MAX_MEMBER_METADATA_BYTES,
    MAX_MEMBER_PROTOCOLS,
    GroupSettings,
    Join,
    JoinAnswer,
    Token,
)

NewMemberId = Callable[[str], str]
"""Makes a member id that nobody has, beginning with the text."""


def random_member_id(prefix: str) -> str:
    """Return a member id as Kafka makes them: the client or instance id, and a random UUID."""
    return f"{prefix}-{uuid.uuid4()}"


@attrs.frozen
class StaticReturn:
    """A static member that has come back to a stable group under a new member id, and its state before, should that not be
    stored."""

    member: Member
    token: Token
    old: Member
    old_leader: str
    supports_skipping_assignment: bool


def check_join(settings: GroupSettings, request: Join) -> ErrorCode:
    """Return why a join is invalid, whatever its group."""
    low, high = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not low <= request.session_timeout_ms <= high:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    instance_id = request.group_instance_id
    if instance_id is not None and not 1 <= len(instance_id) <= MAX_INSTANCE_ID_CHARS:
        return ErrorCode.INVALID_REQUEST
    if len(request.protocols) > MAX_MEMBER_PROTOCOLS or metadata_bytes(request.protocols) > MAX_MEMBER_METADATA_BYTES:
        return ErrorCode.INVALID_REQUEST
    names = (request.protocol_type, *(name for name, _ in request.protocols))
    if request.rebalance_timeout_ms > INT32_MAX or any(len(name.encode()) > INT16_MAX for name in names):
        # The flexible versions of JoinGroup carry what the record cannot.
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


@attrs.define(eq=False, repr=False)
class Joining:
    """See the module. Changes the group that it is given."""

    rebalance: Rebalance
    new_member_id: NewMemberId = random_member_id
    returns: dict[int, StaticReturn] = attrs.field(factory=dict)
    """By the ticket of the record that is being stored."""

    def join(self, group: ClassicGroup, request: Join, token: Token, now_ms: int) -> None:
        """Answer a join, now or later."""
        member_id = request.member_id
        if group.state is DEAD:
            self._refuse(token, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        elif not self._accepts(group, request):
            self.rebalance.dismiss(group, member_id)
            self._refuse(token, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
            self.rebalance.maybe_complete_join(group, now_ms)
        elif not group.supports(request.protocol_type, request.protocols):
            self._refuse(token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        elif self._is_too_much(group, request):
            self._refuse(token, ErrorCode.POLICY_VIOLATION, member_id)
        elif member_id == NO_MEMBER_ID:
            self._join_unknown(group, request, token, now_ms)
        elif member_id in group.pending_joins and request.group_instance_id is None:
            self._add(group, request, member_id, token, now_ms)
        elif (error := group.check_member(member_id, request.group_instance_id)) is not ErrorCode.NONE:
            self._refuse(token, error, member_id)
        else:
            self._join_again(group, group.members[member_id], request, token, now_ms)

    def _refuse(self, token: Token, error: ErrorCode, member_id: str) -> None:
        self.rebalance.effects.answer(token, JoinAnswer(error=error, member_id=member_id))

    def _accepts(self, group: ClassicGroup, request: Join) -> bool:
        """Return whether the group has capacity. During a rebalance only joined members count: lost members keep none out. The
        last members of a group that is too large are left out. Lost members have a limit too."""
        max_size = self.rebalance.settings.max_size
        member = self._existing(group, request)
        if group.state is EMPTY:
            return len(group.pending_joins) < max_size or request.member_id in group.pending_joins
        if group.state is PREPARING_REBALANCE:
            if member is not None and member.is_awaiting_join:
                return True
            return group.awaiting_join_count < max_size and (member is not None or len(group.members) < 2 * max_size)
        return member is not None or len(group.members) < max_size

    def _existing(self, group: ClassicGroup, request: Join) -> Member | None:
        """Return the member that joins again, or whose place a client with its instance id takes."""
        member_id = request.member_id or group.static_members.get(request.group_instance_id or "")
        return group.members.get(member_id or NO_MEMBER_ID)

    def growth(self, group: ClassicGroup | None, request: Join) -> int:
        """Return the bytes that a join adds."""
        member = None if group is None else self._existing(group, request)
        more = member_bytes(request.protocols, request.member_id, request.group_instance_id, request.client_id)
        base = GROUP_BYTES + sys.getsizeof(request.group_id) if group is None else 0
        return base + more - (0 if member is None else member.held_bytes)

    def _is_too_much(self, group: ClassicGroup, request: Join) -> bool:
        """Return whether the member's metadata would exceed the memory limit of all groups."""
        member = self._existing(group, request)
        more = metadata_bytes(request.protocols) - (0 if member is None else member.metadata_bytes)
        return more > 0 and group.usage.metadata_bytes + more > self.rebalance.settings.max_metadata_bytes

    # ---- without a member id ---------------------------------------------------------------------------------------------

    def _join_unknown(self, group: ClassicGroup, request: Join, token: Token, now_ms: int) -> None:
        if request.group_instance_id is not None:
            member_id = self.new_member_id(request.group_instance_id)
            existing = group.static_members.get(request.group_instance_id)
            if existing is None:
                self._add(group, request, member_id, token, now_ms)
            else:
                self._take_place(group, group.members[existing], member_id, request, token, now_ms)
            return
        member_id = self.new_member_id(request.client_id[:MAX_CLIENT_ID_CHARS_IN_MEMBER_ID])
        if not request.requires_known_member_id:
            self._add(group, request, member_id, token, now_ms)
        elif len(group.pending_joins) >= self.rebalance.settings.max_size:
            self._refuse(token, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
        else:
            group.pending_joins.add(member_id)
            self.rebalance.expect_pending_member(group, member_id, request.session_timeout_ms, now_ms)
            self._refuse(token, ErrorCode.MEMBER_ID_REQUIRED, member_id)

    def _add(self, group: ClassicGroup, request: Join, member_id: str, token: Token, now_ms: int) -> None:
        if group.is_initial_rebalance:
            group.was_joined = True
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            protocols=request.protocols,
            is_new=True,
        )
        group.add(member, request.protocol_type)
        group.park_join(member, token)
        self.rebalance.expect_new_member(group, member, now_ms)
        self.rebalance.prepare_or_complete(group, now_ms, _why(f"member {member_id} joins", request))

    def _take_place(
        self, group: ClassicGroup, member: Member, member_id: str, request: Join, token: Token, now_ms: int
    ) -> None:
        """Let a static member come back without its member id, probably after a restart."""
        rebalance, old, old_leader = self.rebalance, attrs.evolve(member), group.leader
        rebalance.answer_parked(group, member, ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id)
        rebalance.forget_member(group, old.member_id)
        group.rename(member, member_id)
        group.update(member, request.protocols, request.session_timeout_ms, _rebalance_timeout_ms(request))
        group.park_join(member, token)
        rebalance.expect_heartbeat(group, member, now_ms)
        why = _why(f"static member {member_id} is back", request)
        if group.state is STABLE and group.select_protocol() == group.protocol:
            ticket = rebalance.effects.store(group)
            skips = request.supports_skipping_assignment
            self.returns[ticket] = StaticReturn(member, token, old, old_leader or "", skips)
        elif group.state is COMPLETING_REBALANCE:
            rebalance.prepare(group, now_ms, why)
        else:
            rebalance.prepare_or_complete(group, now_ms, why)

    def return_stored(self, group: ClassicGroup, back: StaticReturn, now_ms: int) -> None:
        """The log has the static member under its new member id. If the group has moved on, it gets the next generation
        instead."""
        member = back.member
        if not _still_waits(group, back):
            return
        group.take_join(member)
        self.rebalance.expect_heartbeat(group, member, now_ms)
        if back.supports_skipping_assignment:
            answer = joined(group, member, skip=group.leader == member.member_id)
        else:
            # It must not believe that it leads: it would assign for a generation whose assignment stands.
            answer = attrs.evolve(joined(group, member, shows_members=False), leader=back.old_leader)
        self.rebalance.effects.answer(back.token, answer)

    def return_failed(self, group: ClassicGroup, back: StaticReturn, error: ErrorCode, now_ms: int) -> None:
        """The log has the static member only under its old member id, so that one counts again."""
        member = back.member
        if not _still_waits(group, back):
            return
        group.take_join(member)
        self.rebalance.forget_member(group, member.member_id)
        group.update(member, back.old.protocols, back.old.session_timeout_ms, back.old.rebalance_timeout_ms)
        group.rename(member, back.old.member_id)
        self.rebalance.expect_heartbeat(group, member, now_ms)
        self._refuse(back.token, error, NO_MEMBER_ID)

    # ---- with a member id ------------------------------------------------------------------------------------------------

    def _join_again(self, group: ClassicGroup, member: Member, request: Join, token: Token, now_ms: int) -> None:
        is_same = member.protocols == request.protocols
        if (group.state is COMPLETING_REBALANCE and is_same) or (
            group.state is STABLE and is_same and group.leader != member.member_id
        ):
            # It has probably missed the answer to its first join.
            self.rebalance.expect_heartbeat(group, member, now_ms)
            self.rebalance.effects.answer(token, joined(group, member))
        else:
            # The one that waited has been given up by its client, or it would not ask again.
            self.rebalance.answer_parked(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            group.update(member, request.protocols, request.session_timeout_ms, _rebalance_timeout_ms(request))
            group.park_join(member, token)
            why = "leads and joins again" if is_same else "changes its subscription"
            self.rebalance.prepare_or_complete(group, now_ms, _why(f"member {member.member_id} {why}", request))


def _still_waits(group: ClassicGroup, back: StaticReturn) -> bool:
    """Return whether the returning static member still waits. The next generation begins with responses to all waiting
    callers."""
    return (
        group.members.get(back.member.member_id) is back.member
        and back.member.join_token == back.token
        and group.state is STABLE
    )


def _rebalance_timeout_ms(request: Join) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _why(what: str, request: Join) -> str:
    return what if request.reason is None else f"{what}. Reason: {request.reason}"
