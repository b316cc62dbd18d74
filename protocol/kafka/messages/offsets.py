"""Offsets of groups: OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

OffsetCommit: v5 has no retention time any more; v6 leader epochs; v7 static members (KIP-345); v9 member epochs (KIP-848); v10
topic ids. OffsetFetch: v2 null asks for all; v7 stable offsets (KIP-447); v8 several groups (KIP-709); v9 member epochs; v10
topic ids.
"""

from __future__ import annotations

from ...schema.fields import BOOL, INT16, INT32, INT64, STRING, struct, wire
from ..apis import GROUP_ID, PARTITION, TOPIC_ID, TOPIC_NAME
from .responses import PartitionResult


@struct
class OffsetCommitRequestPartition:
    partition_index: int = wire(PARTITION)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, "6+", default=-1)
    commit_timestamp: int = wire(INT64, "1", default=-1)
    committed_metadata: str | None = wire(STRING, nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: str = wire(TOPIC_NAME, "0-9")
    topic_id: bytes = wire(TOPIC_ID, "10+")
    partitions: list[OffsetCommitRequestPartition] = wire([OffsetCommitRequestPartition])


@struct
class OffsetCommitRequest:
    group_id: str = wire(GROUP_ID)
    generation_id_or_member_epoch: int = wire(INT32, "1+", default=-1)
    member_id: str = wire(STRING, "1+")
    group_instance_id: str | None = wire(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = wire(INT64, "2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = wire([OffsetCommitRequestTopic])


@struct
class OffsetPartitionError(PartitionResult):
    """The result of a commit, and of a deletion."""


@struct
class OffsetCommitResponseTopic:
    name: str = wire(TOPIC_NAME, "0-9")
    topic_id: bytes = wire(TOPIC_ID, "10+")
    partitions: list[OffsetPartitionError] = wire([OffsetPartitionError])


@struct
class OffsetCommitResponse:
    throttle_time_ms: int = wire(INT32, "3+", default=0)
    topics: list[OffsetCommitResponseTopic] = wire([OffsetCommitResponseTopic])


@struct
class OffsetFetchRequestTopic:
    name: str = wire(TOPIC_NAME, "0-7")
    partition_indexes: list[int] = wire([PARTITION], "0-7")


@struct
class OffsetFetchRequestTopics:
    name: str = wire(TOPIC_NAME, "8-9")
    topic_id: bytes = wire(TOPIC_ID, "10+")
    partition_indexes: list[int] = wire([PARTITION], "8+")


@struct
class OffsetFetchRequestGroup:
    group_id: str = wire(GROUP_ID, "8+")
    member_id: str | None = wire(STRING, "9+", nullable="9+", default=None)
    member_epoch: int = wire(INT32, "9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = wire([OffsetFetchRequestTopics], "8+", nullable="8+")


@struct
class OffsetFetchRequest:
    group_id: str = wire(GROUP_ID, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = wire([OffsetFetchRequestTopic], "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = wire([OffsetFetchRequestGroup], "8+")
    require_stable: bool = wire(BOOL, "7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = wire(PARTITION, "0-7")
    committed_offset: int = wire(INT64, "0-7")
    committed_leader_epoch: int = wire(INT32, "5-7", default=-1)
    metadata: str | None = wire(STRING, "0-7", nullable="0-7")
    error_code: int = wire(INT16, "0-7", default=0)


@struct
class OffsetFetchResponseTopic:
    name: str = wire(TOPIC_NAME, "0-7")
    partitions: list[OffsetFetchResponsePartition] = wire([OffsetFetchResponsePartition], "0-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = wire(PARTITION, "8+")
    committed_offset: int = wire(INT64, "8+")
    committed_leader_epoch: int = wire(INT32, "8+", default=-1)
    metadata: str | None = wire(STRING, "8+", nullable="8+")
    error_code: int = wire(INT16, "8+", default=0)


@struct
class OffsetFetchResponseTopics:
    name: str = wire(TOPIC_NAME, "8-9")
    topic_id: bytes = wire(TOPIC_ID, "10+")
    partitions: list[OffsetFetchResponsePartitions] = wire([OffsetFetchResponsePartitions], "8+")


@struct
class OffsetFetchResponseGroup:
    group_id: str = wire(GROUP_ID, "8+")
    topics: list[OffsetFetchResponseTopics] = wire([OffsetFetchResponseTopics], "8+")
    error_code: int = wire(INT16, "8+", default=0)


@struct
class OffsetFetchResponse:
    throttle_time_ms: int = wire(INT32, "3+", default=0)
    topics: list[OffsetFetchResponseTopic] = wire([OffsetFetchResponseTopic], "0-7")
    error_code: int = wire(INT16, "2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = wire([OffsetFetchResponseGroup], "8+")


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = wire(PARTITION)


@struct
class OffsetDeleteRequestTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[OffsetDeleteRequestPartition] = wire([OffsetDeleteRequestPartition])


@struct
class OffsetDeleteRequest:
    group_id: str = wire(GROUP_ID)
    topics: list[OffsetDeleteRequestTopic] = wire([OffsetDeleteRequestTopic])


@struct
class OffsetDeleteResponseTopic:
    name: str = wire(TOPIC_NAME)
    partitions: list[OffsetPartitionError] = wire([OffsetPartitionError])


@struct
class OffsetDeleteResponse:
    error_code: int = wire(INT16, default=0)
    throttle_time_ms: int = wire(INT32, default=0)
    topics: list[OffsetDeleteResponseTopic] = wire([OffsetDeleteResponseTopic])
