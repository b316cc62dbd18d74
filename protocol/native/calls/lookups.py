"""The calls `offsets_for_times`, which offset a time has, and `explain`, the walk that leads to an answer; and how a time to
look up is written."""

from __future__ import annotations

from typing import Any, Final

from ... import limits
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
from ..declaration import wire
from ..fields import unexpected
from ..kinds import BOOL, INT64, INT64_OR_NONE, MAP, Kind, integer
from ..places import Partition, PartitionAnswer
from ..structs import RequestMessage, ResponseMessage, struct
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
    """One question: the first record of this partition with a timestamp at or after `timestamp` (ms, or -1, -2, -3)."""

    timestamp: int = wire(TIMESTAMP)


@struct
class OffsetsForTimesRequest(RequestMessage):
    """Timestamp lookups, each answered alone."""

    api = "offsets_for_times"

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
    """One entry per partition asked for, in the same order."""

    api = "offsets_for_times"

    partitions: tuple[OffsetsForTimesPartitionResponse, ...] = wire([OffsetsForTimesPartitionResponse])


@struct
class ExplainPartition(Partition):
    """What to look up in one partition: an offset, a timestamp or a range of times; the others are None."""

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

    api = "explain"

    partitions: tuple[ExplainPartition, ...] = wire([ExplainPartition])
    with_segments: bool = wire(BOOL, default=False)


@struct
class ExplainPartitionResponse(PartitionAnswer):
    """The walk as data, for people and their tools; its keys stand in docs/native-protocol.md. None on error."""

    walk: dict[str, Any] | None = wire(MAP, nullable=True, default=None)


@struct
class ExplainResponse(ResponseMessage):
    """One entry per partition asked for, in the same order."""

    api = "explain"

    partitions: tuple[ExplainPartitionResponse, ...] = wire([ExplainPartitionResponse])
