"""Requests of members of Streams groups (KIP-1071), and what topologies are made of."""

from __future__ import annotations

from typing import Any, Final

from tests.support.kafka_asking import ask

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
