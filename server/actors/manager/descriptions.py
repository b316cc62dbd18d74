"""What people are told of topics, their configuration, and the log directories, as values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, final

import attrs
import trio

from ....protocol.errors import RequestError
from ....protocol.types import TopicPartition
from ...storage.directory.log_directory import LogDirectory
from ...storage.disk.checkpoints import encode_uuid
from ...storage.disk.paths import is_internal
from .log_manager import LogManager
from .topics import HostedPartition, HostedTopic, OfflinePartition

PARTITIONS_PER_TURN: Final = 256
DESCRIBED_PER_TURN: Final = 64


@attrs.frozen(kw_only=True)
class PartitionDescription:
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segments: int
    error: RequestError | None = None
    waiting: RequestError | None = None
    """Why it takes no appends though it is read: there was no space to open it."""


@attrs.frozen(kw_only=True)
class TopicDescription:
    name: str
    topic_id: str
    configs: dict[str, str]
    """Only what the topic overrides."""
    partitions: tuple[PartitionDescription, ...]


@final
@attrs.frozen
class TopicMetadata:
    """What clients are told of a topic: its id of 16 bytes, and for each partition the leader epoch or why it is not served."""

    name: str
    topic_id: bytes
    leader_epochs: tuple[int | RequestError, ...]
    is_internal: bool


@attrs.frozen(kw_only=True)
class DirectoryDescription:
    """One log directory."""

    path: str
    partitions: int
    error: str | None
    """Why it is out of service, None when it serves."""
    stray: tuple[str, ...]
    """Directories in it that were found at the start and left alone."""
    free_bytes: int | None
    """What its device had left a second ago; None without a reserve."""
    reserve_bytes: int
    """Below how much that is too little; 0 without a reserve."""
    is_refusing: bool
    """Whether appends are refused because that is below the reserve."""
    given_up_segments: int
    """Segments deleted since the start to keep the reserve."""
    given_up_bytes: int


@attrs.frozen(kw_only=True)
class DirectoryContents:
    """What a log directory holds, and its device; -1 where that cannot be said."""

    path: str
    in_service: bool
    sizes: dict[TopicPartition, int] = attrs.field(factory=dict)
    """Bytes of the log of each partition that is served."""
    total_bytes: int = -1
    usable_bytes: int = -1


def describe_topic(hosted: HostedTopic) -> TopicDescription:
    return _topic_description(hosted, map(_describe, itertools.count(), hosted.partitions))


async def describe_topic_in_turns(hosted: HostedTopic) -> TopicDescription:
    """The same of a topic with many partitions; others have their turn meanwhile."""
    partitions = []
    for number, partition in enumerate(list(hosted.partitions)):
        partitions.append(_describe(number, partition))
        if not number % DESCRIBED_PER_TURN:
            await trio.lowlevel.checkpoint()
    return _topic_description(hosted, partitions)


def _topic_description(hosted: HostedTopic, partitions: Iterable[PartitionDescription]) -> TopicDescription:
    return TopicDescription(
        name=hosted.topic.name,
        topic_id=encode_uuid(hosted.topic.topic_id),
        configs=dict(hosted.topic.configs),
        partitions=tuple(partitions),
    )


def topic_metadata(hosted: HostedTopic) -> TopicMetadata:
    topic = hosted.topic
    return TopicMetadata(
        topic.name, topic.topic_id.bytes, tuple(map(_leader_epoch, hosted.partitions)), is_internal(topic.name)
    )


def _leader_epoch(partition: HostedPartition | OfflinePartition) -> int | RequestError:
    if isinstance(partition, OfflinePartition):
        return partition.error
    return partition.actor.log.offline or partition.actor.log.leader_epoch


def describe_config(hosted: HostedTopic) -> dict[str, tuple[str, str]]:
    """(value, source) of every topic key, and of others that the topic has; the source is `topic` or `default`."""
    overrides = hosted.topic.configs
    values = hosted.config.as_strings()
    values |= {key: value for key, value in overrides.items() if key not in values}
    return {key: (value, "topic" if key in overrides else "default") for key, value in values.items()}


def describe_directories(manager: LogManager) -> list[DirectoryDescription]:
    """Every configured log directory, in the order of the configuration."""
    directories, spaces, loads = manager.log_directories, manager.guard.spaces, manager.log_directories.loads()
    in_service = {directory.path: directory for directory in directories.live}
    described = []
    for path in manager.config.data_dirs:
        space = spaces.get(path) if path in in_service else None
        described.append(
            DirectoryDescription(
                path=path,
                partitions=loads[id(in_service[path])] if path in in_service else 0,
                error=directories.failed.get(path),
                stray=tuple(directories.stray.get(path, ())),
                free_bytes=None if space is None else space.free_bytes,
                reserve_bytes=0 if space is None else space.reserve_bytes,
                is_refusing=space is not None and space.is_refusing,
                given_up_segments=0 if space is None else space.given_up_segments,
                given_up_bytes=0 if space is None else space.given_up_bytes,
            )
        )
    return described


async def directory_contents(manager: LogManager) -> list[DirectoryContents]:
    """Every configured log directory, in the order of the configuration."""
    in_service = {directory.path: directory for directory in manager.log_directories.live}
    contents = []
    for path in manager.config.data_dirs:
        directory = in_service.get(path)
        if directory is None:
            contents.append(DirectoryContents(path=path, in_service=False))
        else:
            total, usable = await manager.disk.call(_room, directory, at=path)
            sizes = await _sizes(manager, directory)
            contents.append(DirectoryContents(path=path, in_service=True, sizes=sizes, total_bytes=total, usable_bytes=usable))
    return contents


def _room(directory: LogDirectory) -> tuple[int, int]:
    """Blocks."""
    try:
        return directory.total_bytes(), directory.free_bytes()
    except OSError:
        return -1, -1


async def _sizes(manager: LogManager, directory: LogDirectory) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    for number, hosted in enumerate(manager.topics.hosted(), 1):
        if not number % PARTITIONS_PER_TURN:
            await trio.lowlevel.checkpoint()
        if hosted.directory is directory and hosted.actor.log.offline is None:
            sizes[hosted.actor.topic_partition] = hosted.actor.log.size_in_bytes
    return sizes


def _describe(number: int, partition: HostedPartition | OfflinePartition) -> PartitionDescription:
    try:
        if isinstance(partition, OfflinePartition):
            raise partition.error
        snapshot = partition.actor.snapshot()
    except RequestError as exc:
        return PartitionDescription(
            partition=number,
            log_start_offset=-1,
            high_watermark=-1,
            log_end_offset=-1,
            size_bytes=-1,
            segments=0,
            error=exc,
        )
    return PartitionDescription(
        partition=number,
        log_start_offset=snapshot.log_start_offset,
        high_watermark=snapshot.high_watermark,
        log_end_offset=snapshot.log_end_offset,
        size_bytes=snapshot.size_in_bytes,
        segments=len(snapshot),
        waiting=partition.actor.log.waiting,
    )
