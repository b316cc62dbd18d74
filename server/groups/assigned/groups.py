"""All groups of one kind whose assignments the server makes: heartbeats, the passing of time, the log.

A command *plans*: it returns records to store and changes nothing. Once they are in the log `commit` makes the plan true; a
plan that cannot be stored is dropped. The owner makes no other plan for a group between a plan and its commit. A plan without
records is committed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ..timers import Timers
from .group import AssignedGroup, GroupDraft
from .values import AssignedGroupSettings, HeartbeatAnswer, MemberHeartbeat, MemberTimes, TimerKey, TimerKind, TopicImage

G = TypeVar("G", bound=AssignedGroup[Any, Any])


@attrs.frozen(kw_only=True)
class Plan(Generic[G]):
    """The outcome of a command: `commit` makes it so."""

    records: tuple[tuple[Any, Any], ...]
    """To be stored, all or none."""
    answer: Any = None
    base: G
    group: G
    touched: frozenset[str] = frozenset()
    """Members that have another assignment, or are gone."""
    alive: str | None = None
    """The member whose session begins again."""
    seen_version: int | None = None
    """Of the topics that the group was compared with."""
    memory: Any = None
    """What a Streams group remembers without a record."""
    begins_delay: bool = False
    """A Streams group waits for more members from now on."""
    joined: str | None = None
    """The member that has joined with the classic protocol, and has to request its assignment."""
    downgrade: Any = None
    """The classic group that takes the place of a consumer group."""


@attrs.define(eq=False, repr=False)
class AssignedGroups(Generic[G]):
    """See the module. Owner of all groups of its kind; called from one task at a time. A kind implements `check` and
    `advance`."""

    GROUP: ClassVar[type[Any]]
    DRAFT: ClassVar[type[Any]]
    ANSWER: ClassVar[type[Any]] = HeartbeatAnswer

    settings: AssignedGroupSettings
    topics: TopicImage
    times_of: Callable[[str], Any] = lambda _: MemberTimes()
    """Of a group's members; a change counts from the next heartbeat on."""
    _groups: dict[str, G] = attrs.field(factory=dict, init=False)
    timers: Timers[TimerKey] = attrs.field(factory=Timers, init=False)

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def find(self, group_id: str) -> G | None:
        """The group is not to be changed."""
        return self._groups.get(group_id)

    def known(self, group_id: str) -> G:
        """The group is not to be changed. Raises GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id)
        if group is None:
            raise unknown_group(group_id)
        return group

    def groups(self) -> Collection[G]:
        return self._groups.values()

    def describe(self, group: G) -> Any:
        return group.describe()

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    @staticmethod
    def check(request: Any) -> None:
        """Raises RequestError for a heartbeat that is invalid whatever the group."""
        raise NotImplementedError

    def heartbeat(self, request: Any, wall_ms: int) -> Plan[G]:
        """Plan what a heartbeat leads to. Raises RequestError; then nothing has come of it."""
        self.check(request)
        if request.is_leaving:
            return self.leave(request, wall_ms)
        return self.continue_heartbeat(self.DRAFT(self._group_for(request), self.topics, wall_ms), request)

    def continue_heartbeat(self, draft: Any, request: Any) -> Plan[G]:
        """Plan what the heartbeat of a member that stays leads to in its group."""
        known = self.speaker(draft, request)
        member = known.updated(request)
        if member is not known or member.member_id not in draft.group.members:
            draft.put_member(member)
        return self.advance(draft, request, known, member)

    def advance(self, draft: Any, request: Any, known: Any, member: Any) -> Plan[G]:
        """Plan what follows from a heartbeat for the group and for the member, which was `known` before it."""
        raise NotImplementedError

    def _group_for(self, request: MemberHeartbeat) -> G:
        group = self._groups.get(request.group_id)
        if group is None:
            if not request.is_joining:
                raise RequestError(
                    f"{self.GROUP.KIND.capitalize()} group {request.group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND
                )
            group = self.new_group(request.group_id)
        self.check_space(group, request)
        return group

    def check_space(self, group: G, request: Any) -> None:
        """Raises GROUP_MAX_SIZE_REACHED."""
        if len(group.members) >= self.settings.max_size and self.needs_space(group, request):
            raise RequestError(
                f"The {self.GROUP.KIND} group has reached its maximum capacity of {self.settings.max_size} members.",
                ErrorCode.GROUP_MAX_SIZE_REACHED,
            )

    def new_group(self, group_id: str) -> G:
        """Return a group that nobody has joined. Raises POLICY_VIOLATION."""
        if len(self._groups) >= self.settings.max_groups:
            raise RequestError(
                f"{len(self._groups)} {self.GROUP.KIND} groups exist, max_groups={self.settings.max_groups}",
                ErrorCode.POLICY_VIOLATION,
            )
        group: G = self.GROUP(group_id=group_id)
        return group

    def needs_space(self, group: G, request: MemberHeartbeat) -> bool:
        """Return whether a heartbeat would add a member, so that a group at its maximum size refuses it."""
        return request.member_id not in group.members

    def speaker(self, draft: Any, request: Any) -> Any:
        """Return the member that sends a heartbeat, known or new. Raises UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH."""
        group, is_new = draft.base, request.is_joining and request.member_id not in draft.base.members
        member = self.GROUP.MEMBER(member_id=request.member_id) if is_new else group.member(request.member_id)
        member.check_epoch(request)
        return member

    def leave(self, request: Any, wall_ms: int) -> Plan[G]:
        """Take a member out that says so. Raises GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
        group = self.known(request.group_id)
        group.member(request.member_id)
        return self.fence(group, [request.member_id], wall_ms, self.farewell(request))

    def fence(self, group: G, member_ids: Collection[str], wall_ms: int, answer: Any | None = None) -> Plan[G]:
        """Plan to take members out."""
        draft = self.DRAFT(group, self.topics, wall_ms)
        draft.fence(member_ids)
        return self.plan(draft, answer)

    def farewell(self, request: MemberHeartbeat) -> Any:
        """Return the answer to a member that leaves."""
        return self.ANSWER(member_id=request.member_id, member_epoch=request.member_epoch)

    def plan(self, draft: GroupDraft[Any], answer: Any | None = None, **more: Any) -> Plan[G]:
        return Plan(
            records=tuple(draft.records),
            answer=answer,
            base=draft.base,
            group=draft.group,
            touched=frozenset(draft.touched),
            **more,
        )

    def plan_removal(self, group_id: str) -> Plan[G]:
        """Plan to take an empty group out; `forget` ends it. Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.empty_group(group_id)
        return Plan(records=tuple((key, None) for key in group.own_keys()), base=group, group=group)

    def empty_group(self, group_id: str) -> G:
        """Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
        group = self.known(group_id)
        if group.members:
            raise RequestError("The group is not empty.", ErrorCode.NON_EMPTY_GROUP)
        return group

    def forget(self, group_id: str) -> None:
        """Drop a group whose removal is in the log."""
        self.timers.cancel(TimerKey(group_id, "", TimerKind.INITIAL))
        del self._groups[group_id]

    # ---- commit ----------------------------------------------------------------------------------------------------------

    def commit(self, plan: Plan[G], now_ms: int) -> None:
        """Make a plan true whose records are in the log, or that has none."""
        group, before = plan.group, plan.base
        assert self._groups.get(group.group_id, before) is before, f"{group.group_id}: two plans at once"
        if plan.records:
            self._groups[group.group_id] = group
        if plan.seen_version is not None:
            group.seen_version = plan.seen_version
        for member_id in plan.touched:
            self.time_member(group, member_id, now_ms)
        if plan.alive is not None:
            self.time_session(group.group_id, plan.alive, now_ms)

    # ---- time ------------------------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time at which `due` has to be called; None: not before another event."""
        return self.timers.next_deadline()

    @property
    def earliest_deadline_ms(self) -> int | None:
        """A lower bound of `next_deadline_ms` that costs nothing."""
        return self.timers.earliest

    def due(self, now_ms: int) -> Iterator[TimerKey]:
        """Yield the timers that have ended; give each to `expire`, under the group's lock."""
        while (key := self.timers.pop_due(now_ms)) is not None:
            yield key

    def expire(self, key: TimerKey, wall_ms: int) -> Plan[G] | None:
        """Plan to take a member out whose time is over; None when it has done meanwhile what it had to."""
        group = self._groups.get(key.group_id)
        member = group.members.get(key.member_id) if group is not None else None
        if group is None or member is None or self.timers.deadline(key) is not None:
            return None
        if key.kind is TimerKind.REBALANCE and not member.is_revoking:
            return None
        return self.fence(group, [key.member_id], wall_ms)

    def time_member(self, group: G, member_id: str, now_ms: int) -> None:
        """Begin or end the timers of a member that has another assignment, or is gone."""
        key = TimerKey(group.group_id, member_id, TimerKind.REBALANCE)
        member = group.members.get(member_id)
        if member is not None and member.is_revoking:
            self.timers.set(key, now_ms + max(member.rebalance_timeout_ms, 1))
        else:
            self.timers.cancel(key)
        if member is None:
            self.timers.cancel(key._replace(kind=TimerKind.SESSION))

    def session_timeout_ms(self, group_id: str, member_id: str) -> int:
        timeout_ms: int = self.times_of(group_id).session_timeout_ms
        return timeout_ms

    def time_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Begin the session of a member again."""
        timeout_ms = self.session_timeout_ms(group_id, member_id)
        self.timers.set(TimerKey(group_id, member_id, TimerKind.SESSION), now_ms + max(timeout_ms, 1))

    # ---- the log ---------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> None:
        """Apply a record of the log. `begin_sessions` follows when all of them are read."""
        if isinstance(key, self.GROUP.TYPES.metadata) and value is None:
            # The last one of a removal; the others may have been compacted away, or be those of a group that came before.
            self._groups.pop(key.group_id, None)
            return
        group = self._groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self._groups[key.group_id] = self.GROUP(group_id=key.group_id)
        group.put(key, value)

    def begin_sessions(self, now_ms: int) -> None:
        """Begin the sessions of all members."""
        for group in self._groups.values():
            for member_id in group.members:
                self.time_member(group, member_id, now_ms)
                self.time_session(group.group_id, member_id, now_ms)


def unknown_group(group_id: str) -> RequestError:
    return RequestError(f"Group {group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)


def other_kind(kind: str, group_id: str) -> RequestError:
    """A group of that name exists, and is of another kind."""
    return RequestError(f"Group {group_id} is not a {kind} group.", ErrorCode.GROUP_ID_NOT_FOUND)


def check_names(**names: str | None) -> None:
    """Raises INVALID_REQUEST for a blank name of a heartbeat."""
    for name, value in names.items():
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
