"""The start offsets of share groups (KIP-932): DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91),
DeleteShareGroupOffsets (92).

Describe: v1 lag (KIP-1226).
"""

from __future__ import annotations

from ...schema.fields import INT16, INT32, INT64, STRING, struct, wire
from ..apis import GROUP_ID, PARTITION, TOPIC_ID, TOPIC_NAME

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
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
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
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = wire(TOPIC_NAME)
    topic_id: bytes = wire(TOPIC_ID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = wire([AlterShareGroupOffsetsResponsePartition])


@struct
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
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
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = wire([DeleteShareGroupOffsetsResponseTopic])
