"""The call `split_points`: where a range of offsets can be cut into pieces of about the same size, for several readers."""

from __future__ import annotations

from ... import limits
from ..declaration import wire
from ..kinds import INT64, integer
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
