"""The call `offsets_for_times`: which offset a time has; and how a time to look up is written."""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from .. import limits
from ..errors import RequestError
from ..types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_OFFSET,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    Isolation,
)
from . import fields
from .error_entries import decode_error, encode_error
from .fetch import read_isolation
from .fields import Body

_SPECIAL_TIMESTAMPS: Final = {
    "latest": LATEST_TIMESTAMP,
    "earliest": EARLIEST_TIMESTAMP,
    "max_timestamp": MAX_TIMESTAMP,
}
_EXPECTED_TIMESTAMP: Final = f"int from {MAX_TIMESTAMP} to {limits.INT64_MAX} or one of {', '.join(_SPECIAL_TIMESTAMPS)}"


def read_timestamp(entry: Body) -> int:
    """A timestamp to look up, in ms; the special ones by number or by name."""
    value = entry.get("timestamp", fields.REQUIRED)
    if type(value) is str and value in _SPECIAL_TIMESTAMPS:
        return _SPECIAL_TIMESTAMPS[value]
    if type(value) is int and MAX_TIMESTAMP <= value <= limits.INT64_MAX:
        return value
    if value is fields.REQUIRED:
        raise fields.FieldError("timestamp", f"is missing, expected {_EXPECTED_TIMESTAMP}")
    raise fields.unexpected("timestamp", value, _EXPECTED_TIMESTAMP)


@attrs.frozen
class OffsetsForTimesPartition:
    """One question: the first record of this partition with a timestamp at or after `timestamp` (ms, or -1, -2, -3)."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "timestamp")

    topic: str
    partition: int
    timestamp: int

    @classmethod
    def from_body(cls, entry: Body) -> OffsetsForTimesPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(fields.topic(entry), fields.int32(entry, "partition"), read_timestamp(entry))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"topic": self.topic, "partition": self.partition, "timestamp": self.timestamp}


@attrs.frozen
class OffsetsForTimesRequest:
    """Timestamp lookups, each answered alone."""

    api: ClassVar[str] = "offsets_for_times"
    keys: ClassVar[frozenset[str]] = fields.names("isolation", "partitions")

    partitions: tuple[OffsetsForTimesPartition, ...]
    isolation: Isolation = Isolation.READ_UNCOMMITTED

    @classmethod
    def from_body(cls, body: Body) -> OffsetsForTimesRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(
            fields.entries(body, "partitions", OffsetsForTimesPartition.from_body),
            read_isolation(body),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "isolation": self.isolation.value,
            "partitions": [partition.to_body() for partition in self.partitions],
        }


@attrs.frozen
class OffsetsForTimesPartitionResponse:
    """The record found; offset -1 and timestamp -1 when there is none."""

    topic: str
    partition: int
    error: RequestError | None = None
    offset: int = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH

    @classmethod
    def from_body(cls, entry: Body) -> OffsetsForTimesPartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.int64(entry, "offset", NO_OFFSET),
            fields.int64(entry, "timestamp", NO_TIMESTAMP),
            fields.int32(entry, "leader_epoch", NO_PARTITION_LEADER_EPOCH),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "offset": self.offset,
            "timestamp": self.timestamp,
            "leader_epoch": self.leader_epoch,
        }


@attrs.frozen
class OffsetsForTimesResponse:
    """One entry per partition asked for, in the same order."""

    api: ClassVar[str] = "offsets_for_times"

    partitions: tuple[OffsetsForTimesPartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> OffsetsForTimesResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", OffsetsForTimesPartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}
