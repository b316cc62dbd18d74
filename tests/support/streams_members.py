"""A member of a Streams group that speaks Kafka's protocol by hand: it runs at once what it is told to, and says so."""

from __future__ import annotations

from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.streams_groups import (
    StreamsGroupHeartbeatResponse,
    StreamsGroupTaskIds,
)

from tests.support.kafka_wire import KafkaWire
from tests.support.streams_requests import COUNTED, GROUP, MEMBER, heartbeat

LEAVES: Final = -1


@attrs.define(eq=False)
class StreamsMember:
    """Owner: the test."""

    client: KafkaWire
    member_id: str = MEMBER
    group_id: str = GROUP
    topology: dict[str, Any] = attrs.field(factory=lambda: COUNTED)
    epoch: int = 0
    active: list[StreamsGroupTaskIds] = attrs.field(factory=list)
    standby: list[StreamsGroupTaskIds] = attrs.field(factory=list)

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Join, or say what it runs; answers what it is told, which is no error."""
        answer = self.ask(self.epoch, **fields)
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.active, self.standby = answer.active_tasks, answer.standby_tasks or []
        return answer

    def ask(self, epoch: int, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """A heartbeat of which nothing is remembered."""
        told: dict[str, Any] = {"active_tasks": self.active, "standby_tasks": self.standby, "warmup_tasks": []}
        if epoch == 0:
            told = {"topology": self.topology, "process_id": f"process-of-{self.member_id}"}
        answer = self.client.call(heartbeat(epoch, group_id=self.group_id, member_id=self.member_id, **told, **fields), 0)
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        return answer

    def settle(self) -> None:
        """Go on until it is told nothing new."""
        while self.beat().active_tasks is not None:
            """It has told what it runs with the next one."""

    def leave(self) -> None:
        assert self.ask(LEAVES).error_code == 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Run nothing, and join with the next heartbeat."""
        self.epoch, self.active, self.standby = 0, [], []
