"""DescribeLogDirs (35) and AlterReplicaLogDirs (34): where partitions lie on disk.

DescribeLogDirs: v3 an error of its own; v4 size and room of the device (KIP-827); v5 whether the directory is cordoned.
"""

from __future__ import annotations

from ....schema.fields import BOOL, INT16, INT32, INT64, STRING, struct, wire
from ...apis import PARTITION, TOPIC_NAME


@struct
class DescribeLogDirsDescribableLogDirTopic:
    topic: str = wire(TOPIC_NAME)
    partitions: list[int] = wire([PARTITION])


@struct
class DescribeLogDirsRequest:
    topics: list[DescribeLogDirsDescribableLogDirTopic] | None = wire([DescribeLogDirsDescribableLogDirTopic], nullable="0+")


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
class DescribeLogDirsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
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
class AlterReplicaLogDirPartitionResult:
    partition_index: int = wire(PARTITION)
    error_code: int = wire(INT16, default=0)


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = wire(TOPIC_NAME)
    partitions: list[AlterReplicaLogDirPartitionResult] = wire([AlterReplicaLogDirPartitionResult])


@struct
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: list[AlterReplicaLogDirTopicResult] = wire([AlterReplicaLogDirTopicResult])
