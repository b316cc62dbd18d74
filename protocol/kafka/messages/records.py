"""Produce (key 0), Fetch (1), ListOffsets (2), OffsetForLeaderEpoch (23): record batches to and from partitions, and their
offsets.

Produce: v3 transactional id; v5 log start offset; v7 zstd; v8 errors of single records; v10 the current leader; v12 joins a
transaction without a call of its own (KIP-890); v13 topic ids in place of names (KIP-516).

Fetch: v4 isolation; v5 log start offset; v7 fetch sessions (KIP-227); v9 leader epochs (KIP-320); v10 zstd; v11 racks
(KIP-392); v12 the epoch fetched last (KIP-595); v13 topic ids (KIP-516); v16 endpoints of leaders (KIP-951); v17 and v18
concern replicas only.

ListOffsets: v2 isolation; v4 leader epochs (KIP-320); v7 the largest timestamp, -3 (KIP-734); v8 the first local offset, -4
(KIP-405); v9 the last tiered offset, -5 (KIP-1005); v10 a timeout for tiered storage (KIP-1075); v11 -6 (KIP-1023).
"""

from __future__ import annotations

from ...limits import INT32_MAX, INT64_MAX
from ...schema.fields import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, struct, wire
from ...types import Bytes
from ..apis import PARTITION, PRODUCER_ID, TOPIC_ID, TOPIC_NAME, TRANSACTIONAL_ID
from .responses import PartitionResult


@struct
class ProducePartition:
    index: int = wire(PARTITION)
    records: Bytes | None = wire(RECORDS, nullable="0+")


@struct
class ProduceTopic:
    name: str = wire(TOPIC_NAME, "0-12")
    topic_id: bytes = wire(TOPIC_ID, "13+")
    partition_data: list[ProducePartition] = wire([ProducePartition])


@struct
class ProduceRequest:
    transactional_id: str | None = wire(TRANSACTIONAL_ID, "3+", nullable="3+", default=None)
    acks: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    topic_data: list[ProduceTopic] = wire([ProduceTopic])


@struct
class ProduceBatchIndexAndErrorMessage:
    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)


@struct
class ProduceLeaderIdAndEpoch:
    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


@struct
class ProducePartitionResponse:
    index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    base_offset: int = wire(INT64)
    log_append_time_ms: int = wire(INT64, "2+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1)
    record_errors: list[ProduceBatchIndexAndErrorMessage] = wire([ProduceBatchIndexAndErrorMessage], "8+")
    error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)
    current_leader: ProduceLeaderIdAndEpoch = wire(ProduceLeaderIdAndEpoch, "10+", tag=0, default=...)


@struct
class ProduceTopicResponse:
    name: str = wire(TOPIC_NAME, "0-12")
    topic_id: bytes = wire(TOPIC_ID, "13+")
    partition_responses: list[ProducePartitionResponse] = wire([ProducePartitionResponse])


@struct
class ProduceNodeEndpoint:
    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+", default=None)


@struct
class ProduceResponse:
    responses: list[ProduceTopicResponse] = wire([ProduceTopicResponse])
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    node_endpoints: list[ProduceNodeEndpoint] = wire([ProduceNodeEndpoint], "10+", tag=0, default=...)


@struct
class FetchReplicaState:
    replica_id: int = wire(INT32, "15+", default=-1)
    replica_epoch: int = wire(INT64, "15+", default=-1)


@struct
class FetchPartition:
    partition: int = wire(PARTITION)
    current_leader_epoch: int = wire(INT32, "9+", default=-1)
    fetch_offset: int = wire(INT64)
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1)
    partition_max_bytes: int = wire(INT32)
    replica_directory_id: bytes = wire(UUID, "17+", tag=0, default=...)
    high_watermark: int = wire(INT64, "18+", tag=1, default=INT64_MAX)


@struct
class FetchTopic:
    topic: str = wire(TOPIC_NAME, "0-12")
    topic_id: bytes = wire(TOPIC_ID, "13+")
    partitions: list[FetchPartition] = wire([FetchPartition])


@struct
class FetchForgottenTopic:
    topic: str = wire(TOPIC_NAME, "7-12")
    topic_id: bytes = wire(TOPIC_ID, "13+")
    partitions: list[int] = wire([PARTITION], "7+")


@struct
class FetchRequest:
    cluster_id: str | None = wire(STRING, "12+", nullable="12+", tag=0, default=None)
    replica_id: int = wire(INT32, "0-14", default=-1)
    replica_state: FetchReplicaState = wire(FetchReplicaState, "15+", tag=1, default=...)
    max_wait_ms: int = wire(INT32)
    min_bytes: int = wire(INT32)
    max_bytes: int = wire(INT32, "3+", default=INT32_MAX)
    isolation_level: int = wire(INT8, "4+")
    session_id: int = wire(INT32, "7+")
    session_epoch: int = wire(INT32, "7+", default=-1)
    topics: list[FetchTopic] = wire([FetchTopic])
    forgotten_topics_data: list[FetchForgottenTopic] = wire([FetchForgottenTopic], "7+")
    rack_id: str = wire(STRING, "11+")


@struct
class FetchEpochEndOffset:
    epoch: int = wire(INT32, "12+", default=-1)
    end_offset: int = wire(INT64, "12+", default=-1)


@struct
class FetchLeaderIdAndEpoch:
    leader_id: int = wire(INT32, "12+", default=-1)
    leader_epoch: int = wire(INT32, "12+", default=-1)


@struct
class FetchSnapshotId:
    end_offset: int = wire(INT64, default=-1)
    epoch: int = wire(INT32, default=-1)


@struct
class FetchAbortedTransaction:
    producer_id: int = wire(PRODUCER_ID, "4+")
    first_offset: int = wire(INT64, "4+")


@struct
class FetchPartitionData(PartitionResult):
    high_watermark: int = wire(INT64)
    last_stable_offset: int = wire(INT64, "4+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1)
    diverging_epoch: FetchEpochEndOffset = wire(FetchEpochEndOffset, "12+", tag=0, default=...)
    current_leader: FetchLeaderIdAndEpoch = wire(FetchLeaderIdAndEpoch, "12+", tag=1, default=...)
    snapshot_id: FetchSnapshotId = wire(FetchSnapshotId, "12+", tag=2, default=...)
    aborted_transactions: list[FetchAbortedTransaction] | None = wire([FetchAbortedTransaction], "4+", nullable="4+")
    preferred_read_replica: int = wire(INT32, "11+", default=-1)
    records: Bytes | None = wire(RECORDS, nullable="0+")


@struct
class FetchableTopicResponse:
    topic: str = wire(TOPIC_NAME, "0-12")
    topic_id: bytes = wire(TOPIC_ID, "13+")
    partitions: list[FetchPartitionData] = wire([FetchPartitionData])


@struct
class FetchNodeEndpoint:
    node_id: int = wire(INT32, "16+")
    host: str = wire(STRING, "16+")
    port: int = wire(INT32, "16+")
    rack: str | None = wire(STRING, "16+", nullable="16+", default=None)


@struct
class FetchResponse:
    throttle_time_ms: int = wire(INT32, "1+", default=0)
    error_code: int = wire(INT16, "7+", default=0)
    session_id: int = wire(INT32, "7+")
    responses: list[FetchableTopicResponse] = wire([FetchableTopicResponse])
    node_endpoints: list[FetchNodeEndpoint] = wire([FetchNodeEndpoint], "16+", tag=0, default=...)


@struct
class ListOffsetsPartition:
    partition_index: int = wire(PARTITION)
    current_leader_epoch: int = wire(INT32, "4+", default=-1)
    timestamp: int = wire(INT64)
    max_num_offsets: int = wire(INT32, "0", default=1)


@struct
class ListOffsetsTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[ListOffsetsPartition] = wire([ListOffsetsPartition])


@struct
class ListOffsetsRequest:
    replica_id: int = wire(INT32)
    isolation_level: int = wire(INT8, "2+")
    topics: list[ListOffsetsTopic] = wire([ListOffsetsTopic])
    timeout_ms: int = wire(INT32, "10+")


@struct
class ListOffsetsPartitionResponse(PartitionResult):
    old_style_offsets: list[int] = wire([INT64], "0")
    timestamp: int = wire(INT64, "1+", default=-1)
    offset: int = wire(INT64, "1+", default=-1)
    leader_epoch: int = wire(INT32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = wire(TOPIC_NAME)
    partitions: list[ListOffsetsPartitionResponse] = wire([ListOffsetsPartitionResponse])


@struct
class ListOffsetsResponse:
    throttle_time_ms: int = wire(INT32, "2+", default=0)
    topics: list[ListOffsetsTopicResponse] = wire([ListOffsetsTopicResponse])


@struct
class OffsetForLeaderPartition:
    partition: int = wire(PARTITION)
    current_leader_epoch: int = wire(INT32, "2+", default=-1)
    leader_epoch: int = wire(INT32)


@struct
class OffsetForLeaderTopic:
    topic: str = wire(TOPIC_NAME)
    partitions: list[OffsetForLeaderPartition] = wire([OffsetForLeaderPartition])


@struct
class OffsetForLeaderEpochRequest:
    replica_id: int = wire(INT32, "3+", default=-2)
    topics: list[OffsetForLeaderTopic] = wire([OffsetForLeaderTopic])


@struct
class EpochEndOffset:
    error_code: int = wire(INT16, default=0)
    partition: int = wire(PARTITION)
    leader_epoch: int = wire(INT32, "1+", default=-1)
    end_offset: int = wire(INT64, default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = wire(TOPIC_NAME)
    partitions: list[EpochEndOffset] = wire([EpochEndOffset])


@struct
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = wire(INT32, "2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = wire([OffsetForLeaderTopicResult])
