"""What the coordinators of groups whose assignments the server makes do alike: each group has one change at a time, in the
order of the requests; what has been planned is in the log before it is so; what comes due is planned like any other change.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import attrs

from .....protocol.coordinator.fields import RecordKinds
from .....protocol.errors import ErrorCode, RequestError
from ....groups.timers import Timers
from ....system.client_memory import Account, deep_bytes
from ....system.clock import NowMs
from ..alarm import Alarm, deadline_now_ms
from ..offsets_topic import OffsetsTopic
from .group_log import check_serving, expire_in_time, store_records
from .group_turns import GroupTurns

LOGGER: Final = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""After which what has come due is looked at again, when what follows could not be stored."""


RECORD_BYTES: Final = 300
SAID_BY_CLIENTS: Final = ("MemberMetadataKey", "RegularExpressionKey", "TopologyKey")
"""Kinds of records that have what clients say; the others have what the server decides."""


class _Sized(NamedTuple):
    """What the ledger is told of a record."""

    number: int
    """Hash of its key."""
    is_said: bool
    """Whether it has what clients say."""
    size: int
    """0 for one that takes another back."""


class ManagedPlan(Protocol):
    """What a command has come to."""

    @property
    def records(self) -> Sequence[tuple[Any, Any]]: ...

    @property
    def group(self) -> Any: ...


P = TypeVar("P", bound=ManagedPlan)
T = TypeVar("T", bound=NamedTuple)


class Groups(Protocol[P, T]):
    """The groups of one kind: a `GroupTable` with its plans."""

    timers: Timers[T]
    settings: Any

    def __contains__(self, group_id: object) -> bool: ...

    def find(self, group_id: str, /) -> Any: ...

    def groups(self) -> Collection[Any]: ...

    @property
    def next_deadline_ms(self) -> int | None: ...
    @property
    def earliest_deadline_ms(self) -> int | None: ...

    def due(self, now_ms: int, /) -> Iterator[T]: ...

    def replay(self, key: Any, value: Any, /) -> None: ...

    def begin_sessions(self, now_ms: int, /) -> None: ...

    def heartbeat(self, request: Any, wall_ms: int, /) -> P: ...

    def expire(self, key: T, wall_ms: int, /) -> P | None: ...

    def commit(self, plan: P, now_ms: int, /) -> None: ...

    def plan_removal(self, group_id: str, /) -> P: ...

    def forget(self, group_id: str, /) -> None: ...


G = TypeVar("G", bound=Groups[Any, Any])


@attrs.define(eq=False, repr=False)
class ManagedCoordinator(Generic[G, P, T]):
    """See the module. Owner of the members of all groups of its kind; called from any task of the trio thread."""

    KIND: ClassVar[str]
    """What its groups are called in the log of events."""
    RECORDS: ClassVar[RecordKinds[Any, Any]]

    _topic: OffsetsTopic
    _groups: G
    _wall_ms: NowMs
    _turns: GroupTurns = attrs.field(factory=GroupTurns)
    is_of_another_kind: Callable[[str], bool] = lambda _: False
    """Whether a group of that name is of a kind that does not make way for this one."""
    _alarm: Alarm = attrs.field(factory=Alarm, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _sizes: dict[str, dict[int, int]] = attrs.field(factory=dict, init=False)
    """Memory by group and hash of a record's key."""

    # ---- life ------------------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Take over the groups that the logs know, once they are loaded; the sessions of their members begin."""
        for key, value in self._topic.take_managed(self.RECORDS):
            with self._topic.errors.isolate("coordinator-load", key):
                self._groups.replay(key, value)
                self._charge(key.group_id, self._sized([(key, value)]))
        self._groups.begin_sessions(deadline_now_ms())

    async def run(self) -> None:
        """What comes due. Cancelled: a record that is being written is."""
        await expire_in_time(self._alarm, self._groups, self._expire, self._topic.errors)

    def close(self) -> None:
        """Answer everybody who comes that this is the coordinator no more."""
        self._is_closed = True

    async def _expire(self, key: Any) -> None:
        async with self._turns.of(key.group_id):
            is_done = False
            with self._topic.errors.isolate("managed-groups", key.group_id):
                is_done = await self._expire_now(key)
            if not is_done:
                self._groups.timers.set(key, deadline_now_ms() + RETRY_MS)
                self._alarm.bring_forward(self._groups.earliest_deadline_ms)

    async def _expire_now(self, key: Any) -> bool:
        """False: it is to be tried again."""
        plan = self._groups.expire(key, self._wall_ms())
        if plan is not None:
            LOGGER.info("%s group %s: the time of %s is over", self.KIND, key.group_id, ", ".join(map(str, key[1:])))
            try:
                await self._carry_out(plan)
            except RequestError as exc:
                LOGGER.warning("%s group %s: what follows could not be stored: %s", self.KIND, key.group_id, exc)
                return False
        return True

    def _check_serving(self, group: str) -> None:
        check_serving(self._topic, group, is_closed=self._is_closed)

    # ---- plans -----------------------------------------------------------------------------------------------------------

    def _plan_now(self, request: Any, check: Callable[[Any], None]) -> P | None:
        """What a heartbeat of a member of a known group comes to, where nothing is to be waited for nor stored, and nothing to
        be refused; else None."""
        group = request.group_id
        if group not in self._groups or group in self._turns:
            return None
        try:
            check(request)
            self._check_serving(group)
            plan: P = self._groups.heartbeat(request, self._wall_ms())
        except RequestError:
            return None
        return None if plan.records else plan

    async def _carry_out(self, plan: P, *, replaces_classic: bool = False) -> None:
        """Store a plan's records, then make it true. Raises RequestError; then nothing has changed."""
        if plan.records:
            await self._store(plan, lambda: self._commit(plan), replaces_classic=replaces_classic)
        else:
            self._commit(plan)

    def _commit(self, plan: P) -> None:
        self._groups.commit(plan, deadline_now_ms())
        self._alarm.bring_forward(self._groups.earliest_deadline_ms)

    async def _store(self, plan: P, on_stored: Callable[[], None], *, replaces_classic: bool = False) -> None:
        group = plan.group.group_id
        sized = self._sized(plan.records)
        self._check_memory(group, sized)
        encoded = [self.RECORDS.encode(record) for record in plan.records]

        def stored() -> None:
            on_stored()
            self._charge(group, sized)

        await store_records(self._topic, group, encoded, stored, replaces_classic=replaces_classic)

    # ---- memory ----------------------------------------------------------------------------------------------------------

    @property
    def _account(self) -> Account:
        return self._topic.memory.account(f"{self.KIND} groups", self._groups.settings.max_groups)

    def _sized(self, records: Sequence[tuple[Any, Any]]) -> list[_Sized]:
        """Looked at once for each change, because a topology has thousands of values."""
        return [_Sized(hash(self.RECORDS.encode_key(key)), _is_said(key), _record_bytes(key, value)) for key, value in records]

    def _check_memory(self, group: str, sized: Sequence[_Sized]) -> None:
        """Raises POLICY_VIOLATION where a client says more than it may. What the server decides itself for members is charged
        and never refused: an established group goes on."""
        known = self._sizes.get(group, {})
        if any(each.is_said and each.size > known.get(each.number, 0) for each in sized):
            self._account.check(group, sum(each.size - known.get(each.number, 0) for each in sized))

    def _charge(self, group: str, sized: Sequence[_Sized]) -> None:
        """These records are what the log says."""
        sizes = self._sizes.setdefault(group, {})
        total = self._account.size_of(group)
        for number, _, size in sized:
            total += size - sizes.pop(number, 0)
            if size:
                sizes[number] = size
        if sizes:
            self._account.put(group, total)
        else:
            del self._sizes[group]
            self._account.drop(group)

    # ---- between the kinds -----------------------------------------------------------------------------------------------

    def __contains__(self, group: object) -> bool:
        """Whether it is a group of this kind."""
        return group in self._groups

    def is_concerned_with(self, group: str) -> bool:
        """Whether it is a group of this kind, or somebody has its turn, who may make it one."""
        return group in self._turns or group in self._groups

    async def remove(self, group: str) -> None:
        """Take a group without members out; its offsets stay. Nothing of this kind is there when this returns. Raises
        RequestError: NON_EMPTY_GROUP."""
        while self.is_concerned_with(group):
            async with self._turns.of(group):
                if group in self._groups:
                    await self._store(self._groups.plan_removal(group), lambda: self._groups.forget(group))

    async def make_way(self, group: str) -> ErrorCode:
        """Remove a group without members, so that a classic one can have its name; answers why that cannot be."""
        try:
            await self.remove(group)
        except RequestError as exc:
            if exc.code is ErrorCode.NON_EMPTY_GROUP:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return exc.code if isinstance(exc.code, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def has_members(self, group: str) -> bool:
        found = self._groups.find(group)
        return found is not None and bool(found.members)

    def group_ids(self) -> list[str]:
        """The names of all groups of this kind."""
        return [group.group_id for group in self._groups.groups()]

    def state_of(self, group: str) -> Any:
        """The state of a group; None for one that is not of this kind."""
        found = self._groups.find(group)
        return None if found is None else found.state

    async def expire(self) -> int:
        """Take out groups without members and without offsets, and answer how many. What fails is logged and tried again the
        next time."""
        count = 0
        for group in [each.group_id for each in self._groups.groups() if not each.members]:
            with self._topic.errors.isolate("group-expiry", group):
                try:
                    if not self._topic.is_known(group) and not self.has_members(group):
                        await self.remove(group)
                        count += 1
                except RequestError as exc:
                    LOGGER.warning("%s group %s has expired, which is tried again: %s", self.KIND, group, exc)
        return count


def _is_said(key: Any) -> bool:
    return type(key).__name__.endswith(SAID_BY_CLIENTS)


def _record_bytes(key: Any, value: Any) -> int:
    """Memory that a record leads to: what it says is kept by its member, and in what is derived from all of them."""
    return 0 if value is None else RECORD_BYTES + 2 * (deep_bytes(key) + deep_bytes(value))


@asynccontextmanager
async def in_place_of_classic(classic: Any, group: str, refusal: RequestError, *, is_new: bool) -> AsyncIterator[None]:
    """For the time of the block, in which a group is made, a classic one of its name takes no members; afterwards it is gone.
    Raises `refusal` when that has members. Nothing for a group that is there."""
    if not is_new:
        yield
        return
    if not classic.begin_delete(group):
        raise refusal
    is_stored = False
    try:
        yield
        is_stored = True
    finally:
        classic.end_delete(group, is_deleted=is_stored)
