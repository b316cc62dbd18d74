"""The calls that show where records are, and how a time to look up is written.

`offsets_for_times` finds the offset of a time, `explain` shows the steps of that lookup. `split_points` says where a range of
offsets can be cut into pieces of about the same size; `lease_segments` names the current segment files of partitions, kept for
some time, for readers of files. `describe_segments` shows the segments, and how far each log is written, readable, decided, on
the device and compacted. `list_gaps` lists offsets lost to corruption; after `accept_gaps` readers skip them whatever
`gap.policy` is.
"""

from __future__ import annotations

from typing import Any, Final

from ... import limits
from ...errors import RequestError
from ...types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_OFFSET,
    NO_PARTITION_LEADER_EPOCH,
    NO_TIMESTAMP,
    Isolation,
    TimeRange,
    range_of,
)
from ..kinds import BOOL, ERROR, INT32, INT64, INT64_OR_NONE, MAP, TOPICS, Kind, integer, name, note, unexpected
from ..structs import Partition, PartitionAnswer, RequestMessage, ResponseMessage, Struct, TopicAnswer, struct, wire
from .fetch import ISOLATION

_SPECIAL_TIMESTAMPS: Final = {
    "latest": LATEST_TIMESTAMP,
    "earliest": EARLIEST_TIMESTAMP,
    "max_timestamp": MAX_TIMESTAMP,
}


def _read_timestamp(value: Any, key: str) -> int:
    if type(value) is int and MAX_TIMESTAMP <= value <= limits.INT64_MAX:
        return value
    if type(value) is str and value in _SPECIAL_TIMESTAMPS:
        return _SPECIAL_TIMESTAMPS[value]
    raise unexpected(key, value, TIMESTAMP.expected)


TIMESTAMP: Final = Kind(
    expected=f"int from {MAX_TIMESTAMP} to {limits.INT64_MAX} or one of {', '.join(_SPECIAL_TIMESTAMPS)}", read=_read_timestamp
)
"""To look up, in ms; the special ones by number or by name."""
LEADER_EPOCH: Final = integer(NO_PARTITION_LEADER_EPOCH, limits.INT32_MAX)


@struct
class OffsetsForTimesPartition(Partition):
    """A lookup: the first record of this partition with a timestamp at or after `timestamp` (ms, or -1, -2, -3)."""

    timestamp: int = wire(TIMESTAMP)


@struct
class OffsetsForTimesRequest(RequestMessage):
    """Timestamp lookups, each answered alone."""

    partitions: tuple[OffsetsForTimesPartition, ...] = wire([OffsetsForTimesPartition], last=True)
    isolation: Isolation = wire(ISOLATION, default=Isolation.READ_UNCOMMITTED)


@struct
class OffsetsForTimesPartitionResponse(PartitionAnswer):
    """The record found; offset -1 and timestamp -1 when there is none."""

    offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    timestamp: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    leader_epoch: int = wire(LEADER_EPOCH, default=NO_PARTITION_LEADER_EPOCH)


@struct
class OffsetsForTimesResponse(ResponseMessage):
    """The results of the requested partitions, in the same order."""

    partitions: tuple[OffsetsForTimesPartitionResponse, ...] = wire([OffsetsForTimesPartitionResponse])


@struct
class ExplainPartition(Partition):
    """The lookup in one partition: an offset, a timestamp or a range of times; the others are None."""

    offset: int | None = wire(INT64, alternative=True, default=None)
    timestamp: int | None = wire(TIMESTAMP, alternative=True, default=None)
    start_timestamp: int | None = wire(INT64, alternative=True, default=None)
    end_timestamp: int | None = wire(INT64, nullable=True, default=None, left_out=True)

    @property
    def times(self) -> TimeRange | None:
        """The range, None where there is none."""
        return range_of(self.start_timestamp, self.end_timestamp)


@struct
class ExplainRequest(RequestMessage):
    """Lookups to be explained, each answered alone; `with_segments` asks for all segments of each log, too."""

    partitions: tuple[ExplainPartition, ...] = wire([ExplainPartition])
    with_segments: bool = wire(BOOL, default=False)


@struct
class ExplainPartitionResponse(PartitionAnswer):
    """The walk as data, for people and their tools; its keys stand in docs/native-protocol.md. None on error."""

    walk: dict[str, Any] | None = wire(MAP, nullable=True, default=None)


@struct
class ExplainResponse(ResponseMessage):
    """The results of the requested partitions, in the same order."""

    partitions: tuple[ExplainPartitionResponse, ...] = wire([ExplainPartitionResponse])


@struct
class SplitPointsPartition(Partition):
    """Cut the offsets from `start` to `end`, exclusive, into pieces of about `target_bytes`."""

    start: int = wire(INT64)
    end: int = wire(INT64)
    target_bytes: int = wire(integer(1, limits.INT64_MAX))


@struct
class SplitPointsRequest(RequestMessage):
    """Ranges to be cut, each answered alone."""

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
    """The results of the requested partitions, in the same order."""

    partitions: tuple[SplitPointsPartitionResponse, ...] = wire([SplitPointsPartitionResponse])


LEASE_ID: Final = name(limits.MAX_LEASE_ID_CHARS)


@struct
class LeaseSegmentsRequest(RequestMessage):
    """Keep the files of these partitions for `lease_ms`. With `lease_id` the lease made before goes on from now for `lease_ms`,
    with the files that it has: 0 ends it."""

    partitions: tuple[Partition, ...] = wire([Partition], last=True)
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

    lease_id: str = wire(LEASE_ID)
    partitions: tuple[LeasePartitionResponse, ...] = wire([LeasePartitionResponse])


NOT_KNOWN: Final = -1
"""As a size or a time."""


@struct
class ListGapsRequest(RequestMessage):
    """The topics whose gaps are asked for; None: all."""

    topics: tuple[str, ...] | None = wire(TOPICS, nullable=True, default=None)


@struct
class Gap(Struct):
    """Offsets that are missing, the end exclusive. `file` in the partition's directory has what was found there, None: nothing
    has. `found_ms`, `accepted_ms`: when, in ms since the epoch, -1 where it is not known or was not done."""

    start_offset: int = wire(INT64)
    end_offset: int = wire(INT64)
    file: str | None = wire(note(), default=None)
    size_bytes: int = wire(INT64_OR_NONE, default=NOT_KNOWN)
    found_ms: int = wire(INT64_OR_NONE, default=NOT_KNOWN)
    accepted_ms: int = wire(INT64_OR_NONE, default=NOT_KNOWN)


@struct
class PartitionGaps(Struct):
    """The gaps of one partition, ascending. With an error, that of a partition that is offline, they are not known."""

    partition: int = wire(INT32)
    error: RequestError | None = wire(ERROR, default=None)
    gaps: tuple[Gap, ...] = wire([Gap], default=())


@struct
class TopicGaps(TopicAnswer):
    """The partitions of one topic that have gaps, or of which that is not known."""

    partitions: tuple[PartitionGaps, ...] = wire([PartitionGaps], default=())


@struct
class ListGapsResponse(ResponseMessage):
    """The requested topics in their order; a request for all gets the topics whose partitions have gaps or are offline."""

    topics: tuple[TopicGaps, ...] = wire([TopicGaps])


@struct
class AcceptGapsPartition(Partition):
    """The gap of a partition that starts at `start_offset`."""

    start_offset: int = wire(INT64)


@struct
class AcceptGapsRequest(RequestMessage):
    """Gaps to be accepted, each succeeds or fails alone."""

    partitions: tuple[AcceptGapsPartition, ...] = wire([AcceptGapsPartition])


@struct
class AcceptGapsPartitionResponse(PartitionAnswer):
    """Up to which offset, exclusive, readers pass over it from now on."""

    end_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)


@struct
class AcceptGapsResponse(ResponseMessage):
    """The results of the gaps, in the same order."""

    partitions: tuple[AcceptGapsPartitionResponse, ...] = wire([AcceptGapsPartitionResponse])


@struct
class DescribeSegmentsPartition(Partition):
    """A partition whose segments are asked for, from the one on that `from_offset` lies in."""

    from_offset: int = wire(INT64, default=0)


@struct
class DescribeSegmentsRequest(RequestMessage):
    """Partitions to be described, each succeeds or fails alone, with at most `max_segments` of them all."""

    partitions: tuple[DescribeSegmentsPartition, ...] = wire([DescribeSegmentsPartition])
    max_segments: int = wire(integer(0, limits.MAX_DESCRIBED_SEGMENTS), default=limits.DEFAULT_DESCRIBED_SEGMENTS)


@struct
class DescribedSegment(Struct):
    """A segment: offsets from `base_offset` up to `next_offset`, exclusive. `least_timestamp` bounds the timestamps from
    below and `max_timestamp` is the largest, -1 where it is unknown. `is_cleaned`: compaction has been through it. The rest
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
    """The results of the partitions, in the same order."""

    partitions: tuple[DescribeSegmentsPartitionResponse, ...] = wire([DescribeSegmentsPartitionResponse])
