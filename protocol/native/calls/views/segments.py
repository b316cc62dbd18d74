"""The call `describe_segments`: the segments of partitions as they are now, and the offsets that say how far each log is
written, readable, decided, on the device and compacted."""

from __future__ import annotations

from .... import limits
from ....types import NO_OFFSET, NO_TIMESTAMP
from ...declaration import wire
from ...kinds import BOOL, INT32, INT64, INT64_OR_NONE, integer, note
from ...places import Partition, PartitionAnswer
from ...structs import RequestMessage, ResponseMessage, Struct, struct
from ..gaps import Gap


@struct
class DescribeSegmentsPartition(Partition):
    """A partition whose segments are asked for, from the one on that `from_offset` lies in."""

    from_offset: int = wire(INT64, default=0)


@struct
class DescribeSegmentsRequest(RequestMessage):
    """Partitions to be described, each succeeds or fails alone, with at most `max_segments` of them all."""

    api = "describe_segments"

    partitions: tuple[DescribeSegmentsPartition, ...] = wire([DescribeSegmentsPartition])
    max_segments: int = wire(integer(0, limits.MAX_DESCRIBED_SEGMENTS), default=limits.DEFAULT_DESCRIBED_SEGMENTS)


@struct
class DescribedSegment(Struct):
    """One segment: offsets from `base_offset` up to `next_offset`, exclusive. `least_timestamp` bounds the timestamps from
    below and `max_timestamp` is the largest, -1 where that is not known; `is_cleaned`: compaction has been through it. The rest
    are entries of its indexes."""

    base_offset: int = wire(INT64)
    next_offset: int = wire(INT64)
    size_bytes: int = wire(INT64)
    least_timestamp: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    max_timestamp: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    is_active: bool = wire(BOOL, default=False)
    is_cleaned: bool = wire(BOOL, default=False)
    offset_index_entries: int = wire(INT32, default=0)
    time_index_entries: int = wire(INT32, default=0)
    transaction_index_entries: int = wire(INT32, default=0)


@struct
class DescribeSegmentsPartitionResponse(PartitionAnswer):
    """A log and its segments, ascending. `left_out` segments come behind those that are told, `gaps_left_out` gaps as well."""

    log_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    log_end_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    high_watermark: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    last_stable_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    recovery_point: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    cleaned_up_to: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    size_bytes: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    segment_count: int = wire(INT32, default=0)
    waiting: str | None = wire(note(), default=None)
    segments: tuple[DescribedSegment, ...] = wire([DescribedSegment], default=())
    left_out: int = wire(INT32, default=0)
    gaps: tuple[Gap, ...] = wire([Gap], default=())
    gaps_left_out: int = wire(INT32, default=0)


@struct
class DescribeSegmentsResponse(ResponseMessage):
    """One entry per partition, in the same order."""

    api = "describe_segments"

    partitions: tuple[DescribeSegmentsPartitionResponse, ...] = wire([DescribeSegmentsPartitionResponse])
