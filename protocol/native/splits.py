"""The call `split_points`: where a range of offsets can be cut into pieces of about the same size, for several readers."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import attrs

from .. import limits
from ..errors import RequestError
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body


@attrs.frozen
class SplitPointsPartition:
    """Cut the offsets from `start` to `end`, exclusive, into pieces of about `target_bytes`."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "start", "end", "target_bytes")

    topic: str
    partition: int
    start: int
    end: int
    target_bytes: int

    @classmethod
    def from_body(cls, entry: Body) -> SplitPointsPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            fields.int64(entry, "start"),
            fields.int64(entry, "end"),
            fields.int64(entry, "target_bytes", 1),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return attrs.asdict(self)


@attrs.frozen
class SplitPointsRequest:
    """Ranges to be cut, each answered alone."""

    api: ClassVar[str] = "split_points"
    keys: ClassVar[frozenset[str]] = fields.names("partitions")

    partitions: tuple[SplitPointsPartition, ...]

    @classmethod
    def from_body(cls, body: Body) -> SplitPointsRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", SplitPointsPartition.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


class SplitPoint(NamedTuple):
    """The first offset of a piece, and the bytes of log from there to the next piece, or to the end."""

    offset: int
    bytes: int


def _read_point(entry: Body) -> SplitPoint:
    return SplitPoint(fields.int64(entry, "offset"), fields.int64(entry, "bytes"))


@attrs.frozen
class SplitPointsPartitionResponse:
    """The pieces in order; the first begins at the offset asked for. None for a range without offsets."""

    topic: str
    partition: int
    error: RequestError | None = None
    points: tuple[SplitPoint, ...] = ()

    @classmethod
    def from_body(cls, entry: Body) -> SplitPointsPartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.entries(entry, "points", _read_point, limits.MAX_SPLIT_POINTS),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "points": [point._asdict() for point in self.points],
        }


@attrs.frozen
class SplitPointsResponse:
    """One entry per partition asked for, in the same order."""

    api: ClassVar[str] = "split_points"

    partitions: tuple[SplitPointsPartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> SplitPointsResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", SplitPointsPartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}
