"""DescribeLogDirs and AlterReplicaLogDirs: where partitions lie. Source: ReplicaManager, KIP-113, KIP-827."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.messages.cluster import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ....protocol.types import TopicPartition
from ...broker import DirectoryContents
from ...loop.procedures import in_turns
from .door import Call, error_code

LOGGER: Final = logging.getLogger(__name__)

PARTITIONS_PER_TURN: Final = 256


# ---- DescribeLogDirs -------------------------------------------------------------------------------------------------------


async def describe_log_dirs(call: Call, body: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Every log directory, with the sizes of the partitions asked for (null: all) that it holds."""
    wanted: set[TopicPartition] | None = None
    if body.topics is not None:
        named = ((topic.topic, number) for topic in body.topics for number in topic.partitions)
        wanted = {TopicPartition(name, number) async for name, number in in_turns(named, PARTITIONS_PER_TURN)}
    contents = await call.broker.directories.contents()
    return DescribeLogDirsResponse(results=[await _directory(each, wanted) for each in contents])


async def _directory(contents: DirectoryContents, wanted: set[TopicPartition] | None) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    async for topic_partition, size in in_turns(contents.sizes.items(), PARTITIONS_PER_TURN):
        if wanted is None or topic_partition in wanted:
            topics.setdefault(topic_partition.topic, []).append(_partition(topic_partition, size))
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE if contents.in_service else ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=contents.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in sorted(topics.items())],
        total_bytes=contents.total_bytes,
        usable_bytes=contents.usable_bytes,
        is_cordoned=False,
    )


def _partition(topic_partition: TopicPartition, size: int) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=topic_partition.partition, partition_size=size, offset_lag=0, is_future_key=False
    )


# ---- AlterReplicaLogDirs ---------------------------------------------------------------------------------------------------


async def alter_replica_log_dirs(call: Call, body: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """A partition that is to lie where it lies, does. Others are not moved while the server runs, and that is said."""
    errors = {directory.path: directory.error for directory in call.broker.directories.describe()}
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=_move(call, TopicPartition(topic.name, number), directory.path, errors),
                    )
                    async for number in in_turns(topic.partitions)
                ],
            )
            for directory in body.dirs
            async for topic in in_turns(directory.topics)
        ]
    )


Errors = Mapping[str, str | None]
"""Path of each log directory -> why it is out of service, None when it serves."""


def _move(call: Call, topic_partition: TopicPartition, path: str, errors: Errors) -> int:
    try:
        _check_move(call, topic_partition, path, errors)
    except RequestError as exc:
        LOGGER.debug("%s is not moved to %s: %s", topic_partition, path, exc)
        return error_code(exc)
    return ErrorCode.NONE


def _check_move(call: Call, topic_partition: TopicPartition, path: str, errors: Errors) -> None:
    if path not in errors:
        raise RequestError(f"there is no log directory {path}", ErrorCode.LOG_DIR_NOT_FOUND)
    if errors[path] is not None:
        raise RequestError(f"log directory {path} is out of service", ErrorCode.KAFKA_STORAGE_ERROR)
    found = call.broker.directories.of(topic_partition)
    if found != path:
        raise InvalidRequestError(
            f"it lies in {found}, and partitions are moved while the server is stopped: move its directory, start again"
        )
