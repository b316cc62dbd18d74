"""A group whose members use both protocols of consumers, driven by hand: both state machines and one log, without a
coordinator; and clients of the classic protocol, of the eager and of the cooperative sort.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
from triolog.protocol.coordinator import classic_group_records
from triolog.protocol.coordinator.consumer_group_records import CONSUMER_GROUP_RECORDS
from triolog.protocol.coordinator.offsets import GroupMetadataKey, decode_offsets_key
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.server.groups.assigned.groups import Plan
from triolog.server.groups.assigned.values import NO_PARTITIONS, AssignedGroupSettings, HeartbeatAnswer, Partitions
from triolog.server.groups.classic import values
from triolog.server.groups.classic.group import ClassicGroup
from triolog.server.groups.classic.groups import ClassicGroups
from triolog.server.groups.consumer.classic_members import ClassicMembers
from triolog.server.groups.consumer.groups import ConsumerGroups
from triolog.server.groups.consumer.member import ConsumerHeartbeat

from tests.support.consumer_groups import GROUP, REBALANCE_TIMEOUT_MS, Topics, compacted

SESSION_MS: Final = 45_000
SUBSCRIPTION_VERSION: Final = 3
EAGER: Final = "range"
COOPERATIVE: Final = "cooperative-sticky"


@attrs.define(eq=False)
class Mixed:
    """What `GroupCoordinator` does for one group, with records that are stored at once."""

    topics: Topics
    settings: AssignedGroupSettings = attrs.field(factory=AssignedGroupSettings)
    now_ms: int = 0
    log: list[tuple[bytes, bytes | None]] = attrs.field(factory=list)
    fails: bool = False
    """No record of a consumer group can be stored."""
    answers: dict[int, values.JoinAnswer | values.SyncAnswer] = attrs.field(factory=dict)
    groups: ConsumerGroups = attrs.field(init=False)
    classic: ClassicGroups = attrs.field(init=False)
    members: ClassicMembers = attrs.field(init=False)
    _tokens: itertools.count[int] = attrs.field(factory=itertools.count)
    _ids: itertools.count[int] = attrs.field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        self.restart()

    # ---- what there is ---------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str | None:
        if GROUP in self.groups:
            return "consumer"
        return None if self.classic.describe(GROUP) is None else "classic"

    @property
    def classic_group(self) -> ClassicGroup | None:
        return self.classic.with_members(GROUP)

    def member_ids(self) -> set[str]:
        group = self.groups.find(GROUP) or self.classic_group
        return set() if group is None else set(group.members)

    # ---- the consumer protocol -------------------------------------------------------------------------------------------

    def heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        classic = None if GROUP in self.groups else self.classic_group
        if classic is not None and request.is_joining:
            plan = self.groups.upgrade(classic, request, self.now_ms)
            self.classic.begin_conversion(GROUP)
            is_converted = False
            try:
                self.commit(plan)
                is_converted = True
            finally:
                self._settle(self.classic.end_conversion(GROUP, is_converted=is_converted))
        else:
            plan = self.groups.heartbeat(request, self.now_ms)
            if GROUP not in self.groups and not self.classic.begin_delete(GROUP):
                raise RequestError("it has members", ErrorCode.GROUP_ID_NOT_FOUND)
            try:
                self.commit(plan)
            finally:
                self.classic.end_delete(GROUP, is_deleted=GROUP in self.groups)
        answer: HeartbeatAnswer = plan.answer
        return answer

    def commit(self, plan: Plan[Any]) -> None:
        if self.fails and plan.records:
            raise RequestError("the log is full", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if plan.records and GROUP not in self.groups:
            self.log.append((GroupMetadataKey(GROUP).encode(), None))
        self.log.extend(CONSUMER_GROUP_RECORDS.encode(record) for record in plan.records)
        self.groups.commit(plan, self.now_ms)
        if plan.downgrade is not None:
            self.log.append((GroupMetadataKey(GROUP).encode(), plan.downgrade.value.encode()))
            group, must_rebalance = plan.downgrade.group, plan.downgrade.must_rebalance
            self._settle(self.classic.adopt(group, self.now_ms, must_rebalance=must_rebalance))

    # ---- the classic protocol --------------------------------------------------------------------------------------------

    def join(self, request: values.Join) -> int:
        """Answers a token; `answers` has what it is answered, now or later."""
        token, group = next(self._tokens), self.groups.find(GROUP)
        if group is not None and group.members:
            try:
                plan = self.members.join(request, self.now_ms)
                self.commit(plan)
                self.answers[token] = plan.answer
            except RequestError as exc:
                self.answers[token] = values.JoinAnswer(error=ErrorCode(exc.code))
            return token
        if group is not None:
            self.log.extend(CONSUMER_GROUP_RECORDS.encode(record) for record in self.groups.plan_removal(GROUP).records)
            self.groups.forget(GROUP)
        self._settle(self.classic.join(request, token, self.now_ms))
        return token

    def sync(self, request: values.Sync) -> int:
        token = next(self._tokens)
        if GROUP not in self.groups:
            self._settle(self.classic.sync(request, token, self.now_ms))
            return token
        try:
            self.answers[token] = self.members.sync(request, self.now_ms)
        except RequestError as exc:
            self.answers[token] = values.SyncAnswer(error=ErrorCode(exc.code))
        return token

    def beat(self, request: values.Heartbeat) -> ErrorCode:
        if GROUP not in self.groups:
            return self.classic.heartbeat(request, self.now_ms)
        try:
            return self.members.heartbeat(request, self.now_ms)
        except RequestError as exc:
            return ErrorCode(exc.code)

    def leave(self, *leaving: values.LeavingMember) -> values.LeaveAnswer:
        if GROUP not in self.groups:
            answer, outcome = self.classic.leave(GROUP, leaving, self.now_ms)
            self._settle(outcome)
            return answer
        plan = self.members.leave(GROUP, leaving, self.now_ms)
        self.commit(plan)
        left: values.LeaveAnswer = plan.answer
        return left

    def _settle(self, outcome: values.Outcome) -> None:
        for token, answer in outcome.answers:
            assert isinstance(token, int)
            assert token not in self.answers, "a caller was answered twice"
            self.answers[token] = answer
        for store in outcome.stores:
            self.log.append((GroupMetadataKey(GROUP).encode(), store.value.encode()))
            self._settle(self.classic.stored(store.ticket, self.now_ms))

    # ---- time and restarts -----------------------------------------------------------------------------------------------

    def pass_time(self, until_ms: int) -> None:
        """Everything that comes due on the way."""
        while (due_ms := min(self._deadlines(), default=until_ms + 1)) <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            for key in self.groups.due(self.now_ms):
                plan = self.groups.expire(key, self.now_ms)
                if plan is not None:
                    self.commit(plan)
            self._settle(self.classic.on_time(self.now_ms))
        self.now_ms = until_ms

    def _deadlines(self) -> Iterable[int]:
        found = (self.groups.next_deadline_ms, self.classic.next_deadline_ms)
        return [deadline_ms for deadline_ms in found if deadline_ms is not None]

    def restart(self) -> None:
        """As a new process finds it."""
        self.groups = ConsumerGroups(self.settings, self.topics)
        self.members = ClassicMembers(self.groups)
        self.classic = ClassicGroups(
            values.GroupSettings(initial_rebalance_delay_ms=0), lambda prefix: f"{prefix}-{next(self._ids)}"
        )
        found = dict(self.log)
        for key_bytes, data in self.log:
            key = CONSUMER_GROUP_RECORDS.decode_key(key_bytes)
            if key is not None:
                value = None if data is None else CONSUMER_GROUP_RECORDS.decode_value(key, data)
                self.groups.replay(key, value)
        self.groups.begin_sessions(self.now_ms)
        kept = found.get(GroupMetadataKey(GROUP).encode())
        if kept is not None:
            assert isinstance(decode_offsets_key(GroupMetadataKey(GROUP).encode()), GroupMetadataKey)
            self._settle(self.classic.restore(GROUP, classic_group_records.decode_group_metadata_value(kept), self.now_ms))

    def compact(self) -> None:
        """Keep the newest record of each key, where it is."""
        self.log = compacted(self.log)


def subscription(topics: Sequence[str], owned: Partitions, find: Topics, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """What a client sends when it joins."""
    value = classic_group_records.ConsumerProtocolSubscription(topics=list(topics), owned_partitions=_named(owned, find))
    return classic_group_records.encode_consumer_protocol(value, version)


def assignment(partitions: Partitions, topics: Topics) -> bytes:
    """What a leader sends for a member."""
    return classic_group_records.encode_consumer_protocol(
        classic_group_records.ConsumerProtocolAssignment(assigned_partitions=_named(partitions, topics)), 1
    )


def assigned(data: bytes, topics: Topics) -> Partitions:
    return _known(classic_group_records.decode_assignment(data).assigned_partitions, topics)


def _named(partitions: Partitions, topics: Topics) -> list[classic_group_records.ConsumerPartitions]:
    named = [(topics.name_of(topic_id), number) for topic_id, number in sorted(partitions)]
    return [
        classic_group_records.ConsumerPartitions(topic=name, partitions=[number]) for name, number in named if name is not None
    ]


def _known(parts: Iterable[classic_group_records.ConsumerPartitions], topics: Topics) -> Partitions:
    found = ((topics.find(part.topic), number) for part in parts for number in part.partitions)
    return frozenset((topic.topic_id, number) for topic, number in found if topic is not None)


@attrs.define(eq=False, kw_only=True)
class ClassicClient:
    """A consumer of the classic protocol: each step is the next request that it sends, or its wait for an answer."""

    driven: Mixed
    topic_names: tuple[str, ...]
    instance_id: str | None = None
    protocol: str = EAGER
    member_id: str = ""
    generation: int = -1
    owned: Partitions = NO_PARTITIONS
    leads: tuple[values.JoinedMember, ...] | None = None
    """The members, for a leader that has to assign."""
    waits_for: int | None = None
    """Token of the answer that has not come."""
    next: Callable[[], None] = attrs.field(init=False)
    errors: list[ErrorCode] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.next = self.join

    @property
    def held(self) -> Partitions:
        return self.owned

    @property
    def is_over(self) -> bool:
        """It ends: another process has its instance id, or the others do not speak its protocol."""
        ends = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
        return not ends.isdisjoint(self.errors)

    @property
    def is_stable(self) -> bool:
        return self.next == self.beat

    def step(self) -> None:
        if self.waits_for is None or self.waits_for in self.driven.answers:
            self.next()

    def forget_answer(self) -> None:
        """The connection is gone, and with it the answer that it waits for."""
        if self.waits_for is not None:
            self.waits_for, self.next = None, self.join

    def lose(self, error: ErrorCode) -> None:
        """It is out, and gives up everything."""
        self.errors.append(error)
        self.owned, self.generation, self.waits_for, self.next = NO_PARTITIONS, -1, None, self.join
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""

    def join(self) -> None:
        if self.protocol == EAGER:
            self.owned = NO_PARTITIONS
        data = subscription(self.topic_names, self.owned, self.driven.topics)
        request = values.Join(
            group_id=GROUP,
            protocol_type=classic_group_records.CONSUMER_PROTOCOL_TYPE,
            protocols=((self.protocol, data),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id="classic",
            client_host="/127.0.0.1",
        )
        self.waits_for = self.driven.join(request)
        self.next = self.joined
        self.step()

    def joined(self) -> None:
        answer = self._take_answer()
        assert isinstance(answer, values.JoinAnswer)
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.next = answer.member_id, self.join
        elif answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.next = self.join
        elif answer.error is not ErrorCode.NONE:
            self.lose(answer.error)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            self.leads = answer.members if answer.leader == answer.member_id else None
            self.next = self.sync

    def sync(self) -> None:
        topics, given = self.driven.topics, assign(self.leads or (), self.driven.topics, self.protocol)
        request = values.Sync(
            group_id=GROUP,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=classic_group_records.CONSUMER_PROTOCOL_TYPE,
            protocol=self.protocol,
            assignments=tuple((member_id, assignment(partitions, topics)) for member_id, partitions in given.items()),
        )
        self.waits_for = self.driven.sync(request)
        self.next = self.synced
        self.step()

    def synced(self) -> None:
        answer = self._take_answer()
        assert isinstance(answer, values.SyncAnswer)
        if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.next = self.join
        elif answer.error is not ErrorCode.NONE:
            self.lose(answer.error)
        else:
            given = assigned(answer.assignment, self.driven.topics)
            has_given_up = not self.owned <= given
            self.owned = given
            self.next = self.join if has_given_up and self.protocol == COOPERATIVE else self.beat

    def beat(self) -> None:
        beat = {"generation": self.generation, "member_id": self.member_id, "group_instance_id": self.instance_id}
        error = self.driven.beat(values.Heartbeat(group_id=GROUP, **beat))
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.next = self.join
        elif error is not ErrorCode.NONE:
            self.lose(error)

    def leave(self) -> None:
        self.driven.leave(values.LeavingMember(self.member_id, self.instance_id))
        self.owned = NO_PARTITIONS

    def _take_answer(self) -> values.JoinAnswer | values.SyncAnswer:
        assert self.waits_for is not None
        answer, self.waits_for = self.driven.answers[self.waits_for], None
        return answer


def assign(members: Sequence[values.JoinedMember], topics: Topics, protocol: str) -> dict[str, Partitions]:
    """What a leader makes of its members' subscriptions: ranges; the cooperative one gives a partition to its next owner only
    when the one before has given it up."""
    subscriptions = {each.member_id: classic_group_records.decode_subscription(each.metadata) for each in members}
    owners = {
        partition: member_id
        for member_id, each in subscriptions.items()
        for partition in (_known(each.owned_partitions, topics) if protocol == COOPERATIVE else ())
    }
    given: dict[str, set[tuple[bytes, int]]] = {member_id: set() for member_id in subscriptions}
    for name in sorted({name for each in subscriptions.values() for name in each.topics}):
        readers = sorted(member_id for member_id, each in subscriptions.items() if name in each.topics)
        for partition in sorted(topics.all_of(name)) if topics.find(name) is not None else ():
            reader = readers[partition[1] % len(readers)]
            if owners.get(partition, reader) == reader:
                given[reader].add(partition)
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}
