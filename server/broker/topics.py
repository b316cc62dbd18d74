"""Topics and what their logs go through: made, changed, cut, let go, compacted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...protocol.errors import InvalidTopicError, RequestError
from ...protocol.types import TopicPartition
from ..actors.compaction import Compaction
from ..actors.coordinators import Coordinators
from ..actors.descriptions import (
    TopicDescription,
    TopicMetadata,
    describe_config,
    describe_topic,
    topic_metadata,
)
from ..actors.log_manager import LogManager
from ..actors.topic_changes import ConfigChange
from ..storage.checkpoints import encode_uuid
from ..storage.leader_change import raise_leader_epoch
from ..storage.paths import is_internal


def check_not_internal(topic: str) -> None:
    """What coordinators keep is written by them alone, and cannot be taken from under them."""
    if is_internal(topic):
        raise InvalidTopicError(f"{topic} belongs to the server; it can be read, not written, changed or deleted")


class TopicCalls:
    """Raises RequestError where a caller is to be told something."""

    __slots__ = ()
    _manager: LogManager
    _coordinators: Coordinators
    _compaction: Compaction

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        lenient: bool = False,
        validate_only: bool = False,
    ) -> str:
        """Make a topic and answer its id. Raises RequestError; with `validate_only` nothing is made. `lenient`: keys that
        do not exist are kept."""
        if validate_only:
            self._manager.check_new_topic(name, partitions, configs or {}, lenient=lenient)
            return ""
        topic = await self._manager.create_topic(name, partitions, configs or {}, lenient=lenient)
        return encode_uuid(topic.topic_id)

    async def delete_topic(self, name: str, *, topic_id: bytes | None = None) -> None:
        """Delete a topic, and the offsets that groups committed for it. `topic_id`: unless it is another one by then. Raises
        RequestError."""
        check_not_internal(name)
        await self._manager.delete_topic(name, topic_id)
        await self._coordinators.groups.forget_topic(name)

    def topics(self) -> Iterator[str]:
        """Names of all topics, in order."""
        return (hosted.topic.name for hosted in self._manager.topics)

    def topic_named(self, topic_id: bytes) -> str:
        """The name of the topic with an id of 16 bytes. Raises RequestError: UNKNOWN_TOPIC_ID."""
        return self._manager.topics.name_of(topic_id)

    def topic_id(self, name: str) -> bytes:
        """The id of a topic, 16 bytes. Raises RequestError."""
        return self._manager.topics.get(name).topic.topic_id.bytes

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has, those that are offline too. Raises RequestError."""
        return len(self._manager.topics.get(name).partitions)

    def topic_metadata(self, name: str) -> TopicMetadata:
        """Id and leader epochs of a topic. Raises RequestError."""
        return topic_metadata(self._manager.topics.get(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """Identity, overridden configuration, and offsets and sizes of the partitions. Raises RequestError."""
        return describe_topic(self._manager.topics.get(name))

    def describe_config(self, name: str) -> dict[str, tuple[str, str]]:
        """(value, source) of every topic key, and of others that the topic has; the source is `topic` or `default`. Raises
        RequestError."""
        return describe_config(self._manager.topics.get(name))

    async def alter_configs(
        self, name: str, changes: Mapping[str, str], deletes: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        """Override topic keys, and let others follow the server's defaults again. In effect, and on the device, when this
        returns. Raises RequestError; then nothing is changed."""
        await self._manager.alter_configs(name, changes, deletes, validate_only=validate_only)

    async def change_configs(
        self, name: str, change: ConfigChange, *, lenient: bool = False, validate_only: bool = False
    ) -> None:
        """The same with a function of what the topic overrides; nobody else changes that meanwhile. `lenient`: keys that do
        not exist are kept. Raises RequestError."""
        await self._manager.change_configs(name, change, lenient=lenient, validate_only=validate_only)

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Let a topic have `total` partitions, more than it has. Raises RequestError."""
        await self._manager.create_partitions(name, total, validate_only=validate_only)

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete the records below `before_offset` (-1: below the high watermark) and answer the log start offset. Readers
        do not see them any more, also after a power cut; the files go later. Raises RequestError."""
        [answer] = await self.delete_records_of([(topic_partition, before_offset)])
        if isinstance(answer, RequestError):
            raise answer
        return answer

    async def delete_records_of(self, wanted: Sequence[tuple[TopicPartition, int]]) -> list[int | RequestError]:
        """The same for many partitions, in the order asked; each succeeds or fails alone. A hundred cost little more than one:
        what a log directory knows of its logs is written once."""
        return await self._manager.delete_records(wanted)

    async def raise_leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Begin the next leader epoch of a partition, as a new leader does, and answer it. Raises RequestError."""
        return await self._manager.topics.actor(topic_partition).perform(raise_leader_epoch)

    async def apply_retention(self) -> int:
        """Take out now what retention lets go; answers how many segments that were."""
        return await self._manager.retention.run_pass()

    async def compact(self, topic_partition: TopicPartition) -> int:
        """Compact a partition now, its newest records too, however little of it is dirty; answers how many rounds that took.
        What is undecided or younger than min.compaction.lag.ms stays. Raises RequestError: it is not compacted."""
        return await self._compaction.compact(topic_partition)
