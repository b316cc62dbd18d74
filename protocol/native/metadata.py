"""The call `metadata`: which topics there are, their partitions and how large these are."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from .. import limits
from ..errors import RequestError
from ..types import NO_OFFSET
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body

TOPIC_ID_CHARS: Final = 64
"""A topic id is 22 characters of base64url; room for another form of it."""


@attrs.frozen
class MetadataRequest:
    """Describe these topics; None: all of them."""

    api: ClassVar[str] = "metadata"
    keys: ClassVar[frozenset[str]] = fields.names("topics")

    topics: tuple[str, ...] | None = None

    @classmethod
    def from_body(cls, body: Body) -> MetadataRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        if body.get("topics") is None:
            return cls(None)
        return cls(fields.topics(body, "topics"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": None if self.topics is None else list(self.topics)}


@attrs.frozen
class PartitionMetadata:
    """A partition: its readable range (`high_watermark` exclusive), bytes of log on disk, number of segments; `waiting` says
    why one that is read takes no appends until there is space."""

    partition: int
    error: RequestError | None = None
    log_start_offset: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    size_bytes: int = 0
    segments: int = 0
    waiting: str | None = None

    @classmethod
    def from_body(cls, entry: Body) -> PartitionMetadata:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.int64(entry, "log_start_offset", NO_OFFSET),
            fields.int64(entry, "high_watermark", NO_OFFSET),
            fields.int64(entry, "size_bytes"),
            fields.int32(entry, "segments"),
            fields.optional_string(entry, "waiting", limits.MAX_STRING_CHARS),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "partition": self.partition,
            "error": encode_error(self.error),
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "size_bytes": self.size_bytes,
            "segments": self.segments,
            "waiting": self.waiting,
        }


@attrs.frozen
class TopicMetadata:
    """A topic, the configuration it overrides, its partitions; on error the topic id is None and the rest empty."""

    name: str
    error: RequestError | None = None
    topic_id: str | None = None
    config: dict[str, str] = attrs.Factory(dict)
    partitions: tuple[PartitionMetadata, ...] = ()

    @classmethod
    def from_body(cls, entry: Body) -> TopicMetadata:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry, "name"),
            decode_error(entry.get("error")),
            fields.optional_string(entry, "topic_id", TOPIC_ID_CHARS),
            fields.string_map(entry, "config"),
            fields.entries(entry, "partitions", PartitionMetadata.from_body, limits.INT32_MAX),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "name": self.name,
            "error": encode_error(self.error),
            "topic_id": self.topic_id,
            "config": self.config,
            "partitions": [partition.to_body() for partition in self.partitions],
        }


@attrs.frozen
class MetadataResponse:
    """The topics asked for in the same order, or all of them by name."""

    api: ClassVar[str] = "metadata"

    topics: tuple[TopicMetadata, ...]

    @classmethod
    def from_body(cls, body: Body) -> MetadataResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "topics", TopicMetadata.from_body, limits.INT32_MAX))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topics": [topic.to_body() for topic in self.topics]}
