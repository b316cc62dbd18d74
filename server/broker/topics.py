"""Topics: made, configured, described, deleted; what people are told of them, and of their configuration, as values."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import attrs
import trio

from ...protocol.errors import (
    RequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from ...protocol.former import warn_former
from ...protocol.types import NO_OFFSET, CompressionType, TopicPartition
from ..config.log_config import check_internal_change
from ..logs.internal_topic import INTERNAL_TOPIC_CONFIG
from ..logs.log_manager import LogManager
from ..logs.topic_changes import ConfigChange
from ..logs.topics import HostedPartition, HostedTopic, OfflinePartition, check_not_internal
from ..offsets.committed_offsets import CommittedOffsets
from ..sharing.partitions import SharePartitions
from ..storage.disk.checkpoints import encode_uuid
from ..storage.disk.paths import is_internal

MADE_BY_ADMINISTRATORS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics of the server's own that can be made before a coordinator needs them."""


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
            raise UnknownTopicOrPartitionError(f"topic {name!r} was just deleted and is being created again. Try again")
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
        hosted = self._manager.topics.get(name)
        epochs = tuple(map(_leader_epoch, hosted.partitions))
        return TopicMetadata(name, hosted.topic.topic_id.bytes, epochs, is_internal(name))

    def describe(self, name: str) -> TopicDescription:
        """Identity, overridden configuration, and offsets and sizes of the partitions. Raises RequestError."""
        hosted = self._manager.topics.get(name)
        return _topic_description(hosted, map(_describe, itertools.count(), hosted.partitions))

    async def describe_in_turns(self, name: str) -> TopicDescription:
        """`describe` of a topic that may have many partitions. Raises RequestError."""
        hosted, partitions = self._manager.topics.get(name), []
        for number, partition in enumerate(list(hosted.partitions)):
            partitions.append(_describe(number, partition))
            if not number % DESCRIBED_PER_TURN:
                await trio.lowlevel.checkpoint()
        return _topic_description(hosted, partitions)

    def describe_config(self, name: str) -> dict[str, tuple[str, str]]:
        """(value, source) of every topic key, and of others that the topic has; the source is `topic` or `default`. Raises
        RequestError."""
        hosted = self._manager.topics.get(name)
        overrides, values = hosted.topic.configs, hosted.config.as_strings()
        values |= {key: value for key, value in overrides.items() if key not in values}
        return {key: (value, "topic" if key in overrides else "default") for key, value in values.items()}

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


DESCRIBED_PER_TURN: Final = 64


@attrs.frozen(kw_only=True)
class PartitionDescription:
    """A partition, by the names of the native protocol's PartitionMetadata. Offsets are -1 if it has an error."""

    partition: int
    error: RequestError | None = None
    log_start_offset: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    log_end_offset: int = NO_OFFSET
    """Known in the server's process only."""
    size_bytes: int = 0
    segments: int = 0
    waiting: str | None = None
    """The reason why it accepts no appends although it can be read: the disk had no space to open it."""


@attrs.frozen(kw_only=True)
class TopicDescription:
    """A topic, by the names of the native protocol's TopicMetadata."""

    name: str
    topic_id: str
    config: dict[str, str]
    """The keys that the topic overrides."""
    partitions: tuple[PartitionDescription, ...]

    @property
    def configs(self) -> dict[str, str]:
        """Use `config`."""
        warn_former("configs", "config")
        return self.config


@final
@attrs.frozen
class TopicMetadata:
    """The metadata of a topic for clients: its id of 16 bytes, and for each partition the leader epoch or the error."""

    name: str
    topic_id: bytes
    leader_epochs: tuple[int | RequestError, ...]
    is_internal: bool


def _topic_description(hosted: HostedTopic, partitions: Iterable[PartitionDescription]) -> TopicDescription:
    return TopicDescription(
        name=hosted.topic.name,
        topic_id=encode_uuid(hosted.topic.topic_id),
        config=dict(hosted.topic.configs),
        partitions=tuple(partitions),
    )


def _leader_epoch(partition: HostedPartition | OfflinePartition) -> int | RequestError:
    if isinstance(partition, OfflinePartition):
        return partition.error
    return partition.actor.log.offline or partition.actor.log.leader_epoch


def _describe(number: int, partition: HostedPartition | OfflinePartition) -> PartitionDescription:
    try:
        if isinstance(partition, OfflinePartition):
            raise partition.error
        snapshot = partition.actor.snapshot()
    except RequestError as exc:
        return PartitionDescription(partition=number, error=exc)
    waiting = partition.actor.log.waiting
    return PartitionDescription(
        partition=number,
        log_start_offset=snapshot.log_start_offset,
        high_watermark=snapshot.high_watermark,
        log_end_offset=snapshot.log_end_offset,
        size_bytes=snapshot.size_in_bytes,
        segments=len(snapshot),
        waiting=None if waiting is None else waiting.message,
    )
