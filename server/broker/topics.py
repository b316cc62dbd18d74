"""Topics: made, configured, described, deleted.

What people are told of topics, their configuration, and the log directories, as values.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import attrs
import trio

from ...protocol.errors import (
    InvalidTopicError,
    RequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from ...protocol.types import CompressionType, TopicPartition
from ..config.log_config import check_internal_change
from ..logs.internal_topic import INTERNAL_TOPIC_CONFIG
from ..logs.log_manager import LogManager
from ..logs.topic_changes import ConfigChange
from ..logs.topics import HostedPartition, HostedTopic, OfflinePartition
from ..offsets.committed_offsets import CommittedOffsets
from ..sharing.partitions import SharePartitions
from ..storage.directory.log_directory import LogDirectory
from ..storage.disk.checkpoints import encode_uuid
from ..storage.disk.paths import INTERNAL_TOPICS, is_internal

MADE_BY_ADMINISTRATORS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics of the server's own that can be made before a coordinator needs them."""


def check_not_internal(topic: str) -> None:
    """Only the coordinators write, change and delete the topics that they keep their state in. Raises InvalidTopicError."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{topic} belongs to the server; it can be read, not written, changed or deleted")


@attrs.frozen(eq=False, repr=False)
class TopicAdmin:
    """Everything about topics as a whole; what happens to the log of one partition is in `logs`."""

    _manager: LogManager
    _committed_offsets: CommittedOffsets
    _shares: SharePartitions
    named: Callable[[bytes], str] = attrs.field(
        init=False, default=attrs.Factory(lambda admin: admin._manager.topics.name_of, takes_self=True)
    )
    """The name of the topic with an id of 16 bytes. Raises RequestError: UNKNOWN_TOPIC_ID."""

    async def create(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        lenient: bool = False,
        validate_only: bool = False,
    ) -> str:
        """Make a topic and answer its id. Raises RequestError; with `validate_only` nothing is made and the answer is empty.
        `lenient`: keys that do not exist are kept. The topics of the coordinators can be made before these need them, with
        other numbers of partitions, and are compacted."""
        changes, configs = self._manager.changes, configs or {}
        internal = name in MADE_BY_ADMINISTRATORS
        if internal:
            configs = {**INTERNAL_TOPIC_CONFIG, **configs}
            check_internal_change(name, INTERNAL_TOPIC_CONFIG, configs, INTERNAL_TOPIC_CONFIG)
        if validate_only:
            changes.check_new(name, partitions, configs, internal=internal, lenient=lenient)
            return ""
        topic = await changes.create(name, partitions, configs, internal=internal, lenient=lenient)
        return encode_uuid(topic.topic_id)

    async def create_asked_for(self, name: str, partitions: int) -> TopicMetadata:
        """Make a topic because a client has asked for its metadata, or find it made by another one meanwhile. One that was
        deleted a moment ago is made, and said to be unknown once more, as in Kafka: whoever waits until it is gone sees that.
        Raises RequestError."""
        was_deleted = self._manager.topics.take_recently_deleted(name)
        with contextlib.suppress(TopicAlreadyExistsError):
            await self._manager.changes.create(name, partitions, {})
        if was_deleted:
            raise UnknownTopicOrPartitionError(f"topic {name!r} was deleted a moment ago and is made again; ask once more")
        return self.metadata(name)

    async def delete(self, name: str, *, topic_id: bytes | None = None) -> None:
        """Delete a topic, and what groups have committed and begun in it. With `topic_id`, only if the topic still has that id.
        Raises RequestError."""
        check_not_internal(name)
        known_id = self._manager.topics.get(name).topic.id_bytes if name in self._manager.topics else None
        await self._manager.changes.delete(name, topic_id)
        await self._committed_offsets.forget_topic(name)
        if known_id is not None:
            await self._shares.forget_topic(known_id)

    def names(self) -> Iterator[str]:
        """Names of all topics, in order."""
        return (hosted.topic.name for hosted in self._manager.topics)

    def named_partitions(self, partitions: Iterable[tuple[bytes, int]]) -> list[TopicPartition]:
        """Partitions of topics with these ids by name, in order. A topic that was deleted meanwhile is left out."""
        found = []
        for topic_id, number in partitions:
            with contextlib.suppress(RequestError):
                found.append(TopicPartition(self.named(topic_id), number))
        return sorted(found)

    def id_of(self, name: str) -> bytes:
        """The id of a topic, 16 bytes. Raises RequestError."""
        return self._manager.topics.get(name).topic.id_bytes

    def compression_type(self, name: str) -> CompressionType | None:
        """Return the compression that the server applies to appends; None: as the producer did. None also without the topic."""
        topics = self._manager.topics
        return topics.get(name).config.compression_type if name in topics else None

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic, offline ones included. Raises RequestError."""
        return len(self._manager.topics.get(name).partitions)

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        """Return whether the topic exists and has the partition."""
        topics, (name, number) = self._manager.topics, topic_partition
        return name in topics and 0 <= number < len(topics.get(name).partitions)

    def metadata(self, name: str) -> TopicMetadata:
        """Id and leader epochs of a topic. Raises RequestError."""
        return topic_metadata(self._manager.topics.get(name))

    def describe(self, name: str) -> TopicDescription:
        """Identity, overridden configuration, and offsets and sizes of the partitions. Raises RequestError."""
        return describe_topic(self._manager.topics.get(name))

    async def describe_in_turns(self, name: str) -> TopicDescription:
        """`describe` of a topic that may have many partitions. Raises RequestError."""
        return await describe_topic_in_turns(self._manager.topics.get(name))

    def describe_config(self, name: str) -> dict[str, tuple[str, str]]:
        """(value, source) of every topic key, and of others that the topic has; the source is `topic` or `default`. Raises
        RequestError."""
        return describe_config(self._manager.topics.get(name))

    async def alter_configs(
        self, name: str, changes: Mapping[str, str], deletes: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        """Override topic keys, and let others follow the server's defaults again. In effect, and on the device, when this
        returns. Raises RequestError; then nothing is changed."""
        await self._manager.changes.alter_configs(name, changes, deletes, validate_only=validate_only)

    async def change_configs(
        self, name: str, change: ConfigChange, *, lenient: bool = False, validate_only: bool = False
    ) -> None:
        """Replace a topic's overrides by what `change` makes of them; nobody else changes them meanwhile. `lenient`: keys that
        do not exist are kept. In effect, and on the device, when this returns. Raises RequestError; then nothing is changed."""
        await self._manager.changes.change_configs(name, change, lenient=lenient, validate_only=validate_only)

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Let a topic have `total` partitions, more than it has. Raises RequestError."""
        await self._manager.changes.create_partitions(name, total, validate_only=validate_only)


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
    """The metadata of a topic for clients: its id of 16 bytes, and for each partition the leader epoch or the error."""

    name: str
    topic_id: bytes
    leader_epochs: tuple[int | RequestError, ...]
    is_internal: bool


@attrs.frozen(kw_only=True)
class DirectoryDescription:
    """A log directory."""

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
    """The contents of a log directory and the size of its device; -1 where a size is unknown."""

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
