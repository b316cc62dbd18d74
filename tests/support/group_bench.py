"""The state machine of classic groups on a bench: a clock that is turned by hand, callers with names, and a log that takes
records at once, later, or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import attrs
from triolog.protocol.errors import ErrorCode
from triolog.server.groups.classic import values
from triolog.server.groups.classic.groups import ClassicGroups
from triolog.server.groups.values import GroupListing, GroupState

GROUP: Final = "group"
RANGE: Final = (("range", b"topics"),)
SESSION_MS: Final = 10_000
REBALANCE_MS: Final = 60_000


@attrs.define(eq=False)
class Bench:
    """One machine. Answers are kept under the caller's number."""

    settings: values.GroupSettings = attrs.field(factory=lambda: values.GroupSettings(initial_rebalance_delay_ms=0))
    stores_at_once: bool = True
    now_ms: int = 1_000_000
    answers: dict[int, values.JoinAnswer | values.SyncAnswer] = attrs.field(factory=dict)
    log: list[values.Store] = attrs.field(factory=list)
    """Every record that the machine wanted stored, in order."""
    waiting_stores: list[values.Store] = attrs.field(factory=list)
    groups: ClassicGroups = attrs.field(init=False)
    _callers: itertools.count[int] = attrs.field(factory=itertools.count)
    _ids: itertools.count[int] = attrs.field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new machine with what the log has."""
        self.groups = ClassicGroups(self.settings, lambda prefix: f"{prefix}-{next(self._ids)}")
        self.waiting_stores.clear()
        for group_id, value in {store.group_id: store.value for store in self.log}.items():
            self.take(self.groups.restore(group_id, value, self.now_ms))

    def listings(self) -> list[GroupListing]:
        return [found for group_id in self.groups.group_ids() if (found := self.groups.listing(group_id)) is not None]

    def take(self, outcome: values.Outcome) -> None:
        for token, answer in outcome.answers:
            assert isinstance(token, int)
            assert token not in self.answers, "a caller was answered twice"
            self.answers[token] = answer
        for store in outcome.stores:
            self.waiting_stores.append(store)
        while self.stores_at_once and self.waiting_stores:
            self.store()

    def store(self) -> None:
        """The log takes the next record."""
        store = self.waiting_stores.pop(0)
        self.log.append(store)
        self.take(self.groups.stored(store.ticket, self.now_ms))

    def fail_store(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """The log refuses the next record."""
        store = self.waiting_stores.pop(0)
        self.take(self.groups.store_failed(store.ticket, error, self.now_ms))

    def joined(self, caller: int) -> values.JoinAnswer:
        answer = self.answers[caller]
        assert isinstance(answer, values.JoinAnswer)
        return answer

    def synced(self, caller: int) -> values.SyncAnswer:
        answer = self.answers[caller]
        assert isinstance(answer, values.SyncAnswer)
        return answer

    def is_waiting(self, caller: int) -> bool:
        return caller not in self.answers

    def join(self, member_id: str = "", *, group_id: str = GROUP, **changes: Any) -> int:
        """A consumer of version 4 or later joins; answers the caller's number."""
        caller = next(self._callers)
        request = values.Join(
            group_id=group_id,
            protocol_type="consumer",
            protocols=RANGE,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            client_id="client",
            client_host="/127.0.0.1",
        )
        self.take(self.groups.join(attrs.evolve(request, **changes), caller, self.now_ms))
        return caller

    def enter(self, **changes: Any) -> tuple[str, int]:
        """Join as a consumer does that has no member id: ask for one, and join with it. (member id, caller)."""
        answer = self.joined(self.join(**changes))
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id, self.join(answer.member_id, **changes)

    def sync(self, member: str, generation: int, *, group_id: str = GROUP, **changes: Any) -> int:
        caller = next(self._callers)
        request = values.Sync(group_id=group_id, generation=generation, member_id=member)
        self.take(self.groups.sync(attrs.evolve(request, **changes), caller, self.now_ms))
        return caller

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None, *, group_id: str = GROUP) -> ErrorCode:
        request = values.Heartbeat(group_id=group_id, generation=generation, member_id=member_id, group_instance_id=instance_id)
        return self.groups.heartbeat(request, self.now_ms)

    def leave(self, *members: str | values.LeavingMember, group_id: str = GROUP) -> list[ErrorCode]:
        leaving = [values.LeavingMember(each) if isinstance(each, str) else each for each in members]
        answer, outcome = self.groups.leave(group_id, leaving, self.now_ms)
        self.take(outcome)
        assert answer.error is ErrorCode.NONE
        return [each.error for each in answer.members]

    def advance(self, ms: int) -> None:
        """Let time pass, with everything that comes due on the way."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.groups.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.groups.on_time(self.now_ms))
            later_ms = self.groups.next_deadline_ms
            assert later_ms is None or later_ms > self.now_ms
        self.now_ms = end_ms

    def state(self, group_id: str = GROUP) -> GroupState:
        found = self.groups.describe(group_id)
        return GroupState.DEAD if found is None else found.state

    def member_ids(self, group_id: str = GROUP) -> list[str]:
        found = self.groups.describe(group_id)
        return [] if found is None else [each.member_id for each in found.members]

    def stable(self, count: int, instance_ids: Sequence[str | None] = (), **changes: Any) -> list[str]:
        """A stable group of so many members, the leader first; each has its own name as its assignment."""
        instances = [*instance_ids, *[None] * (count - len(instance_ids))]
        member_ids: list[str] = []
        for instance_id in instances:
            self._grow(member_ids, instance_id, changes)
        assert self.state(changes.get("group_id", GROUP)) is GroupState.STABLE
        return member_ids

    def _grow(self, member_ids: list[str], instance_id: str | None, changes: dict[str, Any]) -> None:
        if instance_id is None:
            _, caller = self.enter(**changes)
        else:
            caller = self.join(group_instance_id=instance_id, **changes)
        rejoining = [self.join(each, **changes) for each in member_ids]
        answer = self.joined(caller)
        member_ids.append(answer.member_id)
        for other in [caller, *rejoining]:
            assert self.joined(other).error is ErrorCode.NONE
        generation = answer.generation
        leader = answer.leader
        for each in sorted(member_ids, key=lambda each: each != leader):
            assignments = tuple((name, name.encode()) for name in member_ids) if each == leader else ()
            self.sync(each, generation, assignments=assignments, group_id=changes.get("group_id", GROUP))
        member_ids.sort(key=lambda each: each != leader)
