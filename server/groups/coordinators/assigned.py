"""The coordinator of one kind of groups whose assignments the server makes (KIP-848, KIP-932, KIP-1071; Kafka:
GroupCoordinatorService).

`server.groups` decides. Here are the locks, the clock, the log and the memory. *Invariants*: each group has one change at a
time, in the order of the requests; records are in `__consumer_offsets` before a plan is true and before a member learns of it;
an ended timer is planned like any other change. A heartbeat without news waits only for the changes before it. Coordinators
stop before the partitions' actors, and a block that is shielded here ends by itself: with the answer of an append.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import attrs
import trio

from ....protocol.coordinator.fields import RecordKinds
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.types import TopicPartition
from ...logs.configs import GroupConfigs
from ...logs.topics import Topics
from ...loop.waiting import Alarm, KeyedLocks, deadline_now_ms
from ...offsets.offsets_topic import OffsetsTopic
from ...system.client_memory import Account, deep_bytes
from ...system.clock import NowMs
from ..assigned.groups import AssignedGroups, Plan, other_kind
from ..assigned.values import AssignedGroupSettings, MemberTimes, TimerKey, TopicMetadata
from ..classic.groups import STORE_ERRORS, ClassicGroups
from ..values import CommittingMember

LOGGER: Final = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""After which an ended timer is handled again whose records could not be stored."""

RECORD_BYTES: Final = 300
SAID_BY_CLIENTS: Final = ("MemberMetadataKey", "RegularExpressionKey", "TopologyKey")
"""Kinds of records that have what clients say; the others have what the server decides."""


@attrs.frozen
class ServerTopics:
    """The server's topics as groups see them: a `TopicImage`."""

    topics: Topics

    @property
    def version(self) -> int:
        return self.topics.version

    def find(self, name: str) -> TopicMetadata | None:
        if name not in self.topics:
            return None
        topic = self.topics.get(name).topic
        return TopicMetadata(topic.topic_id.bytes, topic.partitions)

    def name_of(self, topic_id: bytes) -> str | None:
        try:
            return self.topics.name_of(topic_id)
        except RequestError:
            return None

    def names(self) -> Iterable[str]:
        return [hosted.topic.name for hosted in self.topics]


def member_times(kind: str, configs: GroupConfigs, group: str) -> MemberTimes:
    """Return the times of a group's members."""
    config = configs.of_group(group)
    return MemberTimes(config[f"{kind}.heartbeat.interval.ms"], config[f"{kind}.session.timeout.ms"])


async def _is_stored(group: str) -> None:
    """Nothing is on its way."""


class _RecordSize(NamedTuple):
    """The memory of a record."""

    number: int
    """Hash of its key."""
    is_said: bool
    """Whether it has what clients say."""
    size: int
    """0 for one that takes another back."""


G = TypeVar("G", bound=AssignedGroups[Any])
A = TypeVar("A")
D = TypeVar("D")


@attrs.define(eq=False, repr=False)
class AssignedCoordinator(Generic[G, A, D]):
    """See the module; `A`: answers to heartbeats, `D`: descriptions of groups. Owner of the members of all groups of its kind;
    called from any task of the trio thread."""

    KIND: ClassVar[str]
    GROUPS: ClassVar[type[Any]]
    RECORDS: ClassVar[RecordKinds[Any, Any]]
    TIMES: ClassVar[Callable[[str, GroupConfigs, str], Any]] = member_times

    _topic: OffsetsTopic
    _groups: G
    _wall_ms: NowMs
    _locks: KeyedLocks[str] = attrs.field(factory=KeyedLocks)
    """By group. A name is of one kind at a time, so all kinds share them."""
    _makers: Counter[str] = attrs.field(factory=Counter, init=False)
    """Heartbeats that may create a group, by group: they hold its lock or wait for it."""
    _classic: ClassicGroups | None = None
    """An empty classic group makes way for one of this kind; None: it does not."""
    is_of_another_kind: Callable[[str], bool] = lambda _: False
    """Whether a group of that name is of a kind that does not make way for this one."""
    classic_is_stored: Callable[[str], Awaitable[None]] = _is_stored
    """Waits until no record of a classic group of that name is on its way to the log."""
    _alarm: Alarm = attrs.field(factory=Alarm, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)
    _sizes: dict[str, dict[int, int]] = attrs.field(factory=dict, init=False)
    """Memory by group and hash of a record's key."""

    @classmethod
    def of(
        cls,
        topic: OffsetsTopic,
        wall_ms: NowMs,
        locks: KeyedLocks[str],
        configs: GroupConfigs,
        settings: AssignedGroupSettings,
        classic: ClassicGroups | None = None,
    ) -> Self:
        groups = cls.GROUPS(settings, ServerTopics(topic.topics), partial(cls.TIMES, cls.KIND, configs))
        return cls(topic, groups, wall_ms, locks, classic)

    # ---- life ------------------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Adopt the groups that the logs know, once they are loaded; the sessions of their members begin."""
        for key, value in self._topic.take_assigned(self.RECORDS):
            with self._topic.errors.isolate("coordinator-load", key):
                self._groups.replay(key, value)
                self._charge(key.group_id, self._sized([(key, value)]))
        self._groups.begin_sessions(deadline_now_ms())

    async def run(self) -> None:
        """Handle timers that end. Cancelled: a record that is being written is."""
        async with trio.open_nursery() as nursery:

            async def step() -> None:
                await self._alarm.wait(self._groups.next_deadline_ms)
                for key in self._groups.due(deadline_now_ms()):
                    nursery.start_soon(self._expire, key)

            await self._topic.errors.repeat("managed-groups", step)

    def close(self) -> None:
        """Refuse requests from now on: this is not the coordinator any more."""
        self._is_closed = True

    async def _expire(self, key: TimerKey) -> None:
        async with self._locks.hold(key.group_id):
            is_done = False
            with self._topic.errors.isolate("managed-groups", key.group_id):
                is_done = await self._handle_timer(key)
            if not is_done:
                self._groups.timers.set(key, deadline_now_ms() + RETRY_MS)
                self._alarm.bring_forward(self._groups.earliest_deadline_ms)

    async def _handle_timer(self, key: TimerKey) -> bool:
        """False: it is to be tried again."""
        plan = self._groups.expire(key, self._wall_ms())
        if plan is not None:
            LOGGER.info("%s group %s: %s timer of %r expired", self.KIND, key.group_id, key.kind.name.lower(), key.member_id)
            try:
                await self._carry_out(plan)
            except RequestError as exc:
                LOGGER.warning("%s group %s: could not persist the change after a timer: %s", self.KIND, key.group_id, exc)
                return False
        return True

    def _check_serving(self, group: str) -> None:
        """Raises RequestError: NOT_COORDINATOR, after which clients look for a coordinator, INVALID_GROUP_ID."""
        if self._is_closed:
            raise RequestError(f"group {group!r}: the coordinator is stopping", ErrorCode.NOT_COORDINATOR)
        try:
            self._topic.check_served(group)
        except RequestError as exc:
            code = exc.code if exc.code is ErrorCode.INVALID_GROUP_ID else ErrorCode.NOT_COORDINATOR
            raise RequestError(exc.message, code) from exc

    def _check_kind(self, group: str) -> None:
        """Raises GROUP_ID_NOT_FOUND for a group of another kind."""
        if self.is_of_another_kind(group):
            raise other_kind(self.KIND, group)

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    def try_heartbeat(self, request: Any) -> A | None:
        """Return the answer to a heartbeat without news: nothing changes but that its session begins again, and nothing waits.
        None: nothing has happened, call `heartbeat`."""
        group = request.group_id
        if group not in self._groups or group in self._locks:
            return None
        try:
            self._check_serving(group)
            plan = self._groups.heartbeat(request, self._wall_ms())
        except RequestError:
            return None
        if plan.records or self.waits(plan):
            return None
        self._commit(plan)
        answer: A | None = plan.answer
        return answer

    def waits(self, plan: Plan[Any]) -> bool:
        """Return whether a plan without records requires more than a commit."""
        return False

    async def heartbeat(self, request: Any) -> A:
        """Join, stay in, or leave. Raises RequestError. Cancelled: what it has led to is stored all the same."""
        self._groups.check(request)
        self._check_serving(request.group_id)
        async with self._making(request.group_id):
            self._check_kind(request.group_id)
            await self.classic_is_stored(request.group_id)
            self._check_serving(request.group_id)
            plan = self._plan(request)
            async with self._in_place_of_classic(request.group_id) as is_new:
                await self._carry_out(plan, replaces_classic=is_new)
        answer: A = plan.answer
        return answer

    @asynccontextmanager
    async def _making(self, group: str) -> AsyncIterator[None]:
        """Hold the lock of a group that the block may create."""
        self._makers[group] += 1
        try:
            async with self._locks.hold(group):
                yield
        finally:
            self._makers[group] -= 1
            if not self._makers[group]:
                del self._makers[group]

    def _plan(self, request: Any) -> Plan[Any]:
        """Plan what a heartbeat leads to. Raises RequestError."""
        return self._groups.heartbeat(request, self._wall_ms())

    @asynccontextmanager
    async def _in_place_of_classic(self, group: str) -> AsyncIterator[bool]:
        """Keep a classic group from taking members while one of its name is made in the block, and end it afterwards. Answers
        whether the group is new. Raises GROUP_ID_NOT_FOUND when the classic one has members."""
        if group in self._groups or self._classic is None:
            yield False
            return
        if not self._classic.begin_delete(group):
            raise RequestError(
                f"Group {group} is not a {self.KIND} group: it has members that use the classic protocol",
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
        is_stored = False
        try:
            yield True
            is_stored = True
        finally:
            self._classic.end_delete(group, is_deleted=is_stored)

    async def _carry_out(self, plan: Plan[Any], *, replaces_classic: bool = False) -> None:
        """Store a plan's records, then make it true. Raises RequestError; then nothing has changed."""
        if plan.records:
            await self._store(plan, lambda: self._commit(plan), replaces_classic=replaces_classic)
        else:
            self._commit(plan)

    def _commit(self, plan: Plan[Any]) -> None:
        self._groups.commit(plan, deadline_now_ms())
        self._alarm.bring_forward(self._groups.earliest_deadline_ms)

    async def _store(self, plan: Plan[Any], on_stored: Callable[[], None], *, replaces_classic: bool = False) -> None:
        """Not to be cancelled. Raises RequestError, with the codes that members understand."""
        group = plan.group.group_id
        sized = self._sized(plan.records)
        self._check_memory(group, sized)
        encoded = [self.RECORDS.encode(record) for record in plan.records]

        def stored() -> None:
            on_stored()
            self._charge(group, sized)

        try:
            with trio.CancelScope(shield=True):
                await self._topic.ensure()
                classic = None if plan.downgrade is None else plan.downgrade.value
                await self._topic.store(group, encoded, stored, replaces_classic=replaces_classic, classic=classic)
        except RequestError as exc:
            code = exc.code if isinstance(exc.code, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
            raise RequestError(
                f"group {group!r}: could not persist the change: {exc.message}", STORE_ERRORS.get(code, code)
            ) from exc

    # ---- memory ----------------------------------------------------------------------------------------------------------

    @property
    def _account(self) -> Account:
        return self._topic.memory.account(f"{self.KIND} groups", self._groups.settings.max_groups)

    def _sized(self, records: Sequence[tuple[Any, Any]]) -> list[_RecordSize]:
        """Measured once for each change, because a topology has thousands of values."""
        return [
            _RecordSize(hash(self.RECORDS.encode_key(key)), _is_said(key), _record_bytes(key, value)) for key, value in records
        ]

    def _check_memory(self, group: str, sized: Sequence[_RecordSize]) -> None:
        """Raises POLICY_VIOLATION where a client says more than it may. What the server decides itself for members is charged
        and never refused: an established group continues."""
        known = self._sizes.get(group, {})
        if any(each.is_said and each.size > known.get(each.number, 0) for each in sized):
            self._account.check(group, sum(each.size - known.get(each.number, 0) for each in sized))

    def _charge(self, group: str, sized: Sequence[_RecordSize]) -> None:
        """Charge records that are in the log."""
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
        """Return whether the group is of this kind."""
        return group in self._groups

    def is_concerned_with(self, group: str) -> bool:
        """Return whether the group is of this kind, or a heartbeat may create it. Other tasks that hold the lock, or wait for
        it, do not count: two of them would wait for each other without end."""
        return group in self._groups or group in self._makers

    async def remove(self, group: str) -> None:
        """Take a group without members out; its offsets stay. Nothing of this kind is left when this returns. Raises
        RequestError: NON_EMPTY_GROUP."""
        while self.is_concerned_with(group):
            async with self._locks.hold(group):
                if group in self._groups:
                    await self._remove_empty(group)

    async def _remove_empty(self, group: str) -> None:
        """Take a group without members out; the caller holds its lock. Raises RequestError: NON_EMPTY_GROUP."""
        await self._store(self._groups.plan_removal(group), lambda: self._groups.forget(group))

    async def make_way(self, group: str) -> ErrorCode:
        """Remove a group without members, so that a classic one can have its name. Returns the reason why that cannot be."""
        try:
            await self.remove(group)
        except RequestError as exc:
            if exc.code is ErrorCode.NON_EMPTY_GROUP:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return exc.code if isinstance(exc.code, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    async def expire(self) -> None:
        """Take out groups without members and without offsets. What fails is logged and tried again the next time."""
        for group in [each.group_id for each in self._groups.groups() if not each.members]:
            with self._topic.errors.isolate("group-expiry", group):
                try:
                    if not self._topic.is_known(group) and not self.has_members(group):
                        await self.remove(group)
                except RequestError as exc:
                    LOGGER.warning("%s group %s: could not delete the expired group, trying again: %s", self.KIND, group, exc)

    # ---- questions -------------------------------------------------------------------------------------------------------

    def has_members(self, group: str) -> bool:
        found = self._groups.find(group)
        return found is not None and bool(found.members)

    def group_ids(self) -> list[str]:
        """Return the names of all groups of this kind."""
        return [group.group_id for group in self._groups.groups()]

    def state_of(self, group: str) -> Any:
        """None for a group that is not of this kind."""
        found = self._groups.find(group)
        return None if found is None else found.state

    def describe(self, group: str) -> D:
        """Raises RequestError: GROUP_ID_NOT_FOUND for a group that is not of this kind."""
        self._check_serving(group)
        if group not in self._groups:
            self._check_kind(group)
        description: D = self._groups.describe(self._groups.known(group))
        return description

    def is_subscribed_to(self, group: str, topic: str) -> bool:
        """Return whether members of a group of this kind read a topic."""
        found = self._groups.find(group)
        return found is not None and found.is_subscribed_to(topic)

    def check_commit(
        self, group: str, who: CommittingMember, partitions: Iterable[TopicPartition], *, is_transactional: bool
    ) -> None:
        """Raises RequestError unless a member may commit offsets of these partitions."""
        found = self._groups.find(group)
        if found is not None:
            found.check_commit(who, partitions, self._groups.topics, is_transactional=is_transactional)

    def check_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Raises RequestError unless a member may read offsets."""
        found = self._groups.find(group)
        if found is not None:
            found.check_fetch(member_id, member_epoch)


def _is_said(key: Any) -> bool:
    return type(key).__name__.endswith(SAID_BY_CLIENTS)


def _record_bytes(key: Any, value: Any) -> int:
    """Memory that a record leads to: its member keeps what it says, and so does what is derived from all of them."""
    return 0 if value is None else RECORD_BYTES + 2 * (deep_bytes(key) + deep_bytes(value))
