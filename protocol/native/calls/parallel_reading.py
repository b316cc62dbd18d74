"""The calls of many readers that share the work.

`split_points` says where a range of offsets can be cut into pieces of about the same size; `lease_segments` names the segment
files of partitions as they are now, kept for some time, for readers of files.
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...types import NO_OFFSET
from ..declaration import wire
from ..kinds import INT64, INT64_OR_NONE, integer, name, note
from ..places import Partition, PartitionAnswer
from ..structs import RequestMessage, ResponseMessage, Struct, struct


@struct
class SplitPointsPartition(Partition):
    """Cut the offsets from `start` to `end`, exclusive, into pieces of about `target_bytes`."""

    start: int = wire(INT64)
    end: int = wire(INT64)
    target_bytes: int = wire(integer(1, limits.INT64_MAX))


@struct
class SplitPointsRequest(RequestMessage):
    """Ranges to be cut, each answered alone."""

    api = "split_points"

    partitions: tuple[SplitPointsPartition, ...] = wire([SplitPointsPartition])


@struct
class SplitPoint(Struct):
    """The first offset of a piece, and the bytes of log from there to the next piece, or to the end."""

    offset: int = wire(INT64)
    bytes: int = wire(INT64)


@struct
class SplitPointsPartitionResponse(PartitionAnswer):
    """The pieces in order; the first begins at the offset asked for. None for a range without offsets."""

    points: tuple[SplitPoint, ...] = wire([SplitPoint], default=(), max_count=limits.MAX_SPLIT_POINTS)


@struct
class SplitPointsResponse(ResponseMessage):
    """One entry per partition asked for, in the same order."""

    api = "split_points"

    partitions: tuple[SplitPointsPartitionResponse, ...] = wire([SplitPointsPartitionResponse])


LEASE_ID: Final = name(limits.MAX_LEASE_ID_CHARS)


@struct
class LeasePartition(Partition):
    """A partition whose files are wanted."""


@struct
class LeaseSegmentsRequest(RequestMessage):
    """Keep the files of these partitions for `lease_ms`. With `lease_id` the lease made before goes on from now for `lease_ms`,
    with the files that it has: 0 ends it."""

    api = "lease_segments"

    partitions: tuple[LeasePartition, ...] = wire([LeasePartition], last=True)
    lease_ms: int = wire(INT64)
    lease_id: str | None = wire(LEASE_ID, nullable=True, default=None)


@struct
class LeasedSegment(Struct):
    """A segment's `.log`, of which the first `size_bytes` count; its indexes lie beside it under the same name."""

    base_offset: int = wire(INT64)
    path: str = wire(name(limits.MAX_STRING_CHARS))
    size_bytes: int = wire(INT64)


@struct
class LeasePartitionResponse(PartitionAnswer):
    """The files of one partition on the server's machine, in order of their offsets."""

    directory: str | None = wire(note(), default=None)
    log_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    high_watermark: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    last_stable_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    segments: tuple[LeasedSegment, ...] = wire([LeasedSegment], default=(), max_count=limits.INT32_MAX)


@struct
class LeaseSegmentsResponse(ResponseMessage):
    """The lease, and one entry per partition asked for, in the same order."""

    api = "lease_segments"

    lease_id: str = wire(LEASE_ID)
    partitions: tuple[LeasePartitionResponse, ...] = wire([LeasePartitionResponse])
