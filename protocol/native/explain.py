"""The call `explain`: a lookup by offset or by timestamp, answered with the walk that led to the answer."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from ..errors import RequestError
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body
from .lookups import read_timestamp


@attrs.frozen
class ExplainPartition:
    """What to look up in one partition: an offset or a timestamp, the other one is None."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "offset", "timestamp")

    topic: str
    partition: int
    offset: int | None = None
    timestamp: int | None = None

    @classmethod
    def from_body(cls, entry: Body) -> ExplainPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        topic, partition = fields.topic(entry), fields.int32(entry, "partition")
        if ("offset" in entry) == ("timestamp" in entry):
            found = "both" if "offset" in entry else "neither"
            raise fields.FieldError("", f"has {found} of offset and timestamp, expected one")
        if "offset" in entry:
            return cls(topic, partition, offset=fields.int64(entry, "offset"))
        return cls(topic, partition, timestamp=read_timestamp(entry))

    def to_body(self) -> Body:
        """What msgpack packs."""
        target = {"timestamp": self.timestamp} if self.offset is None else {"offset": self.offset}
        return {"topic": self.topic, "partition": self.partition, **target}


@attrs.frozen
class ExplainRequest:
    """Lookups to be explained, each answered alone."""

    api: ClassVar[str] = "explain"
    keys: ClassVar[frozenset[str]] = fields.names("partitions")

    partitions: tuple[ExplainPartition, ...]

    @classmethod
    def from_body(cls, body: Body) -> ExplainRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", ExplainPartition.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


@attrs.frozen
class ExplainPartitionResponse:
    """The walk as data, for people and their tools; its keys stand in docs/native-protocol.md. None on error."""

    topic: str
    partition: int
    error: RequestError | None = None
    walk: dict[str, Any] | None = None

    @classmethod
    def from_body(cls, entry: Body) -> ExplainPartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            None if entry.get("walk") is None else fields.map_at(entry, "walk"),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "walk": self.walk,
        }


@attrs.frozen
class ExplainResponse:
    """One entry per partition asked for, in the same order."""

    api: ClassVar[str] = "explain"

    partitions: tuple[ExplainPartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> ExplainResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", ExplainPartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}
