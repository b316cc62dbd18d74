"""ListOffsets (key 2) and OffsetForLeaderEpoch (key 23): offsets by time, and by leader epoch.

ListOffsets: v2 isolation; v4 leader epochs (KIP-320); v7 the largest timestamp, -3 (KIP-734); v8 the first local offset, -4
(KIP-405); v9 the last tiered offset, -5 (KIP-1005); v10 a timeout for tiered storage (KIP-1075); v11 -6 (KIP-1023).
"""

from __future__ import annotations

from ...schema.fields import INT8, INT16, INT32, INT64, struct, wire
from ..apis import PARTITION, TOPIC_NAME


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
class ListOffsetsPartitionResponse:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
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
