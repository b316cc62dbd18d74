"""The group coordinator: classic groups with their members, groups of the other kinds, and the offsets that they commit (Kafka:
GroupCoordinatorService). A name is of one kind at a time.

`server.groups` decides. Here are the callers that wait, the clock, and the log: a group's record is in `__consumer_offsets`
before anybody is told what it says. Members of classic groups live in memory between two records; after a start they have what
the last record says, and their sessions begin again.

A caller that is cancelled, because its connection is gone, is still a member and still waited for: it may have a new connection
in a moment, and if not its session ends like any other.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Collection, Generator, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import attrs
import trio

from ....protocol.coordinator.fields import RecordKinds
from ....protocol.coordinator.streams_group_records import STREAMS_GROUP_RECORDS
from ....protocol.errors import ErrorCode, RequestError, UnknownTopicOrPartitionError
from ....protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ...config.broker_config import BrokerConfig
from ...logs.configs import GroupConfigs
from ...loop.waiting import Alarm, KeyedLocks, deadline_now_ms
from ...offsets.committed_offsets import OFFSETS_PER_BATCH, AnswerCommit, Commit, CommittedOffsets
from ...offsets.offsets_topic import OffsetsTopic, check_group
from ...system.clock import NowMs
from ..assigned.groups import Plan
from ..assigned.values import AssignedGroupSettings
from ..classic.groups import ClassicGroups, subscribed_error
from ..classic.values import (
    GroupDescription,
    GroupSettings,
    Heartbeat,
    Join,
    JoinAnswer,
    LeaveAnswer,
    LeavingMember,
    Outcome,
    Sync,
    SyncAnswer,
    Token,
)
from ..streams.group import StreamsGroup
from ..streams.groups import StreamsGroups
from ..streams.values import STREAMS_TYPE, StreamsGroupDescription, StreamsHeartbeatAnswer, StreamsTimes
from ..values import CommittingMember, GroupListing, GroupState
from .assigned import AssignedCoordinator
from .classic_records import GroupRecords
from .consumer import ConsumerCoordinator
from .share import ShareCoordinator

GROUPS_PER_PAUSE: Final = 256
"""Of a list of groups; about 0.3 ms."""


@attrs.define(eq=False, repr=False)
class _Caller:
    """A task that waits for a join or a sync."""

    answered: trio.Event = attrs.field(factory=trio.Event)
    answer: JoinAnswer | SyncAnswer | None = None


@attrs.define(eq=False, repr=False)
class GroupCoordinator:
    """See the module. Owner of the members of all groups; called from any task of the trio thread."""

    _offsets: CommittedOffsets
    _topic: OffsetsTopic
    _members: ClassicGroups
    _records: GroupRecords
    consumers: ConsumerCoordinator
    share: ShareCoordinator
    streams: StreamsCoordinator
    _assigned: tuple[AssignedCoordinator[Any, Any, Any], ...]
    """These three: the coordinators of groups whose assignments the server makes."""
    _callers: dict[Token, _Caller] = attrs.field(factory=dict)
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count)
    _alarm: Alarm = attrs.field(factory=Alarm)
    _is_closed: bool = False

    @classmethod
    def of(cls, config: BrokerConfig, offsets: CommittedOffsets, now_ms: NowMs, configs: GroupConfigs) -> GroupCoordinator:
        settings = GroupSettings(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
            max_groups=config.max_groups,
            max_metadata_bytes=config.group_max_metadata_bytes,
        )
        account = offsets.topic.memory.account("classic groups", config.max_groups)
        members = ClassicGroups(settings, account=account)
        shared = offsets.topic, now_ms, KeyedLocks[str](), configs
        sizes = config.group_max_size, config.group_share_max_size, config.group_streams_max_size
        policy = config.group_consumer_migration_policy
        limits = [AssignedGroupSettings(size, config.max_groups, policy) for size in sizes]
        consumers = ConsumerCoordinator.of(*shared, limits[0], members)
        share = ShareCoordinator.of(*shared, limits[1])
        streams = StreamsCoordinator.of(*shared, limits[2], members)
        records = GroupRecords(offsets.topic, now_ms)
        coordinator = cls(offsets, offsets.topic, members, records, consumers, share, streams, (consumers, streams, share))
        consumers.classic_is_stored = streams.classic_is_stored = coordinator._classic_is_stored
        consumers.settle = coordinator._settle
        consumers.is_of_another_kind = lambda group: group in share or group in streams
        streams.is_of_another_kind = lambda group: group in share or group in consumers
        share.is_of_another_kind = coordinator._is_not_shared
        return coordinator

    # ---- life ------------------------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Adopt the members that the logs know, once they are loaded; their sessions begin."""
        for group, value in self._topic.take_restorable():
            with self._topic.errors.isolate("coordinator-load", group):
                self._settle(self._members.restore(group, value, deadline_now_ms()))
        for each in self._assigned:
            each.restore()

    async def run(self) -> None:
        """Handle timers that end, and write records. Cancelled: a record that is being written is."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            for each in self._assigned:
                nursery.start_soon(each.run)
            nursery.start_soon(self._records.run, self._stored, self._store_failed)

    def close(self) -> None:
        """Refuse requests from now on, and those that wait: this is not the coordinator any more."""
        self._is_closed = True
        for each in self._assigned:
            each.close()
        self._settle(self._members.close())

    async def _keep_time(self) -> None:
        isolate = partial(self._topic.errors.isolate, "classic-groups")

        async def step() -> None:
            await self._alarm.wait(self._members.next_deadline_ms)
            self._settle(self._members.on_time(deadline_now_ms(), isolate))

        await self._topic.errors.repeat("classic-groups", step)

    def _settle(self, outcome: Outcome) -> None:
        """Carry out the outcome of a command: answer callers, store records."""
        for token, answer in outcome.answers:
            caller = self._callers.get(token)
            if caller is not None:
                caller.answer = answer
                caller.answered.set()
        self._records.put(outcome.stores)
        self._alarm.bring_forward(self._members.earliest_deadline_ms)

    def _stored(self, ticket: int) -> None:
        self._settle(self._members.stored(ticket, deadline_now_ms()))

    def _store_failed(self, ticket: int, error: ErrorCode) -> None:
        self._settle(self._members.store_failed(ticket, error, deadline_now_ms()))

    # ---- members ---------------------------------------------------------------------------------------------------------

    async def join(self, request: Join) -> JoinAnswer:
        """Be in the next generation of a group; waits for the other members. A consumer group with members accepts the member
        as it is; any other group without members becomes a classic one. Cancelled: the member has joined all the same."""
        error = self._refusal(request.group_id) or self._members.check(request)
        while error is ErrorCode.NONE and (other := self._in_the_way(request.group_id)) is not None:
            if other is self.consumers:
                if (answer := await self.consumers.join(request)) is not None:
                    return answer
            else:
                error = await other.make_way(request.group_id)
            error = error or self._refusal(request.group_id)
        if error is ErrorCode.NONE and request.group_id in self.share:
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error is not ErrorCode.NONE:
            return JoinAnswer(error=error, member_id=request.member_id)
        joined = await self._wait_for(partial(self._members.join, request))
        assert isinstance(joined, JoinAnswer)
        return joined

    def _in_the_way(self, group: str) -> AssignedCoordinator[Any, Any, Any] | None:
        """Return the coordinator that has, or may be about to have, a group of that name, and removes it when it is empty."""
        others = () if group in self.share else (self.consumers, self.streams)
        return next((other for other in others if other.is_concerned_with(group)), None)

    async def sync(self, request: Sync) -> SyncAnswer:
        """Return the member's assignment; waits for the leader and the log. Cancelled: the member has synced all the same."""
        error = self._refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return SyncAnswer(error=error)
        if (answer := await self.consumers.sync(request)) is not None:
            return answer
        synced = await self._wait_for(partial(self._members.sync, request))
        assert isinstance(synced, SyncAnswer)
        return synced

    async def _wait_for(self, command: Callable[[Token, int], Outcome]) -> JoinAnswer | SyncAnswer | None:
        number, caller = next(self._numbers), _Caller()
        self._callers[number] = caller
        try:
            self._settle(command(number, deadline_now_ms()))
            await caller.answered.wait()
        finally:
            del self._callers[number]
        return caller.answer

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Extend the session of a member. REBALANCE_IN_PROGRESS: it has to join again."""
        error = self._refusal(request.group_id)
        if error is ErrorCode.NONE and request.group_id in self.consumers:
            return self.consumers.beat(request)
        if error is ErrorCode.NONE:
            error = self._members.heartbeat(request, deadline_now_ms())
            self._settle(Outcome())
        return error

    async def _classic_is_stored(self, group: str) -> None:
        while self._members.is_being_stored(group) and not self._is_closed:
            await self._records.written()

    def is_managed(self, group: str) -> bool:
        """Return whether the server computes the assignments of the group."""
        return self.assigned_of(group) is not None

    def assigned_of(self, group: str) -> AssignedCoordinator[Any, Any, Any] | None:
        """Return the coordinator of a group whose assignments the server computes."""
        return next((each for each in self._assigned if group in each), None)

    def _is_not_shared(self, group: str) -> bool:
        """Return whether a group of that name exists and is not a share group."""
        return group not in self.share and (self.is_managed(group) or self.describe(group).state is not GroupState.DEAD)

    async def leave(self, group: str, members: Sequence[LeavingMember]) -> LeaveAnswer:
        """Remove members from a group. Returns an answer for each."""
        error = self._refusal(group)
        if error is not ErrorCode.NONE:
            return LeaveAnswer(error=error)
        if (left := await self.consumers.leave(group, members)) is not None:
            return left
        answer, outcome = self._members.leave(group, members, deadline_now_ms())
        self._settle(outcome)
        return answer

    def _refusal(self, group: str) -> ErrorCode:
        """Return the reason why the group accepts no members now. Clients look for a coordinator that can serve them."""
        if self._is_closed:
            return ErrorCode.NOT_COORDINATOR
        try:
            self._topic.check_served(group)
        except RequestError as exc:
            return exc.code if exc.code is ErrorCode.INVALID_GROUP_ID else ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    # ---- offsets ---------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        group: str,
        commits: Sequence[Commit],
        member: CommittingMember,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> list[RequestError | None]:
        """`CommittedOffsets.commit`, if the member may commit for the group at the moment of the append. Raises
        RequestError."""
        check = partial(self._check_commit, group, member, commits, is_transactional=producer_id != NO_PRODUCER_ID)
        return await self._offsets.commit(group, commits, check=check, producer_id=producer_id, producer_epoch=producer_epoch)

    def try_commit(self, group: str, commits: Sequence[Commit], member: CommittingMember, answer: AnswerCommit) -> bool:
        """`CommittedOffsets.try_commit`, with the same check."""
        return self._offsets.try_commit(group, commits, answer, check=partial(self._check_commit, group, member, commits))

    def _check_commit(
        self, group: str, member: CommittingMember, commits: Sequence[Commit], *, is_transactional: bool = False
    ) -> None:
        if group in self.share:
            raise RequestError(f"Group {group} is a share group: it commits no offsets", ErrorCode.GROUP_ID_NOT_FOUND)
        if (assigned := self.assigned_of(group)) is not None:
            partitions = (commit.topic_partition for commit in commits)
            assigned.check_commit(group, member, partitions, is_transactional=is_transactional)
            return
        self._members.check_commit(group, member, is_transactional=is_transactional, now_ms=deadline_now_ms())
        self._settle(Outcome())

    def check_fetch(self, group: str, member_id: str | None, member_epoch: int) -> None:
        """Raises RequestError unless this member may read offsets."""
        self.consumers.check_fetch(group, member_id, member_epoch)
        self.streams.check_fetch(group, member_id, member_epoch)

    async def delete_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> list[RequestError | None]:
        """Forget offsets of a group, except those of topics that its members read (KIP-496). Returns one answer for each, in
        order. Raises RequestError for all of them."""
        check_group(group)
        is_there = group in self.consumers or group in self.streams
        if not is_there and self.describe(group).state is GroupState.DEAD:
            raise _no_such_group(group)
        self._members.check_delete_offsets(group)
        answers: list[RequestError | None] = []
        for first in range(0, len(partitions), OFFSETS_PER_BATCH):
            some = partitions[first : first + OFFSETS_PER_BATCH]
            errors = [self._deletion_error(group, each) for each in some]
            await self._offsets.take_back(group, [each for each, error in zip(some, errors, strict=True) if error is None])
            answers += errors
        return answers

    def _deletion_error(self, group: str, topic_partition: TopicPartition) -> RequestError | None:
        if not self._offsets.has_partition(topic_partition):
            return UnknownTopicOrPartitionError(f"{topic_partition} does not exist")
        topic = topic_partition.topic
        if self.consumers.is_subscribed_to(group, topic) or self.streams.is_subscribed_to(group, topic):
            return subscribed_error(group, topic_partition)
        return self._members.delete_offset_error(group, topic_partition)

    # ---- groups ----------------------------------------------------------------------------------------------------------

    def describe(self, group: str) -> GroupDescription:
        """Return state, protocol and members. An unknown group is Dead, and so is one that is not classic. Raises
        RequestError."""
        self._topic.check_served(group)
        if self.is_managed(group):
            return GroupDescription(group_id=group)
        found = self._members.describe(group)
        if found is not None:
            return found
        return GroupDescription(group_id=group, state=GroupState.EMPTY if self._topic.is_known(group) else GroupState.DEAD)

    def group_ids(self) -> set[str]:
        """Return the names of all groups, of any kind."""
        return self._topic.names().union(self._members.group_ids(), *(each.group_ids() for each in self._assigned))

    def listing_steps(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Generator[None, None, list[GroupListing]]:
        """List all groups by name, or those in one of the states and of one of the types; case does not matter. Pauses after a
        few groups; those that come meanwhile are not listed."""
        wanted_states, wanted_types = ({each.lower() for each in names} for names in (states, types))
        names = list(self.group_ids())
        sorted_parts = []
        for start in range(0, len(names), GROUPS_PER_PAUSE):
            sorted_parts.append(sorted(names[start : start + GROUPS_PER_PAUSE]))
            yield
        found = []
        for number, name in enumerate(heapq.merge(*sorted_parts), 1):
            listing = self._listing(name)
            if (
                listing is not None
                and (not wanted_states or listing.state.value.lower() in wanted_states)
                and (not wanted_types or listing.group_type in wanted_types)
            ):
                found.append(listing)
            if not number % GROUPS_PER_PAUSE:
                yield
        return found

    def _listing(self, group: str) -> GroupListing | None:
        """None for a group that has gone meanwhile."""
        for each in self._assigned:
            if (state := each.state_of(group)) is not None:
                return GroupListing(group, each.KIND, state, each.KIND)
        listing = self._members.listing(group)
        return GroupListing(group) if listing is None and self._topic.is_known(group) else listing

    async def delete(self, group: str) -> None:
        """Forget a group without members, and its offsets. Raises RequestError. Cancelled once it has begun: it waits for the
        end all the same."""
        self._topic.check_served(group)
        if group in self.share:
            await self.share.remove(group)
            return
        if (assigned := self.assigned_of(group)) is not None:
            with trio.CancelScope(shield=True):
                await assigned.remove(group)
                if self._topic.is_known(group):
                    await self._offsets.delete(group)
            return
        await self._classic_is_stored(group)
        description = self.describe(group)
        if description.state is GroupState.DEAD:
            raise _no_such_group(group)
        if not self._members.begin_delete(group):
            raise RequestError(
                f"group {group!r} is {description.state.value} and has {len(description.members)} members. Stop them first",
                ErrorCode.NON_EMPTY_GROUP,
            )
        is_deleted = False
        try:
            with trio.CancelScope(shield=True):
                if self._topic.is_known(group):
                    await self._offsets.delete(group)
            is_deleted = True
        finally:
            self._members.end_delete(group, is_deleted=is_deleted)

    def _may_expire(self, group: str) -> bool:
        return self._members.is_expirable(group) and not any(each.has_members(group) for each in self._assigned)

    async def expire(self) -> int:
        """Expire offsets of groups without members after their retention; forget groups of which nothing is left. Returns the
        number of offsets. What fails is logged and tried again the next time."""
        self._settle(self._members.store_again())
        count = await self._offsets.expire(self._may_expire)
        await self.consumers.expire()
        await self.streams.expire()
        for group in self._members.idle_groups():
            with self._topic.errors.isolate("group-expiry", group), contextlib.suppress(RequestError):
                if not self._topic.is_known(group):
                    self._members.forget(group)
        return count


def _streams_times(kind: str, configs: GroupConfigs, group: str) -> StreamsTimes:
    config = configs.of_group(group)
    return StreamsTimes(
        config["streams.heartbeat.interval.ms"],
        config["streams.session.timeout.ms"],
        config["streams.initial.rebalance.delay.ms"],
        config["streams.num.standby.replicas"],
    )


@attrs.define(eq=False, repr=False)
class StreamsCoordinator(AssignedCoordinator[StreamsGroups, StreamsHeartbeatAnswer, StreamsGroupDescription]):
    """The coordinator of Streams groups (KIP-1071). The answer of a heartbeat names missing internal topics: its sender creates
    them, if the member may."""

    KIND: ClassVar[str] = STREAMS_TYPE
    GROUPS: ClassVar[type[Any]] = StreamsGroups
    RECORDS: ClassVar[RecordKinds[Any, Any]] = STREAMS_GROUP_RECORDS
    TIMES: ClassVar[Callable[[str, GroupConfigs, str], StreamsTimes]] = _streams_times

    def waits(self, plan: Plan[StreamsGroup]) -> bool:
        return plan.answer is not None and bool(plan.answer.missing_topics)


def _no_such_group(group: str) -> RequestError:
    return RequestError(f"there is no group {group!r}. `triolog groups list` lists the groups", ErrorCode.GROUP_ID_NOT_FOUND)
