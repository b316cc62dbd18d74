"""ApiVersions (18), DescribeCluster (60), UpdateFeatures (57), ElectLeaders (43), Alter and ListPartitionReassignments (45,
46), DescribeQuorum (55), DescribeLogDirs (35), AlterReplicaLogDirs (34).

ApiVersions: the header of the response is version 0 whatever that of the request is. v3 the client's name and version
(KIP-511); v4 features whose lowest level is 0 (KAFKA-17492); v5 the broker that the client means to reach (KIP-1242).

DescribeCluster: v1 brokers or controllers (KIP-919), v2 fenced brokers (KIP-1073). DescribeQuorum (KIP-595): v1 when each voter
fetched last (KIP-836); v2 messages, directories and the addresses of the voters (KIP-853). DescribeLogDirs: v3 an error of its
own; v4 size and free space of the device (KIP-827); v5 whether the directory is cordoned.
"""

from __future__ import annotations

from ...limits import INT32_MIN
from ...schema.fields import BOOL, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, struct, wire
from ..apis import PARTITION, TOPIC_NAME
from .responses import PartitionResult, Response, ResponseWithCode, ResponseWithMessage


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
class DescribeClusterResponse(ResponseWithMessage):
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
class UpdateFeaturesResponse(ResponseWithCode):
    error_message: str | None = wire(STRING, nullable="0+")
    results: list[UpdateFeaturesUpdatableFeatureResult] = wire([UpdateFeaturesUpdatableFeatureResult], "0-1")


@struct
class TopicWithPartitions:
    topic: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class ElectLeadersRequest:
    election_type: int = wire(INT8, "1+")
    topic_partitions: list[TopicWithPartitions] | None = wire([TopicWithPartitions], nullable="0+")
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
class ElectLeadersResponse(Response):
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
class AlterPartitionReassignmentsReassignablePartitionResponse(PartitionResult):
    error_message: str | None = wire(STRING, nullable="0+")


@struct
class AlterPartitionReassignmentsReassignableTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: list[AlterPartitionReassignmentsReassignablePartitionResponse] = wire(
        [AlterPartitionReassignmentsReassignablePartitionResponse]
    )


@struct
class AlterPartitionReassignmentsResponse(Response):
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
class ListPartitionReassignmentsResponse(ResponseWithCode):
    error_message: str | None = wire(STRING, nullable="0+")
    topics: list[ListPartitionReassignmentsOngoingTopicReassignment] = wire(
        [ListPartitionReassignmentsOngoingTopicReassignment]
    )


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
class DescribeQuorumResponsePartitionData(PartitionResult):
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


@struct
class DescribeLogDirsRequest:
    topics: list[TopicWithPartitions] | None = wire([TopicWithPartitions], nullable="0+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = wire(PARTITION)
    partition_size: int = wire(INT64)
    offset_lag: int = wire(INT64)
    is_future_key: bool = wire(BOOL)


@struct
class DescribeLogDirsTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[DescribeLogDirsPartition] = wire([DescribeLogDirsPartition])


@struct
class DescribeLogDirsResult:
    error_code: int = wire(INT16, default=0)
    log_dir: str = wire(STRING)
    topics: list[DescribeLogDirsTopic] = wire([DescribeLogDirsTopic])
    total_bytes: int = wire(INT64, "4+", default=-1)
    usable_bytes: int = wire(INT64, "4+", default=-1)
    is_cordoned: bool = wire(BOOL, "5+")


@struct
class DescribeLogDirsResponse(Response):
    error_code: int = wire(INT16, "3+", default=0)
    results: list[DescribeLogDirsResult] = wire([DescribeLogDirsResult])


@struct
class AlterReplicaLogDirTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class AlterReplicaLogDir:
    path: str = wire(STRING)
    topics: list[AlterReplicaLogDirTopic] = wire([AlterReplicaLogDirTopic])


@struct
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = wire([AlterReplicaLogDir])


@struct
class AlterReplicaLogDirPartitionResult(PartitionResult):
    """The result of moving a replica."""


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[AlterReplicaLogDirPartitionResult] = wire([AlterReplicaLogDirPartitionResult])


@struct
class AlterReplicaLogDirsResponse(Response):
    results: list[AlterReplicaLogDirTopicResult] = wire([AlterReplicaLogDirTopicResult])


@struct
class ApiVersionsRequest:
    client_software_name: str = wire(STRING, "3+")
    client_software_version: str = wire(STRING, "3+")
    cluster_id: str | None = wire(STRING, "5+", nullable="5+", default=None)
    node_id: int = wire(INT32, "5+", default=-1)


@struct
class ApiVersion:
    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@struct
class ApiVersionsSupportedFeatureKey:
    name: str = wire(STRING, "3+")
    min_version: int = wire(INT16, "3+")
    max_version: int = wire(INT16, "3+")


@struct
class ApiVersionsFinalizedFeatureKey:
    name: str = wire(STRING, "3+")
    max_version_level: int = wire(INT16, "3+")
    min_version_level: int = wire(INT16, "3+")


@struct
class ApiVersionsResponse:
    error_code: int = wire(INT16, default=0)
    api_keys: list[ApiVersion] = wire([ApiVersion])
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    supported_features: list[ApiVersionsSupportedFeatureKey] = wire([ApiVersionsSupportedFeatureKey], "3+", tag=0, default=...)
    finalized_features_epoch: int = wire(INT64, "3+", tag=1, default=-1)
    finalized_features: list[ApiVersionsFinalizedFeatureKey] = wire([ApiVersionsFinalizedFeatureKey], "3+", tag=2, default=...)
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, default=...)
