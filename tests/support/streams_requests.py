"""Requests of members of Streams groups (KIP-1071), and what topologies are made of."""

from __future__ import annotations

from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatSubtopology,
    StreamsGroupHeartbeatTopology,
    StreamsGroupKeyValue,
    StreamsGroupTopicInfo,
)

GROUP: Final = "app"
MEMBER: Final = "member-1"
SOURCE: Final = "topic"
REPARTITION: Final = "app-repartition"
CHANGELOG: Final = "app-changelog"


def internal(name: str, partitions: int = 0) -> StreamsGroupTopicInfo:
    configs = [StreamsGroupKeyValue(key="cleanup.policy", value="compact")]
    return StreamsGroupTopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=configs)


def part(name: str, **lists: Any) -> StreamsGroupHeartbeatSubtopology:
    """A subtopology with nothing but these."""
    empty: dict[str, Any] = {field.name: [] for field in attrs.fields(StreamsGroupHeartbeatSubtopology)}
    return StreamsGroupHeartbeatSubtopology(**{**empty, "subtopology_id": name, **lists})


def topology(*parts: StreamsGroupHeartbeatSubtopology, epoch: int = 0) -> StreamsGroupHeartbeatTopology:
    return StreamsGroupHeartbeatTopology(epoch=epoch, subtopologies=list(parts))


COUNTED: Final = topology(
    part("0", source_topics=[SOURCE], repartition_sink_topics=[REPARTITION]),
    part("1", repartition_source_topics=[internal(REPARTITION)], state_changelog_topics=[internal(CHANGELOG)]),
)
PLAIN: Final = topology(part("0", source_topics=[SOURCE]))


def heartbeat(epoch: int = 0, **fields: Any) -> StreamsGroupHeartbeatRequest:
    said: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": epoch, "endpoint_information_epoch": 0}
    if epoch == 0:
        said |= {"topology": COUNTED, "active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
        said |= {"rebalance_timeout_ms": 60_000, "process_id": "p1"}
    return StreamsGroupHeartbeatRequest(**{**said, **fields})
