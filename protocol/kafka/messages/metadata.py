"""Metadata (key 3) and DescribeTopicPartitions (key 75): brokers, topics, partitions and who leads them.

Metadata: v1 null asks for all topics; v4 lets a topic be made; v7 leader epochs; v8 authorised operations (KIP-430); v10 topic
ids (KIP-516), by which is asked reliably from v12 on; v13 an error of its own (KIP-1102).
"""

from __future__ import annotations

from ...limits import INT32_MIN
from ...schema.fields import BOOL, INT16, INT32, STRING, struct, wire
from ..apis import PARTITION, TOPIC_ID, TOPIC_NAME


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
class DescribeTopicPartitionsCursor:
    topic_name: str = wire(TOPIC_NAME)
    partition_index: int = wire(PARTITION)


@struct
class DescribeTopicPartitionsRequest:
    topics: list[DescribeTopicPartitionsTopicRequest] = wire([DescribeTopicPartitionsTopicRequest])
    response_partition_limit: int = wire(INT32, default=2000)
    cursor: DescribeTopicPartitionsCursor | None = wire(DescribeTopicPartitionsCursor, nullable="0+", default=None)


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
class DescribeTopicPartitionsResponseCursor:
    topic_name: str = wire(TOPIC_NAME)
    partition_index: int = wire(PARTITION)


@struct
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = wire([DescribeTopicPartitionsResponseTopic])
    next_cursor: DescribeTopicPartitionsResponseCursor | None = wire(
        DescribeTopicPartitionsResponseCursor, nullable="0+", default=None
    )
