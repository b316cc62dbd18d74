"""Metadata (3), DescribeTopicPartitions (75), CreateTopics (19), DeleteTopics (20), CreatePartitions (37), DeleteRecords (21).

Metadata: v1 null requests all topics; v4 may create a topic; v7 leader epochs; v8 authorised operations (KIP-430); v10 topic
ids (KIP-516), reliable from v12 on; v13 an error of its own (KIP-1102).

CreateTopics: v5 returns configurations (KIP-525), v7 topic ids. DeleteTopics: v6 by topic id.
"""

from __future__ import annotations

from ...limits import INT32_MIN
from ...schema.fields import BOOL, INT8, INT16, INT32, INT64, STRING, struct, wire
from ..apis import PARTITION, TOPIC_ID, TOPIC_NAME
from .responses import Response


@struct
class CreateTopicsCreatableReplicaAssignment:
    partition_index: int = wire(INT32)
    broker_ids: list[int] = wire([INT32])


@struct
class CreateTopicsCreatableTopicConfig:
    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable="0+")


@struct
class CreateTopicsCreatableTopic:
    name: str = wire(TOPIC_NAME)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: list[CreateTopicsCreatableReplicaAssignment] = wire([CreateTopicsCreatableReplicaAssignment])
    configs: list[CreateTopicsCreatableTopicConfig] = wire([CreateTopicsCreatableTopicConfig])


@struct
class CreateTopicsRequest:
    topics: list[CreateTopicsCreatableTopic] = wire([CreateTopicsCreatableTopic])
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, "1+")


@struct
class CreateTopicsCreatableTopicConfigs:
    name: str = wire(STRING, "5+")
    value: str | None = wire(STRING, "5+", nullable="5+")
    read_only: bool = wire(BOOL, "5+")
    config_source: int = wire(INT8, "5+", default=-1)
    is_sensitive: bool = wire(BOOL, "5+")


@struct
class CreateTopicsCreatableTopicResult:
    name: str = wire(TOPIC_NAME)
    topic_id: bytes = wire(TOPIC_ID, "7+")
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "1+", nullable="0+")
    topic_config_error_code: int = wire(INT16, "5+", tag=0, default=...)
    num_partitions: int = wire(INT32, "5+", default=-1)
    replication_factor: int = wire(INT16, "5+", default=-1)
    configs: list[CreateTopicsCreatableTopicConfigs] | None = wire([CreateTopicsCreatableTopicConfigs], "5+", nullable="5+")


@struct
class CreateTopicsResponse:
    throttle_time_ms: int = wire(INT32, "2+", default=0)
    topics: list[CreateTopicsCreatableTopicResult] = wire([CreateTopicsCreatableTopicResult])


@struct
class DeleteTopicState:
    name: str | None = wire(TOPIC_NAME, "6+", nullable="6+", default=None)
    topic_id: bytes = wire(TOPIC_ID, "6+")


@struct
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = wire([DeleteTopicState], "6+")
    topic_names: list[str] = wire([TOPIC_NAME], "0-5")
    timeout_ms: int = wire(INT32)


@struct
class DeleteTopicsDeletableTopicResult:
    name: str | None = wire(TOPIC_NAME, nullable="6+")
    topic_id: bytes = wire(TOPIC_ID, "6+")
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "5+", nullable="5+", default=None)


@struct
class DeleteTopicsResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    responses: list[DeleteTopicsDeletableTopicResult] = wire([DeleteTopicsDeletableTopicResult])


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = wire([INT32])


@struct
class CreatePartitionsTopic:
    name: str = wire(TOPIC_NAME)
    count: int = wire(INT32)
    assignments: list[CreatePartitionsAssignment] | None = wire([CreatePartitionsAssignment], nullable="0+")


@struct
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = wire([CreatePartitionsTopic])
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


@struct
class CreatePartitionsTopicResult:
    name: str = wire(TOPIC_NAME)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@struct
class CreatePartitionsResponse(Response):
    results: list[CreatePartitionsTopicResult] = wire([CreatePartitionsTopicResult])


@struct
class DeleteRecordsPartition:
    partition_index: int = wire(PARTITION)
    offset: int = wire(INT64)


@struct
class DeleteRecordsTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[DeleteRecordsPartition] = wire([DeleteRecordsPartition])


@struct
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = wire([DeleteRecordsTopic])
    timeout_ms: int = wire(INT32)


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = wire(PARTITION)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16, default=0)


@struct
class DeleteRecordsTopicResult:
    name: str = wire(TOPIC_NAME)
    partitions: list[DeleteRecordsPartitionResult] = wire([DeleteRecordsPartitionResult])


@struct
class DeleteRecordsResponse(Response):
    topics: list[DeleteRecordsTopicResult] = wire([DeleteRecordsTopicResult])


@struct
class MetadataRequestTopic:
    topic_id: bytes = wire(TOPIC_ID, "10+")
    name: str | None = wire(TOPIC_NAME, nullable="10+")


@struct
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = wire([MetadataRequestTopic], nullable="1+")
    allow_auto_topic_creation: bool = wire(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, "8-10")
    include_topic_authorized_operations: bool = wire(BOOL, "8+")


@struct
class MetadataResponseBroker:
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, "1+", nullable="1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: int = wire(INT16, default=0)
    partition_index: int = wire(PARTITION)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, "7+", default=-1)
    replica_nodes: list[int] = wire([INT32])
    isr_nodes: list[int] = wire([INT32])
    offline_replicas: list[int] = wire([INT32], "5+")


@struct
class MetadataResponseTopic:
    error_code: int = wire(INT16, default=0)
    name: str | None = wire(TOPIC_NAME, nullable="12+")
    topic_id: bytes = wire(TOPIC_ID, "10+")
    is_internal: bool = wire(BOOL, "1+")
    partitions: list[MetadataResponsePartition] = wire([MetadataResponsePartition])
    topic_authorized_operations: int = wire(INT32, "8+", default=INT32_MIN)


@struct
class MetadataResponse:
    throttle_time_ms: int = wire(INT32, "3+", default=0)
    brokers: list[MetadataResponseBroker] = wire([MetadataResponseBroker])
    cluster_id: str | None = wire(STRING, "2+", nullable="2+", default=None)
    controller_id: int = wire(INT32, "1+", default=-1)
    topics: list[MetadataResponseTopic] = wire([MetadataResponseTopic])
    cluster_authorized_operations: int = wire(INT32, "8-10", default=INT32_MIN)
    error_code: int = wire(INT16, "13+", default=0)


@struct
class DescribeTopicPartitionsTopicRequest:
    name: str = wire(TOPIC_NAME)


@struct
class TopicPartitionCursor:
    topic_name: str = wire(TOPIC_NAME)
    partition_index: int = wire(PARTITION)


@struct
class DescribeTopicPartitionsRequest:
    topics: list[DescribeTopicPartitionsTopicRequest] = wire([DescribeTopicPartitionsTopicRequest])
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: TopicPartitionCursor | None = wire(TopicPartitionCursor, nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = wire(INT16, default=0)
    partition_index: int = wire(PARTITION)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    replica_nodes: list[int] = wire([INT32])
    isr_nodes: list[int] = wire([INT32])
    eligible_leader_replicas: list[int] | None = wire([INT32], nullable="0+", default=None)
    last_known_elr: list[int] | None = wire([INT32], nullable="0+", default=None)
    offline_replicas: list[int] = wire([INT32])


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = wire(INT16, default=0)
    name: str | None = wire(TOPIC_NAME, nullable="0+")
    topic_id: bytes = wire(TOPIC_ID)
    is_internal: bool = wire(BOOL)
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire([DescribeTopicPartitionsResponsePartition])
    topic_authorized_operations: int = wire(INT32, default=INT32_MIN)


@struct
class DescribeTopicPartitionsResponse(Response):
    topics: list[DescribeTopicPartitionsResponseTopic] = wire([DescribeTopicPartitionsResponseTopic])
    next_cursor: TopicPartitionCursor | None = wire(TopicPartitionCursor, nullable="0+", default=None)
