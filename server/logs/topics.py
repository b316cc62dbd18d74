"""The topics that a server has, and what became of each of their partitions. Owner: the log manager."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import ClassVar, Final

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidTopicError, RequestError, UnknownTopicOrPartitionError
from ...protocol.types import TimestampType, TopicPartition
from ..config import LogConfig
from ..partitions.partition import PartitionActor
from ..storage.directory.log_directory import LogDirectory
from ..storage.directory.topics_file import Topic, entry_bytes
from ..storage.disk.checkpoints import encode_uuid, offset_lines_bytes
from ..storage.disk.paths import INTERNAL_TOPICS, collision_key
from ..storage.errors import LogOfflineError
from ..system.client_memory import Account, ClientMemory, deep_bytes

LOGGER: Final = logging.getLogger(__name__)

DELETED_LATELY_S: Final = 10.0
MAX_DELETED: Final = 1_000
"""Names of deleted topics that are remembered for so long."""

TOPIC_BYTES: Final = 2_000
"""A topic without partitions, overrides and its name."""

_partitions: Final = attrgetter("partitions")
_has_actor: Final = attrgetter("has_actor")


@attrs.frozen
class OfflinePartition:
    """A partition that cannot be served, and why."""

    has_actor: ClassVar[bool] = False
    topic_partition: TopicPartition
    error: RequestError
    directory: LogDirectory | None
    """Where its files are, None when they were not found."""


@attrs.define(eq=False, repr=False)
class HostedPartition:
    """A partition's actor and the log directory that holds its files."""

    has_actor: ClassVar[bool] = True
    actor: PartitionActor
    directory: LogDirectory
    refusal: RequestError | None = None
    """Why appends of clients are refused right now. Set by the guard of the disk's reserve."""
    hold_refusal: RequestError | None = None
    """The same for what groups hold of the log. Set by the guard."""
    is_probed: bool = False
    """Whether the directory was looked at since the log went offline."""
    unlinking: trio.Lock = attrs.field(factory=trio.Lock)
    """Held while segments that were taken out are unlinked."""


@attrs.define(eq=False, repr=False)
class HostedTopic:
    """A topic with its partitions in order."""

    topic: Topic
    config: LogConfig
    partitions: list[HostedPartition | OfflinePartition]
    warned_of_old_records: bool = False
    """Whether it was said that records arrive which retention.ms lets go at once."""


@attrs.define(eq=False, repr=False)
class Topics:
    """Topic by name and by id. Looking up never waits."""

    _topics: dict[str, HostedTopic] = attrs.field(factory=dict)
    _names: dict[bytes, str] = attrs.field(factory=dict)
    _by_collision_key: dict[str, list[str]] = attrs.field(factory=dict)
    _deleted_at: dict[str, float] = attrs.field(factory=dict)
    """The trio time of the last deletions, the latest last; at most MAX_DELETED."""
    account: Account = attrs.field(factory=lambda: ClientMemory().account("topic configurations"))
    """Where names and configurations are charged."""
    version: int = 0
    """Another one after every topic that was made, deleted or given more partitions."""
    partition_count: int = 0
    """Of all topics, as they were when they were added."""
    entries_bytes: int = 0
    """`entry_bytes` of all topics."""
    offset_lines_bytes: int = 0
    """The same for checkpoints of offsets."""
    entries: dict[str, Topic] = attrs.field(factory=dict)
    """By name, the topics as they were counted. Not to be changed."""
    half_deleted: dict[str, Topic] = attrs.field(factory=dict)
    """By name, topics that are not served, and that the next start may find again: a device failed during their deletion. A
    client that repeats the deletion must not learn that the topic does not exist."""

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[HostedTopic]:
        return iter(sorted(self._topics.values(), key=lambda hosted: hosted.topic.name))

    def add(self, hosted: HostedTopic) -> None:
        name = hosted.topic.name
        self.version += 1
        if name not in self._topics:
            self._by_collision_key.setdefault(collision_key(name), []).append(name)
        self._topics[name] = hosted
        self.half_deleted.pop(name, None)
        self.charge(hosted)
        self._names[hosted.topic.id_bytes] = name

    def check_memory(self, name: str, configs: Mapping[str, str]) -> None:
        """Raises POLICY_VIOLATION where a topic of that name may not have these overrides."""
        self.account.check(name, _bytes_of(name, configs) - self.account.size_of(name))

    def charge(self, hosted: HostedTopic) -> None:
        """The topic is as it is from now on: its overrides, its partitions."""
        self._count(hosted.topic.name, hosted.topic)
        self.account.put(hosted.topic.name, _bytes_of(hosted.topic.name, hosted.topic.configs))

    def _count(self, name: str, topic: Topic | None) -> None:
        for each, sign in ((self.entries.pop(name, None), -1), (topic, 1)):
            if each is not None:
                self.partition_count += sign * each.partitions
                self.entries_bytes += sign * entry_bytes(each)
                self.offset_lines_bytes += sign * offset_lines_bytes(name, each.partitions)
        if topic is not None:
            self.entries[name] = topic

    def remove(self, name: str) -> HostedTopic:
        self.account.drop(name)
        self.version += 1
        hosted = self._topics.pop(name)
        self._count(name, None)
        del self._names[hosted.topic.id_bytes]
        self._by_collision_key[collision_key(name)].remove(name)
        if not self._by_collision_key[collision_key(name)]:
            del self._by_collision_key[collision_key(name)]
        return hosted

    @property
    def ids(self) -> Collection[bytes]:
        """Return the ids of all topics, of 16 bytes each."""
        return self._names.keys()

    def note_deleted(self, name: str) -> None:
        """A topic of that name was deleted just now."""
        self._deleted_at.pop(name, None)
        if len(self._deleted_at) >= MAX_DELETED:
            del self._deleted_at[next(iter(self._deleted_at))]
        self._deleted_at[name] = trio.current_time()

    def take_recently_deleted(self, name: str) -> bool:
        """Return whether a topic of that name was deleted less than DELETED_LATELY_S ago; True once for each deletion."""
        return trio.current_time() - self._deleted_at.pop(name, -math.inf) < DELETED_LATELY_S

    def colliding_with(self, name: str) -> str | None:
        """A topic whose metrics would have the same names."""
        return next(iter(self._by_collision_key.get(collision_key(name), ())), None)

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of the topic with an id of 16 bytes. Raises RequestError: UNKNOWN_TOPIC_ID, or LogOfflineError for a
        topic that is half deleted."""
        if topic_id not in self._names:
            for half in self.half_deleted.values():
                if half.id_bytes == topic_id:
                    raise half_deleted_error(half)
            topic = encode_uuid(uuid.UUID(bytes=topic_id))
            raise RequestError(f"there is no topic with id {topic}. It may have been deleted", ErrorCode.UNKNOWN_TOPIC_ID)
        return self._names[topic_id]

    def find(self, name: str) -> HostedTopic | None:
        return self._topics.get(name)

    def get(self, name: str) -> HostedTopic:
        """Return a topic. Raises UnknownTopicOrPartitionError, or LogOfflineError for a topic that is half deleted."""
        hosted = self._topics.get(name)
        if hosted is None:
            if name in self.half_deleted:
                raise half_deleted_error(self.half_deleted[name])
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}. `triolog topics create {name}` creates it")
        return hosted

    def actor(self, topic_partition: TopicPartition) -> PartitionActor:
        """Raises UnknownTopicOrPartitionError, or the error of a partition that is offline."""
        return self.partition(topic_partition).actor

    def writable(self, topic_partition: TopicPartition) -> PartitionActor:
        """The actor for an append of a client. Raises what `actor` raises, and what appends are refused with."""
        partition = self.partition(topic_partition)
        refusal = partition.refusal or partition.hold_refusal
        if refusal is not None:
            raise refusal.as_answer()
        return partition.actor

    def partition(self, topic_partition: TopicPartition) -> HostedPartition:
        """Raises UnknownTopicOrPartitionError, or the error of a partition that is offline."""
        name, number = topic_partition
        partitions = self._topics[name].partitions if name in self._topics else self.get(name).partitions
        try:
            partition = partitions[number]
        except IndexError:
            number = -1
        if number < 0:
            raise UnknownTopicOrPartitionError(
                f"topic {name!r} has partitions 0 to {len(partitions) - 1}, not {topic_partition.partition}"
            )
        if partition.__class__ is not HostedPartition:
            assert isinstance(partition, OfflinePartition)
            raise partition.error.as_answer()
        return partition

    def note_age(self, topic_partition: TopicPartition, max_timestamp: int, now_ms: int) -> None:
        """Say it, once a topic and configuration, when records arrive that are older than what retention.ms keeps."""
        hosted = self.get(topic_partition.topic)
        config = hosted.config
        if not 0 <= config.retention_ms < now_ms - max_timestamp or max_timestamp < 0 or hosted.warned_of_old_records:
            return
        if "delete" in config.cleanup_policy and config.message_timestamp_type is TimestampType.CREATE_TIME:
            hosted.warned_of_old_records = True
            LOGGER.warning(
                "%s: new records with timestamps up to %d are older than retention.ms=%d keeps, and will be deleted "
                "soon. Set retention.ms=-1 for the topic to keep them.",
                topic_partition,
                max_timestamp,
                config.retention_ms,
            )

    def offline(self) -> list[OfflinePartition]:
        """Every partition that cannot be served."""
        return [each for hosted in self._topics.values() for each in hosted.partitions if isinstance(each, OfflinePartition)]

    def hosted(self) -> list[HostedPartition]:
        """Every partition that has an actor. Asked for with every topic that is made, of thousands: no step of it is ours."""
        return list(filter(_has_actor, chain.from_iterable(map(_partitions, self._topics.values()))))


def check_not_internal(topic: str) -> None:
    """Only the coordinators write, change and delete the topics that they keep their state in. Raises InvalidTopicError."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{topic} belongs to the server. It can be read, but not written, changed or deleted")


def _bytes_of(name: str, configs: Mapping[str, str]) -> int:
    """Memory of a topic's overrides, as they are written and as they are read, and of its name in all tables."""
    return TOPIC_BYTES + 3 * deep_bytes(name) + 2 * deep_bytes(configs)


def half_deleted_error(topic: Topic, why: object = "a device failed during its deletion") -> LogOfflineError:
    """Return the error for a topic that is not served, and that the next start may find again."""
    return LogOfflineError(
        f"topic {topic.name!r} is no longer served, but not all of its files could be removed: {why}. Check "
        "the device, restart the server, and delete the topic again if it still exists"
    )
