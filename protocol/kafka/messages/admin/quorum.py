"""DescribeQuorum (55): who keeps the metadata of the cluster, and how far each has got (KIP-595).

v1 when each voter fetched last (KIP-836); v2 messages, directories and the addresses of the voters (KIP-853).
"""

from __future__ import annotations

from ....schema.fields import INT16, INT32, INT64, STRING, UINT16, UUID, struct, wire
from ...apis import PARTITION, TOPIC_NAME


@struct
class DescribeQuorumPartitionData:
    partition_index: int = wire(PARTITION)


@struct
class DescribeQuorumTopicData:
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[DescribeQuorumPartitionData] = wire([DescribeQuorumPartitionData])


@struct
class DescribeQuorumRequest:
    topics: list[DescribeQuorumTopicData] = wire([DescribeQuorumTopicData])


@struct
class DescribeQuorumReplicaState:
    replica_id: int = wire(INT32)
    replica_directory_id: bytes = wire(UUID, "2+")
    log_end_offset: int = wire(INT64)
    last_fetch_timestamp: int = wire(INT64, "1+", default=-1)
    last_caught_up_timestamp: int = wire(INT64, "1+", default=-1)


@struct
class DescribeQuorumResponsePartitionData:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "2+", nullable="2+")
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    high_watermark: int = wire(INT64)
    current_voters: list[DescribeQuorumReplicaState] = wire([DescribeQuorumReplicaState])
    observers: list[DescribeQuorumReplicaState] = wire([DescribeQuorumReplicaState])


@struct
class DescribeQuorumResponseTopicData:
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[DescribeQuorumResponsePartitionData] = wire([DescribeQuorumResponsePartitionData])


@struct
class DescribeQuorumListener:
    name: str = wire(STRING)
    host: str = wire(STRING)
    port: int = wire(UINT16)


@struct
class DescribeQuorumNode:
    node_id: int = wire(INT32)
    listeners: list[DescribeQuorumListener] = wire([DescribeQuorumListener])


@struct
class DescribeQuorumResponse:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, "2+", nullable="2+")
    topics: list[DescribeQuorumResponseTopicData] = wire([DescribeQuorumResponseTopicData])
    nodes: list[DescribeQuorumNode] = wire([DescribeQuorumNode], "2+")
