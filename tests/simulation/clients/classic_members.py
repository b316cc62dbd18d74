"""Members of a group by the classic protocol, as Kafka's consumers with eager rebalances are: who joins again lets everything
go first. The leader draws lots for the partitions."""

from __future__ import annotations

from typing import Any, Final

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

from tests.support.kafka_wire import ask

from ..groups.events import Assigns
from ..groups.lives import TOPICS
from .members import FENCED, NOBODY, REBALANCE_MS, SESSION_MS, GroupMember, everything

JOIN_VERSION: Final = 5
SYNC_VERSION: Final = 3
HEARTBEAT_VERSION: Final = 3
LEAVE_VERSION: Final = 3
PROTOCOL: Final = "lots"


@attrs.define(eq=False)
class ClassicMember(GroupMember):
    """See the module."""

    is_called: bool = False
    """The group rebalances: it has to join again."""

    async def beat(self) -> bool:
        if self.epoch == NOBODY or self.is_called:
            return await self._join()
        begun_ms = self.world.at_ms()
        request = ask("Heartbeat", group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        answer = await self.kafka.call(request, HEARTBEAT_VERSION)
        if answer is None:
            return True
        error = ErrorCode(answer.error_code)
        if not error:
            self.heard(begun_ms, begun_ms + SESSION_MS)
            return True
        self.was_refused(error)
        return False

    def was_refused(self, error: ErrorCode) -> None:
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.is_called = True
        elif error in FENCED:
            self.dismissed(error)
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""

    async def _join(self) -> bool:
        self.lets_go(list(self.owned))
        subscription = ConsumerProtocolSubscription(topics=list(TOPICS))
        request = ask(
            "JoinGroup",
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
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
        assignments = self._assign([each.member_id for each in joined.members]) if is_leader else []
        whose = {"group_id": self.group, "generation_id": self.epoch, "member_id": self.member_id}
        answer = await self.kafka.call(ask("SyncGroup", **whose, assignments=assignments), SYNC_VERSION)
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

    def _assign(self, members: list[str]) -> list[dict[str, Any]]:
        lots: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
        for where in everything(self.world.partitions):
            lots[self.rng.choice(sorted(lots))].append(where)
        self.world.add(Assigns(**self.me(), assignment=tuple((member, tuple(lot)) for member, lot in lots.items())))
        return [{"member_id": member, "assignment": _encoded(lot)} for member, lot in lots.items()]

    async def leave(self) -> None:
        request = ask("LeaveGroup", group_id=self.group, members=[{"member_id": self.member_id}])
        await self.kafka.call(request, LEAVE_VERSION)


def _encoded(lot: list[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in lot:
        by_topic.setdefault(topic, []).append(number)
    assigned = [ConsumerPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    return encode_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)
