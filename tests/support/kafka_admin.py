"""Requests of Kafka's administration, from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from triolog.protocol.errors import ErrorCode

from tests.support.kafka_wire import ask

NO_ID = bytes(16)
TIMEOUT_MS = 30_000
TOPIC_TYPE, BROKER_TYPE, GROUP_TYPE = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def new_topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assigned: Iterable[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [{"partition_index": number, "broker_ids": list(ids)} for number, ids in assigned],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }


def by_hand(name: str, *replicas: Sequence[int], **fields: Any) -> dict[str, Any]:
    """A topic whose partitions, from 0 on, are on these nodes."""
    given = {"partitions": -1, "replicas": -1, **fields}
    return new_topic(name, assigned=list(enumerate(replicas)), **given)


def create_topics(*topics: dict[str, Any], validate_only: bool = False) -> Any:
    return ask("CreateTopics", topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def delete_topics(*names: str) -> Any:
    """In versions up to 5."""
    return ask("DeleteTopics", topic_names=list(names), timeout_ms=TIMEOUT_MS)


def delete_states(*states: tuple[str | None, bytes]) -> Any:
    """By name or id, in version 6."""
    topics = [{"name": name, "topic_id": topic_id} for name, topic_id in states]
    return ask("DeleteTopics", topics=topics, timeout_ms=TIMEOUT_MS)


def more_partitions(*topics: tuple[str, int] | tuple[str, int, Sequence[Sequence[int]]], validate_only: bool = False) -> Any:
    """(name, total) or (name, total, nodes of each new partition)."""
    asked = []
    for name, total, *rest in topics:
        assignments = [{"broker_ids": list(ids)} for ids in rest[0]] if rest else None
        asked.append({"name": name, "count": total, "assignments": assignments})
    return ask("CreatePartitions", topics=asked, timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def delete_records(*partitions: tuple[str, int, int]) -> Any:
    """(topic, partition, offset)."""
    topics = [
        {"name": name, "partitions": [{"partition_index": number, "offset": offset}]} for name, number, offset in partitions
    ]
    return ask("DeleteRecords", topics=topics, timeout_ms=TIMEOUT_MS)


def describe(
    *resources: tuple[int, str], keys: Sequence[str] | None = None, synonyms: bool = False, documentation: bool = False
) -> Any:
    named = None if keys is None else list(keys)
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": named} for kind, name in resources]
    return ask("DescribeConfigs", resources=asked, include_synonyms=synonyms, include_documentation=documentation)


def alter(*resources: tuple[int, str, Sequence[tuple[str, str | None]]], validate_only: bool = False) -> Any:
    asked = [
        _altered(kind, name, [{"name": key, "value": value} for key, value in configs]) for kind, name, configs in resources
    ]
    return ask("AlterConfigs", resources=asked, validate_only=validate_only)


def alter_incrementally(*resources: tuple[int, str, Sequence[tuple[str, int, str | None]]], validate_only: bool = False) -> Any:
    """(type, name, [(key, operation, value)])."""
    asked = [
        _altered(kind, name, [{"name": key, "config_operation": how, "value": value} for key, how, value in configs])
        for kind, name, configs in resources
    ]
    return ask("IncrementalAlterConfigs", resources=asked, validate_only=validate_only)


def _altered(kind: int, name: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def error_names(results: Iterable[Any]) -> list[str]:
    """The names of the results' errors."""
    return [ErrorCode(result.error_code).name for result in results]
