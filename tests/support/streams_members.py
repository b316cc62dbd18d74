"""A member of a Streams group that speaks Kafka's protocol by hand: it runs at once what it is told to, and says so."""

from __future__ import annotations

from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.streams_groups import (
    StreamsGroupHeartbeatResponse,
    StreamsGroupTaskIds,
)

from tests.support.kafka_wire import KafkaWire, ask

GROUP: Final = "app"
MEMBER: Final = "member-1"
SOURCE: Final = "topic"
REPARTITION: Final = "app-repartition"
CHANGELOG: Final = "app-changelog"


def internal(name: str, partitions: int = 0) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "topic_configs": [{"key": "cleanup.policy", "value": "compact"}]}


def part(name: str, **lists: Any) -> dict[str, Any]:
    """A subtopology with nothing but these."""
    return {"subtopology_id": name, **lists}


def topology(*parts: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": list(parts)}


COUNTED: Final = topology(
    part("0", source_topics=[SOURCE], repartition_sink_topics=[REPARTITION]),
    part("1", repartition_source_topics=[internal(REPARTITION)], state_changelog_topics=[internal(CHANGELOG)]),
)
PLAIN: Final = topology(part("0", source_topics=[SOURCE]))


def heartbeat(epoch: int = 0, **fields: Any) -> Any:
    said: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": epoch, "endpoint_information_epoch": 0}
    if epoch == 0:
        said |= {"topology": COUNTED, "active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        said |= {"rebalance_timeout_ms": 60_000, "process_id": "p1"}
    return ask("StreamsGroupHeartbeat", **{**said, **fields})


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
