"""Share groups (KIP-932): ShareGroupHeartbeat (76), ShareGroupDescribe (77), ShareFetch (78), ShareAcknowledge (79),
DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91), DeleteShareGroupOffsets (92).

Version 0 of the first four was a preview of Kafka 4.0 that no later broker speaks. ShareFetch: v2 a limit of records
(KIP-1206), locks are renewed (KIP-1222). DescribeShareGroupOffsets: v1 lag (KIP-1226).
"""

from __future__ import annotations

from ...limits import INT32_MAX, INT32_MIN
from ...schema.fields import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, struct, wire
from ..apis import GROUP_ID, PARTITION, TOPIC_ID, TOPIC_NAME
from .responses import PartitionResultWithMessage, Response, ResponseWithMessage


@struct
class ShareGroupHeartbeatRequest:
    group_id: str = wire(GROUP_ID)
    member_id: str = wire(STRING)
    member_epoch: int = wire(INT32)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = wire([TOPIC_NAME], nullable="0+", default=None)


@struct
class ShareTopicPartitions:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[int] = wire([PARTITION])


@struct
class ShareGroupHeartbeatAssignment:
    topic_partitions: list[ShareTopicPartitions] = wire([ShareTopicPartitions])


@struct
class ShareGroupHeartbeatResponse(ResponseWithMessage):
    member_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: ShareGroupHeartbeatAssignment | None = wire(ShareGroupHeartbeatAssignment, nullable="0+", default=None)


@struct
class ShareGroupDescribeRequest:
    group_ids: list[str] = wire([GROUP_ID])
    include_authorized_operations: bool = wire(BOOL)


@struct
class ShareGroupDescribeTopicPartitions:
    topic_id: bytes = wire(TOPIC_ID)
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class ShareGroupDescribeAssignment:
    topic_partitions: list[ShareGroupDescribeTopicPartitions] = wire([ShareGroupDescribeTopicPartitions])


@struct
class ShareGroupDescribeMember:
    member_id: str = wire(STRING)
    rack_id: str | None = wire(STRING, nullable="0+", default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: list[str] = wire([TOPIC_NAME])
    assignment: ShareGroupDescribeAssignment = wire(ShareGroupDescribeAssignment)


@struct
class ShareGroupDescribedGroup:
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    group_id: str = wire(GROUP_ID)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: list[ShareGroupDescribeMember] = wire([ShareGroupDescribeMember])
    authorized_operations: int = wire(INT32, default=INT32_MIN)


@struct
class ShareGroupDescribeResponse(Response):
    groups: list[ShareGroupDescribedGroup] = wire([ShareGroupDescribedGroup])


NO_LAG = -1


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = wire(GROUP_ID)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = wire([DescribeShareGroupOffsetsRequestTopic], nullable="0+")
    """None asks for all."""


@struct
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup] = wire([DescribeShareGroupOffsetsRequestGroup])


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = wire(PARTITION)
    start_offset: int = wire(INT64)
    leader_epoch: int = wire(INT32)
    lag: int = wire(INT64, "1+", default=NO_LAG)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = wire(TOPIC_NAME)
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = wire([DescribeShareGroupOffsetsResponsePartition])


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = wire(GROUP_ID)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = wire([DescribeShareGroupOffsetsResponseTopic])
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponse(Response):
    groups: list[DescribeShareGroupOffsetsResponseGroup] = wire([DescribeShareGroupOffsetsResponseGroup])


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = wire(PARTITION)
    start_offset: int = wire(INT64)


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = wire([AlterShareGroupOffsetsRequestPartition])


@struct
class AlterShareGroupOffsetsRequest:
    group_id: str = wire(GROUP_ID)
    topics: list[AlterShareGroupOffsetsRequestTopic] = wire([AlterShareGroupOffsetsRequestTopic])


@struct
class AlterShareGroupOffsetsResponsePartition(PartitionResultWithMessage):
    """The result of setting the start offset."""


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = wire(TOPIC_NAME)
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = wire([AlterShareGroupOffsetsResponsePartition])


@struct
class AlterShareGroupOffsetsResponse(ResponseWithMessage):
    responses: list[AlterShareGroupOffsetsResponseTopic] = wire([AlterShareGroupOffsetsResponseTopic])


@struct
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = wire(TOPIC_NAME)


@struct
class DeleteShareGroupOffsetsRequest:
    group_id: str = wire(GROUP_ID)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = wire([DeleteShareGroupOffsetsRequestTopic])


@struct
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = wire(TOPIC_NAME)
    topic_id: bytes = wire(TOPIC_ID)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@struct
class DeleteShareGroupOffsetsResponse(ResponseWithMessage):
    responses: list[DeleteShareGroupOffsetsResponseTopic] = wire([DeleteShareGroupOffsetsResponseTopic])


@struct
class ShareAcknowledgementBatch:
    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)
    acknowledge_types: list[int] = wire([INT8])
    """One for all, or one for each offset."""


@struct
class AcknowledgedPartition:
    partition_index: int = wire(PARTITION)
    acknowledgement_batches: list[ShareAcknowledgementBatch] = wire([ShareAcknowledgementBatch])


@struct
class ShareFetchRequestTopic:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[AcknowledgedPartition] = wire([AcknowledgedPartition])


@struct
class ShareFetchRequest:
    group_id: str | None = wire(GROUP_ID, nullable="0+", default=None)
    member_id: str | None = wire(STRING, nullable="0+")
    share_session_epoch: int = wire(INT32)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, default=INT32_MAX)
    max_records: int = wire(INT32, "1+")
    batch_size: int = wire(INT32, "1+")
    share_acquire_mode: int = wire(INT8, "2+", default=0)
    is_renew_ack: bool = wire(BOOL, "2+", default=False)
    topics: list[ShareFetchRequestTopic] = wire([ShareFetchRequestTopic])
    forgotten_topics_data: list[ShareTopicPartitions] = wire([ShareTopicPartitions])


@struct
class ShareLeaderIdAndEpoch:
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)


@struct
class ShareNodeEndpoint:
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, nullable="0+", default=None)


@struct
class ShareAcquiredRecords:
    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)
    delivery_count: int = wire(INT16)


@struct
class ShareFetchPartitionData(PartitionResultWithMessage):
    acknowledge_error_code: int = wire(INT16, default=0)
    acknowledge_error_message: str | None = wire(STRING, nullable="0+", default=None)
    current_leader: ShareLeaderIdAndEpoch = wire(ShareLeaderIdAndEpoch)
    records: bytes | bytearray | memoryview | None = wire(RECORDS, nullable="0")
    acquired_records: list[ShareAcquiredRecords] = wire([ShareAcquiredRecords])


@struct
class ShareFetchableTopicResponse:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[ShareFetchPartitionData] = wire([ShareFetchPartitionData])


@struct
class ShareFetchResponse(ResponseWithMessage):
    acquisition_lock_timeout_ms: int = wire(INT32, "1+", default=0)
    responses: list[ShareFetchableTopicResponse] = wire([ShareFetchableTopicResponse])
    node_endpoints: list[ShareNodeEndpoint] = wire([ShareNodeEndpoint])


@struct
class ShareAcknowledgeTopic:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[AcknowledgedPartition] = wire([AcknowledgedPartition])


@struct
class ShareAcknowledgeRequest:
    group_id: str | None = wire(GROUP_ID, nullable="0+", default=None)
    member_id: str | None = wire(STRING, nullable="0+")
    share_session_epoch: int = wire(INT32)
    is_renew_ack: bool = wire(BOOL, "2+", default=False)
    topics: list[ShareAcknowledgeTopic] = wire([ShareAcknowledgeTopic])


@struct
class ShareAcknowledgePartitionData(PartitionResultWithMessage):
    current_leader: ShareLeaderIdAndEpoch = wire(ShareLeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[ShareAcknowledgePartitionData] = wire([ShareAcknowledgePartitionData])


@struct
class ShareAcknowledgeResponse(ResponseWithMessage):
    acquisition_lock_timeout_ms: int = wire(INT32, "2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = wire([ShareAcknowledgeTopicResponse])
    node_endpoints: list[ShareNodeEndpoint] = wire([ShareNodeEndpoint])
