"""Topics: made, configured, described, deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ...protocol.errors import (
    InvalidTopicError,
    RequestError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from ...protocol.types import CompressionType, TopicPartition
from ..actors.coordinators.committed_offsets import CommittedOffsets
from ..actors.coordinators.internal_topic import INTERNAL_TOPIC_CONFIG
from ..actors.manager.descriptions import (
    TopicDescription,
    TopicMetadata,
    describe_config,
    describe_topic,
    describe_topic_in_turns,
    topic_metadata,
)
from ..actors.manager.log_manager import LogManager
from ..actors.manager.topic_changes import ConfigChange
from ..config import check_internal_change
from ..sharing.partitions import SharePartitions
from ..storage.disk.checkpoints import encode_uuid
from ..storage.disk.paths import INTERNAL_TOPICS

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
        """How the server compresses what is appended to a topic; None: as the producer did. None also without the topic."""
        topics = self._manager.topics
        return topics.get(name).config.compression_type if name in topics else None

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has, offline ones included. Raises RequestError."""
        return len(self._manager.topics.get(name).partitions)

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        """Whether there is such a topic, with that partition."""
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
