"""DescribeCluster (60), UpdateFeatures (57), ElectLeaders (43), Alter and ListPartitionReassignments (45, 46).

DescribeCluster: v1 brokers or controllers (KIP-919), v2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from ....limits import INT32_MIN
from ....schema.fields import BOOL, INT8, INT16, INT32, STRING, struct, wire
from ...apis import PARTITION, TOPIC_NAME


@struct
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = wire(BOOL)
    endpoint_type: int = wire(INT8, "1+", default=1)
    include_fenced_brokers: bool = wire(BOOL, "2+")


@struct
class DescribeClusterBroker:
    broker_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable="0+", default=None)
    is_fenced: bool = wire(BOOL, "2+")


@struct
class DescribeClusterResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    endpoint_type: int = wire(INT8, "1+", default=1)
    cluster_id: str = wire(STRING)
    controller_id: int = wire(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = wire([DescribeClusterBroker])
    cluster_authorized_operations: int = wire(INT32, default=INT32_MIN)


@struct
class UpdateFeaturesFeatureUpdateKey:
    feature: str = wire(STRING)
    max_version_level: int = wire(INT16)
    allow_downgrade: bool = wire(BOOL, "0")
    upgrade_type: int = wire(INT8, "1+", default=1)


@struct
class UpdateFeaturesRequest:
    timeout_ms: int = wire(INT32, default=60000)
    feature_updates: list[UpdateFeaturesFeatureUpdateKey] = wire([UpdateFeaturesFeatureUpdateKey])
    validate_only: bool = wire(BOOL, "1+")


@struct
class UpdateFeaturesUpdatableFeatureResult:
    feature: str = wire(STRING)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class UpdateFeaturesResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    results: list[UpdateFeaturesUpdatableFeatureResult] = wire([UpdateFeaturesUpdatableFeatureResult], "0-1")


@struct
class ElectLeadersTopicPartitions:
    topic: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class ElectLeadersRequest:
    election_type: int = wire(INT8, "1+")
    topic_partitions: list[ElectLeadersTopicPartitions] | None = wire([ElectLeadersTopicPartitions], nullable="0+")
    timeout_ms: int = wire(INT32, default=60000)


@struct
class ElectLeadersPartitionResult:
    partition_id: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class ElectLeadersReplicaElectionResult:
    topic: str = wire(TOPIC_NAME)
    partition_result: list[ElectLeadersPartitionResult] = wire([ElectLeadersPartitionResult])


@struct
class ElectLeadersResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, "1+", default=0)
    replica_election_results: list[ElectLeadersReplicaElectionResult] = wire([ElectLeadersReplicaElectionResult])


@struct
class AlterPartitionReassignmentsReassignablePartition:
    partition_index: int = wire(PARTITION)
    replicas: list[int] | None = wire([INT32], nullable="0+", default=None)


@struct
class AlterPartitionReassignmentsReassignableTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[AlterPartitionReassignmentsReassignablePartition] = wire(
        [AlterPartitionReassignmentsReassignablePartition]
    )


@struct
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = wire(INT32, default=60000)
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True)
    topics: list[AlterPartitionReassignmentsReassignableTopic] = wire([AlterPartitionReassignmentsReassignableTopic])


@struct
class AlterPartitionReassignmentsReassignablePartitionResponse:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class AlterPartitionReassignmentsReassignableTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: list[AlterPartitionReassignmentsReassignablePartitionResponse] = wire(
        [AlterPartitionReassignmentsReassignablePartitionResponse]
    )


@struct
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    responses: list[AlterPartitionReassignmentsReassignableTopicResponse] = wire(
        [AlterPartitionReassignmentsReassignableTopicResponse]
    )


@struct
class ListPartitionReassignmentsTopics:
    name: str = wire(TOPIC_NAME)
    partition_indexes: list[int] = wire([PARTITION])


@struct
class ListPartitionReassignmentsRequest:
    timeout_ms: int = wire(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = wire(
        [ListPartitionReassignmentsTopics], nullable="0+", default=None
    )


@struct
class ListPartitionReassignmentsOngoingPartitionReassignment:
    partition_index: int = wire(PARTITION)
    replicas: list[int] = wire([INT32])
    adding_replicas: list[int] = wire([INT32])
    removing_replicas: list[int] = wire([INT32])


@struct
class ListPartitionReassignmentsOngoingTopicReassignment:
    name: str = wire(TOPIC_NAME)
    partitions: list[ListPartitionReassignmentsOngoingPartitionReassignment] = wire(
        [ListPartitionReassignmentsOngoingPartitionReassignment]
    )


@struct
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+")
    topics: list[ListPartitionReassignmentsOngoingTopicReassignment] = wire(
        [ListPartitionReassignmentsOngoingTopicReassignment]
    )
