"""The calls that change topics that exist: `create_partitions`, `alter_configs`, `delete_records`."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from ..errors import RequestError
from ..types import NO_OFFSET
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body

TO_HIGH_WATERMARK: Final = -1
"""As `before_offset`: delete everything that can be read (Kafka: DeleteRecordsRequest.HIGH_WATERMARK)."""


@attrs.frozen
class NewPartitions:
    """How many partitions a topic is to have in all, more than it has."""

    keys: ClassVar[frozenset[str]] = fields.names("name", "total")

    name: str
    total: int

    @classmethod
    def from_body(cls, entry: Body) -> NewPartitions:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(fields.topic(entry, "name"), fields.int32(entry, "total"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"name": self.name, "total": self.total}


@attrs.frozen
class CreatePartitionsRequest:
    """Topics that get more partitions, each succeeds or fails alone."""

    api: ClassVar[str] = "create_partitions"
    keys: ClassVar[frozenset[str]] = fields.names("topics")

    topics: tuple[NewPartitions, ...]

    @classmethod
    def from_body(cls, body: Body) -> CreatePartitionsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", NewPartitions.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}


@attrs.frozen
class ConfigChange:
    """Keys of a topic to set, and keys whose own value is to go, so that the default holds again."""

    keys: ClassVar[frozenset[str]] = fields.names("name", "set", "delete")

    name: str
    set: dict[str, str] = attrs.Factory(dict)
    delete: tuple[str, ...] = ()

    @classmethod
    def from_body(cls, entry: Body) -> ConfigChange:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        delete = fields.strings(entry, "delete", fields.MAX_CONFIG_KEYS, fields.MAX_CONFIG_KEY_CHARS, default=[])
        return cls(fields.topic(entry, "name"), fields.string_map(entry, "set", {}), delete)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"name": self.name, "set": self.set, "delete": list(self.delete)}


@attrs.frozen
class AlterConfigsRequest:
    """Changes of topics' configuration; all keys of a topic change together or none does."""

    api: ClassVar[str] = "alter_configs"
    keys: ClassVar[frozenset[str]] = fields.names("topics")

    topics: tuple[ConfigChange, ...]

    @classmethod
    def from_body(cls, body: Body) -> AlterConfigsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", ConfigChange.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}


@attrs.frozen
class ChangedTopic:
    """What became of one topic."""

    name: str
    error: RequestError | None = None

    @classmethod
    def from_body(cls, entry: Body) -> ChangedTopic:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(fields.topic(entry, "name"), decode_error(entry.get("error")))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"name": self.name, "error": encode_error(self.error)}


@attrs.frozen
class CreatePartitionsResponse:
    """One entry per topic, in the same order."""

    api: ClassVar[str] = "create_partitions"

    topics: tuple[ChangedTopic, ...]

    @classmethod
    def from_body(cls, body: Body) -> CreatePartitionsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", ChangedTopic.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}


@attrs.frozen
class AlterConfigsResponse:
    """One entry per topic, in the same order."""

    api: ClassVar[str] = "alter_configs"

    topics: tuple[ChangedTopic, ...]

    @classmethod
    def from_body(cls, body: Body) -> AlterConfigsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", ChangedTopic.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}


@attrs.frozen
class DeleteRecordsPartition:
    """Make `before_offset` the log start offset of a partition; -1 stands for the high watermark."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "before_offset")

    topic: str
    partition: int
    before_offset: int

    @classmethod
    def from_body(cls, entry: Body) -> DeleteRecordsPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        before_offset = fields.int64(entry, "before_offset", TO_HIGH_WATERMARK)
        return cls(fields.topic(entry), fields.int32(entry, "partition"), before_offset)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topic": self.topic, "partition": self.partition, "before_offset": self.before_offset}


@attrs.frozen
class DeleteRecordsRequest:
    """Partitions whose oldest records are to go, each succeeds or fails alone."""

    api: ClassVar[str] = "delete_records"
    keys: ClassVar[frozenset[str]] = fields.names("partitions")

    partitions: tuple[DeleteRecordsPartition, ...]

    @classmethod
    def from_body(cls, body: Body) -> DeleteRecordsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", DeleteRecordsPartition.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


@attrs.frozen
class DeleteRecordsPartitionResponse:
    """The partition's log start offset from now on, which may lie above the offset asked for."""

    topic: str
    partition: int
    error: RequestError | None = None
    log_start_offset: int = NO_OFFSET

    @classmethod
    def from_body(cls, entry: Body) -> DeleteRecordsPartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.int64(entry, "log_start_offset", NO_OFFSET),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "log_start_offset": self.log_start_offset,
        }


@attrs.frozen
class DeleteRecordsResponse:
    """One entry per partition, in the same order."""

    api: ClassVar[str] = "delete_records"

    partitions: tuple[DeleteRecordsPartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> DeleteRecordsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", DeleteRecordsPartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}
