"""Records for members of share groups (KIP-932): ShareFetch (78), ShareAcknowledge (79).

v1: the first stable one. v2: how many records may come at most (KIP-1206), locks are renewed (KIP-1222).
"""

from __future__ import annotations

from ...limits import INT32_MAX
from ...schema.fields import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, struct, wire
from ..apis import GROUP_ID, PARTITION, TOPIC_ID


@struct
class ShareAcknowledgementBatch:
    first_offset: int = wire(INT64)
    last_offset: int = wire(INT64)
    acknowledge_types: list[int] = wire([INT8])
    """One for all, or one for each offset."""


@struct
class ShareFetchRequestPartition:
    partition_index: int = wire(PARTITION)
    acknowledgement_batches: list[ShareAcknowledgementBatch] = wire([ShareAcknowledgementBatch])


@struct
class ShareFetchRequestTopic:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[ShareFetchRequestPartition] = wire([ShareFetchRequestPartition])


@struct
class ShareFetchForgottenTopic:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[int] = wire([PARTITION])


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
    forgotten_topics_data: list[ShareFetchForgottenTopic] = wire([ShareFetchForgottenTopic])


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
class ShareFetchPartitionData:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
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
class ShareFetchResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(INT32, "1+", default=0)
    responses: list[ShareFetchableTopicResponse] = wire([ShareFetchableTopicResponse])
    node_endpoints: list[ShareNodeEndpoint] = wire([ShareNodeEndpoint])


@struct
class ShareAcknowledgePartition:
    partition_index: int = wire(PARTITION)
    acknowledgement_batches: list[ShareAcknowledgementBatch] = wire([ShareAcknowledgementBatch])


@struct
class ShareAcknowledgeTopic:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[ShareAcknowledgePartition] = wire([ShareAcknowledgePartition])


@struct
class ShareAcknowledgeRequest:
    group_id: str | None = wire(GROUP_ID, nullable="0+", default=None)
    member_id: str | None = wire(STRING, nullable="0+")
    share_session_epoch: int = wire(INT32)
    is_renew_ack: bool = wire(BOOL, "2+", default=False)
    topics: list[ShareAcknowledgeTopic] = wire([ShareAcknowledgeTopic])


@struct
class ShareAcknowledgePartitionData:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    current_leader: ShareLeaderIdAndEpoch = wire(ShareLeaderIdAndEpoch)


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[ShareAcknowledgePartitionData] = wire([ShareAcknowledgePartitionData])


@struct
class ShareAcknowledgeResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(INT32, "2+", default=0)
    responses: list[ShareAcknowledgeTopicResponse] = wire([ShareAcknowledgeTopicResponse])
    node_endpoints: list[ShareNodeEndpoint] = wire([ShareNodeEndpoint])
