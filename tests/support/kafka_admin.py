"""Requests of Kafka's administration, from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsAlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triolog.protocol.kafka.messages.topics import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsCreatableReplicaAssignment,
    CreateTopicsCreatableTopic,
    CreateTopicsCreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)

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
) -> CreateTopicsCreatableTopic:
    return CreateTopicsCreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreateTopicsCreatableReplicaAssignment(partition_index=n, broker_ids=list(ids)) for n, ids in assigned],
        configs=[CreateTopicsCreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def by_hand(name: str, *replicas: Sequence[int], **fields: Any) -> CreateTopicsCreatableTopic:
    """A topic whose partitions, from 0 on, are on these nodes."""
    given = {"partitions": -1, "replicas": -1, **fields}
    return new_topic(name, assigned=list(enumerate(replicas)), **given)


def create_topics(*topics: CreateTopicsCreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def delete_topics(*names: str) -> DeleteTopicsRequest:
    """In versions up to 5."""
    return DeleteTopicsRequest(topics=[], topic_names=list(names), timeout_ms=TIMEOUT_MS)


def delete_states(*states: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    """By name or id, in version 6."""
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
    return DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=TIMEOUT_MS)


def more_partitions(
    *topics: tuple[str, int] | tuple[str, int, Sequence[Sequence[int]]], validate_only: bool = False
) -> CreatePartitionsRequest:
    """(name, total) or (name, total, nodes of each new partition)."""
    asked = []
    for name, total, *rest in topics:
        assignments = [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in rest[0]] if rest else None
        asked.append(CreatePartitionsTopic(name=name, count=total, assignments=assignments))
    return CreatePartitionsRequest(topics=asked, timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def delete_records(*partitions: tuple[str, int, int]) -> DeleteRecordsRequest:
    """(topic, partition, offset)."""
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=number, offset=offset)])
        for name, number, offset in partitions
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def describe(
    *resources: tuple[int, str], keys: Sequence[str] | None = None, synonyms: bool = False, documentation: bool = False
) -> DescribeConfigsRequest:
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys))
        for kind, name in resources
    ]
    return DescribeConfigsRequest(resources=asked, include_synonyms=synonyms, include_documentation=documentation)


def alter(*resources: tuple[int, str, Sequence[tuple[str, str | None]]], validate_only: bool = False) -> AlterConfigsRequest:
    asked = [
        AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterConfigsAlterableConfig(name=key, value=value) for key, value in configs],
        )
        for kind, name, configs in resources
    ]
    return AlterConfigsRequest(resources=asked, validate_only=validate_only)


def alter_incrementally(
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    """(type, name, [(key, operation, value)])."""
    asked = [
        IncrementalAlterConfigsAlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsAlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in configs
            ],
        )
        for kind, name, configs in resources
    ]
    return IncrementalAlterConfigsRequest(resources=asked, validate_only=validate_only)


def error_names(results: Iterable[Any]) -> list[str]:
    """The names of the results' errors."""
    return [ErrorCode(result.error_code).name for result in results]
