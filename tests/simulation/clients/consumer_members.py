"""Members of groups, by the protocol of KIP-848 and by the classic one, as Kafka's consumers with eager rebalances are.

Some of the former are slow to let go of what they have to, and say nothing of it until they have. Of the latter who joins again
lets everything go first; the leader draws lots for the partitions.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs
from triolog.protocol.coordinator.classic_group_records import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_consumer_protocol,
)
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition

from tests.simulation.clients.members import FENCED, NOBODY, REBALANCE_MS, SESSION_MS, GroupMember, everything
from tests.simulation.groups.events import Assigns, Described
from tests.simulation.groups.lives import TOPICS
from tests.support.kafka_wire import ask

Call = tuple[str, int]
"""An API and its version."""
JOINS: Final = 0
LEAVES: Final = -1
KEEPS_ITS_PLACE: Final = -2
UNDECIDED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR})
"""After one of these errors, the change that a heartbeat requested may still be in the log: the server was killed, or its
device failed, while it was written."""


@attrs.define(eq=False)
class ConsumerMember(GroupMember):
    HEARTBEAT: ClassVar[Call] = "ConsumerGroupHeartbeat", 1
    DESCRIBE: ClassVar[Call] = "ConsumerGroupDescribe", 1
    OWNED: ClassVar[str] = "topic_partitions"
    """The field of a heartbeat in which it reports what it has."""

    lives: int = 0
    doubt_since_ms: int | None = None
    """Since a heartbeat that began then it may have been asked to give something up, for which its time is limited."""
    is_unsure: bool = True
    """It does not know what the last heartbeat has led to."""
    is_news: bool = False
    """It has not said yet what it has now."""
    leaving: dict[TopicPartition, int] = attrs.field(factory=dict)
    """What it has to let go of, and after how many turns it does."""

    @property
    def asks_as(self) -> tuple[str | None, int]:
        return self.member_id, self.epoch

    async def turn(self) -> None:
        await super().turn()
        if self.rng.random() < 0.2:
            await self._describe()

    async def _describe(self) -> None:
        """Look at the group while others may change it."""
        begun_ms = self.world.at_ms()
        name, version = self.DESCRIBE
        answer = await self.kafka.call(ask(name, group_ids=[self.group]), version)
        if answer is not None and not answer.groups[0].error_code:
            epoch = answer.groups[0].group_epoch
            self.world.add(Described(**self.now(), group=self.group, epoch=epoch, begun_ms=begun_ms))

    async def beat(self) -> bool:
        if self.epoch == NOBODY:
            self.lives += 1
            self.member_id = self.member_id or f"{self.who} {self.lives}"
            self.doubt_since_ms, self.is_unsure, self.is_news = None, True, True
            self.leaving.clear()
        self._let_go_in_time()
        is_joining, begun_ms = self.epoch == NOBODY, self.world.at_ms()
        was_unsure = self.is_unsure
        is_full = was_unsure or self.rng.random() < 0.05
        self.takes_place()
        request = self._request(is_joining=is_joining, is_full=is_full)
        has_reported, before = getattr(request, self.OWNED) is not None and not self.leaving, set(self.owned)
        answer = await self.kafka.call(request, self.HEARTBEAT[1])
        error = None if answer is None else ErrorCode(answer.error_code)
        if error is None or error in UNDECIDED:
            self.is_unsure = True
            if not is_joining:
                self.doubt_since_ms = begun_ms if self.doubt_since_ms is None else self.doubt_since_ms
        if error is None:
            return not is_joining
        if error:
            self.was_refused(error)
            return False
        self.epoch, self.is_unsure, self.is_news = answer.member_epoch, False, False
        assigned = self._assigned(answer)
        if assigned is not None:
            self._take(assigned)
        until_ms = self._until_ms(
            begun_ms,
            has_reported=has_reported,
            was_unsure=was_unsure,
            gives_up=bool(before - self.owned.keys() or self.leaving),
        )
        if assigned is not None:
            self.told(set(self.owned), until_ms)
        self.heard(begun_ms, until_ms)
        return True

    def _until_ms(self, begun_ms: int, *, has_reported: bool, was_unsure: bool, gives_up: bool) -> int:
        """Until when it is a member, after a heartbeat in which it has reported what it had, or in whose answer it was asked
        to give something up. `was_unsure`: an answer before it was lost, which may have asked for the same."""
        if has_reported and not gives_up:
            self.doubt_since_ms = None
        elif gives_up and ((has_reported and not was_unsure) or self.doubt_since_ms is None):
            self.doubt_since_ms = begun_ms
        until_ms = begun_ms + SESSION_MS
        return until_ms if self.doubt_since_ms is None else min(until_ms, self.doubt_since_ms + REBALANCE_MS)

    def _request(self, *, is_joining: bool, is_full: bool) -> Any:
        owned: list[dict[str, Any]] | None = None
        if is_joining:
            owned = []
        elif is_full or (self.is_news and not self.leaving):
            owned = [
                {"topic_id": self.world.topic_ids[topic], "partitions": numbers}
                for topic in TOPICS
                if (numbers := [number for name, number in self.owned if name == topic])
            ]
        return ask(
            self.HEARTBEAT[0],
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=JOINS if is_joining else self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if is_full or is_joining else -1,
            subscribed_topic_names=list(TOPICS) if is_full or is_joining else None,
            topic_partitions=owned,
        )

    def _assigned(self, answer: Any) -> set[TopicPartition] | None:
        """None: what it was told before."""
        if answer.assignment is None:
            return None
        names = {topic_id: name for name, topic_id in self.world.topic_ids.items()}
        parts = answer.assignment.topic_partitions
        return {TopicPartition(names[each.topic_id], number) for each in parts for number in each.partitions}

    def _take(self, mine: set[TopicPartition]) -> None:
        for where in mine:
            self.leaving.pop(where, None)
        slow = self.rng.choice((0, 0, 1, 3))
        for where in sorted(self.owned.keys() - mine - self.leaving.keys()):
            self.leaving[where] = slow
        for where in sorted(mine - self.owned.keys()):
            self.owned[where] = None
        self.is_news = True
        self._let_go_in_time()

    def _let_go_in_time(self) -> None:
        due = [where for where, turns in self.leaving.items() if turns <= 0]
        self.leaving = {where: turns - 1 for where, turns in self.leaving.items() if turns > 0}
        self.is_news = self.is_news or bool(due)
        self.lets_go(due)

    def was_refused(self, error: ErrorCode) -> None:
        if error is ErrorCode.STALE_MEMBER_EPOCH:
            self.is_unsure = True
        elif error in FENCED:
            self.dismissed(error, is_explained=self.is_unsure and error is not ErrorCode.UNKNOWN_MEMBER_ID)

    def lets_go(self, partitions: list[TopicPartition]) -> None:
        super().lets_go(partitions)
        for where in partitions:
            self.leaving.pop(where, None)

    async def leave(self) -> None:
        await self._say_that_it_goes(LEAVES)

    async def announce_return(self) -> None:
        await self._say_that_it_goes(KEEPS_ITS_PLACE)

    async def _say_that_it_goes(self, epoch: int) -> None:
        name, version = self.HEARTBEAT
        who = {"group_id": self.group, "member_id": self.member_id, "instance_id": self.instance}
        await self.kafka.call(ask(name, **who, member_epoch=epoch), version)


@attrs.define(eq=False)
class StreamsMember(ConsumerMember):
    """Of a Streams group (KIP-1071). Its application has a subtopology for each topic, with the topic's name, so that a task is
    a partition."""

    HEARTBEAT: ClassVar[Call] = "StreamsGroupHeartbeat", 0
    DESCRIBE: ClassVar[Call] = "StreamsGroupDescribe", 0
    OWNED: ClassVar[str] = "active_tasks"

    def _request(self, *, is_joining: bool, is_full: bool) -> Any:
        tasks: dict[str, Any] = {}
        if is_joining or is_full or (self.is_news and not self.leaving):
            owned = {topic: [number for name, number in self.owned if name == topic] for topic in TOPICS}
            active = [{"subtopology_id": topic, "partitions": numbers} for topic, numbers in owned.items() if numbers]
            tasks = {"active_tasks": [] if is_joining else active, "standby_tasks": [], "warmup_tasks": []}
        parts = [{"subtopology_id": topic, "source_topics": [topic]} for topic in TOPICS]
        return ask(
            self.HEARTBEAT[0],
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=JOINS if is_joining else self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_full or is_joining else -1,
            process_id=self.who if is_joining else None,
            topology={"epoch": 0, "subtopologies": parts} if is_joining else None,
            **tasks,
        )

    def _assigned(self, answer: Any) -> set[TopicPartition] | None:
        if answer.active_tasks is None:
            return None
        return {TopicPartition(each.subtopology_id, number) for each in answer.active_tasks for number in each.partitions}


JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
HEARTBEAT_VERSION: Final = 3
LEAVE_VERSION: Final = 3
PROTOCOL: Final = "lots"


@attrs.define(eq=False, slots=False)
class ClassicMember(GroupMember):
    is_called: bool = False
    """The group rebalances: it has to join again."""

    async def beat(self) -> bool:
        if self.epoch == NOBODY or self.is_called:
            return await self._join()
        begun_ms = self.world.at_ms()
        answer = await self.kafka.call(ask("Heartbeat", **self._in_generation()), HEARTBEAT_VERSION)
        if answer is None:
            return True
        error = ErrorCode(answer.error_code)
        if not error:
            self.heard(begun_ms, begun_ms + SESSION_MS)
            return True
        self.was_refused(error)
        return False

    def _in_generation(self) -> dict[str, Any]:
        """What requests of a member begin with."""
        who = {"member_id": self.member_id, "group_instance_id": self.instance}
        return {"group_id": self.group, "generation_id": self.epoch, **who}

    def was_refused(self, error: ErrorCode) -> None:
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_called = True
        elif error in FENCED:
            self.dismissed(error)
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""

    async def _join(self) -> bool:
        self.lets_go(list(self.owned))
        self.takes_place()
        subscription = ConsumerProtocolSubscription(topics=list(TOPICS))
        request = ask(
            "JoinGroup",
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=[{"name": PROTOCOL, "metadata": encode_consumer_protocol(subscription, 0)}],
        )
        answer = await self.kafka.call(request, JOIN_VERSION)
        if answer is None:
            return False
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = answer.member_id
            answer = await self.kafka.call(request, JOIN_VERSION)
            if answer is None:
                return False
            error = ErrorCode(answer.error_code)
        if error:
            self.was_refused(error)
            return False
        self.member_id, self.epoch, self.is_called = answer.member_id, answer.generation_id, False
        return await self._sync(answer)

    async def _sync(self, joined: Any) -> bool:
        begun_ms = self.world.at_ms()
        is_leader = joined.leader == self.member_id
        assignments = self._assign(joined.members) if is_leader else []
        answer = await self.kafka.call(ask("SyncGroup", **self._in_generation(), assignments=assignments), SYNC_VERSION)
        error = None if answer is None else ErrorCode(answer.error_code)
        if answer is None or error:
            self.is_called = True
            if error in FENCED:
                self.was_refused(error)
            return False
        mine = decode_assignment(answer.assignment).assigned_partitions
        partitions = {TopicPartition(each.topic, number) for each in mine for number in each.partitions}
        self.told(partitions, begun_ms + SESSION_MS)
        return True

    def _assign(self, members: list[Any]) -> list[dict[str, Any]]:
        names = {each.member_id: each.group_instance_id or each.member_id for each in members}
        lots: dict[str, list[TopicPartition]] = {member: [] for member in sorted(names)}
        for where in everything(self.world.partitions):
            lots[self.rng.choice(sorted(lots))].append(where)
        self.world.add(Assigns(**self.me(), assignment=tuple((names[member], tuple(lot)) for member, lot in lots.items())))
        return [{"member_id": member, "assignment": _encoded(lot)} for member, lot in lots.items()]

    async def leave(self) -> None:
        who = {"member_id": self.member_id, "group_instance_id": self.instance}
        await self.kafka.call(ask("LeaveGroup", group_id=self.group, members=[who]), LEAVE_VERSION)


@attrs.define(eq=False, slots=False)
class MigratingMember(ConsumerMember, ClassicMember):
    """It uses one of the two protocols in each life, as an application does that is upgraded, or taken back. A static member
    uses the other one when it returns."""

    uses: type[ConsumerMember | ClassicMember] = ConsumerMember

    async def live(
        self, for_ms: int, ends: str, instance: str | None = None, away_ms: int | None = None, is_classic: bool = False
    ) -> None:
        if self.uses is not (uses := ClassicMember if is_classic else ConsumerMember):
            self._forget()
        self.uses = uses
        await super().live(for_ms, ends, instance, away_ms)

    async def maybe_go_away(self) -> None:
        if self.away_ms is not None:
            await super().maybe_go_away()
            self.uses = ConsumerMember if self.uses is ClassicMember else ClassicMember

    def _forget(self) -> None:
        self.lets_go(list(self.owned))
        self.epoch, self.member_id, self.until_ms = NOBODY, "", -1

    @property
    def asks_as(self) -> tuple[str | None, int]:
        return (self.member_id, self.epoch) if self.uses is ConsumerMember else (None, NOBODY)

    async def beat(self) -> bool:
        return await self.uses.beat(self)

    def was_refused(self, error: ErrorCode) -> None:
        """A group that becomes classic again has the group's epoch as its generation, whether or not its members have joined at
        that epoch. To a member that it has lost before it is no consumer group (both as in Kafka)."""
        if self.uses is ClassicMember and error is ErrorCode.ILLEGAL_GENERATION:
            self.dismissed(error, is_explained=True)
        elif self.uses is ConsumerMember and error is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch != NOBODY:
            self.dismissed(error)
        else:
            self.uses.was_refused(self, error)

    async def announce_return(self) -> None:
        await self.uses.announce_return(self)

    async def leave(self) -> None:
        await self.uses.leave(self)


def _encoded(lot: list[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in lot:
        by_topic.setdefault(topic, []).append(number)
    assigned = [ConsumerPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)
