"""The call `lease_segments`: the segment files of partitions as they are now, kept for some time, for readers of files."""

from __future__ import annotations

from typing import ClassVar

import attrs

from .. import limits
from ..errors import RequestError
from ..types import NO_OFFSET
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body


@attrs.frozen
class LeasePartition:
    """A partition whose files are wanted."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition")

    topic: str
    partition: int

    @classmethod
    def from_body(cls, entry: Body) -> LeasePartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(fields.topic(entry), fields.int32(entry, "partition"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return attrs.asdict(self)


@attrs.frozen
class LeaseSegmentsRequest:
    """Keep the files of these partitions for `lease_ms`. With `lease_id` the lease made before goes on from now for `lease_ms`,
    with the files that it has: 0 ends it."""

    api: ClassVar[str] = "lease_segments"
    keys: ClassVar[frozenset[str]] = fields.names("partitions", "lease_ms", "lease_id")

    partitions: tuple[LeasePartition, ...]
    lease_ms: int
    lease_id: str | None = None

    @classmethod
    def from_body(cls, body: Body) -> LeaseSegmentsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        lease_id = None
        if body.get("lease_id") is not None:
            lease_id = fields.string(body, "lease_id", limits.MAX_LEASE_ID_CHARS)
        partitions = fields.entries(body, "partitions", LeasePartition.from_body)
        return cls(partitions, fields.int64(body, "lease_ms"), lease_id)

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "lease_ms": self.lease_ms,
            "lease_id": self.lease_id,
            "partitions": [partition.to_body() for partition in self.partitions],
        }


@attrs.frozen
class LeasedSegment:
    """A segment's `.log`, of which the first `size_bytes` count; its indexes lie beside it under the same name."""

    base_offset: int
    path: str
    size_bytes: int

    @classmethod
    def from_body(cls, entry: Body) -> LeasedSegment:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.int64(entry, "base_offset"),
            fields.string(entry, "path", limits.MAX_STRING_CHARS),
            fields.int64(entry, "size_bytes"),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return attrs.asdict(self)


@attrs.frozen
class LeasePartitionResponse:
    """The files of one partition on the server's machine, in order of their offsets."""

    topic: str
    partition: int
    error: RequestError | None = None
    directory: str | None = None
    log_start_offset: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    segments: tuple[LeasedSegment, ...] = ()

    @classmethod
    def from_body(cls, entry: Body) -> LeasePartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.optional_string(entry, "directory", limits.MAX_STRING_CHARS),
            fields.int64(entry, "log_start_offset", NO_OFFSET),
            fields.int64(entry, "high_watermark", NO_OFFSET),
            fields.int64(entry, "last_stable_offset", NO_OFFSET),
            fields.entries(entry, "segments", LeasedSegment.from_body, limits.INT32_MAX),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "directory": self.directory,
            "log_start_offset": self.log_start_offset,
            "high_watermark": self.high_watermark,
            "last_stable_offset": self.last_stable_offset,
            "segments": [segment.to_body() for segment in self.segments],
        }


@attrs.frozen
class LeaseSegmentsResponse:
    """The lease, and one entry per partition asked for, in the same order."""

    api: ClassVar[str] = "lease_segments"

    lease_id: str
    partitions: tuple[LeasePartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> LeaseSegmentsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        lease_id = fields.string(body, "lease_id", limits.MAX_LEASE_ID_CHARS)
        return cls(lease_id, fields.entries(body, "partitions", LeasePartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"lease_id": self.lease_id, "partitions": [partition.to_body() for partition in self.partitions]}
