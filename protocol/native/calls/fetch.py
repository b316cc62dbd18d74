"""The call `fetch`: record batches as they are stored, or their records, from an offset on.

Under `read_committed` (KIP-98) nothing at or past the last stable offset comes. With `batches` the answer lists the aborted
transactions among them for the client to leave out; with `records` the server has left their records out already.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from ... import limits
from ...types import NO_OFFSET, Bytes, Isolation, Record, TimeRange, range_of
from ..kinds import BOOL, INT32, INT64, INT64_OR_NONE, Kind, choice, unexpected
from ..structs import Partition, PartitionAnswer, RequestMessage, ResponseMessage, struct, wire
from .produce import read_headers

DEFAULT_MAX_WAIT_MS: Final = 0
DEFAULT_MIN_BYTES: Final = 1
DEFAULT_MAX_BYTES: Final = 50 * limits.MIB
DEFAULT_PARTITION_MAX_BYTES: Final = limits.MIB


class Format(enum.Enum):
    """The form of `records` in the response: whole batches as stored, or an array of records."""

    BATCHES = "batches"
    RECORDS = "records"


class Gaps(enum.Enum):
    """The response to a fetch inside a quarantined range: an error that names the range, or the records after it. The topic's
    gap.policy decides where the request does not."""

    REFUSE = "refuse"
    SKIP = "skip"


def _read_aborted(aborted: list[Any], key: str) -> tuple[tuple[int, int], ...]:
    for index, pair in enumerate(aborted):
        if type(pair) is not list or [type(part) for part in pair] != [int, int]:
            raise unexpected(f"{key}[{index}]", pair, "[producer_id: int, first_offset: int]")
    return tuple((producer_id, first_offset) for producer_id, first_offset in aborted)


def _read_records(values: Any, key: str) -> Bytes | tuple[Record, ...]:
    if type(values) is bytes:
        return values
    if type(values) is not list:
        raise unexpected(key, values, RECORDS.expected)
    return tuple(_read_record(value, f"{key}[{index}]") for index, value in enumerate(values))


def _read_record(value: Any, path: str) -> Record:
    match value:
        case [int(offset), int(timestamp), (bytes() | None) as key, (bytes() | None) as content, headers]:
            return Record(offset, timestamp, key, content, read_headers(headers))
        case _:
            raise unexpected(path, value, "[offset, timestamp_ms, key, value, headers]")


ISOLATION: Final = choice(Isolation)
ABORTED: Final = Kind(expected="array", test="type({v}) is list", read=_read_aborted)
RECORDS: Final = Kind(expected="bin or array of records", read=_read_records, write="list({v}) if type({v}) is tuple else {v}")


def end_of(times: TimeRange) -> int | None:
    """Return the end of a range as a request has it; None for an end above INT64_MAX."""
    return times.end if times.end <= limits.INT64_MAX else None


@struct
class FetchPartition(Partition):
    """The offset to read at in one partition, and the largest size; the response has at least one whole batch, if one exists.

    With one of the timestamps only records of that range are meant (ms, the end exclusive). Without an offset, or with -1, the
    range is read from the log start on; nothing else may lack it.
    """

    offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    max_bytes: int = wire(INT32, default=DEFAULT_PARTITION_MAX_BYTES)
    start_timestamp: int | None = wire(INT64, nullable=True, default=None, left_out=True)
    end_timestamp: int | None = wire(INT64, nullable=True, default=None, left_out=True)

    @property
    def times(self) -> TimeRange | None:
        """The range of times, None where there is none."""
        return range_of(self.start_timestamp, self.end_timestamp)


@struct
class FetchRequest(RequestMessage):
    """Reads partitions; with `max_wait_ms` the answer waits that long for `min_bytes` in all (a long poll)."""

    partitions: tuple[FetchPartition, ...] = wire([FetchPartition], last=True)
    max_wait_ms: int = wire(INT32, default=DEFAULT_MAX_WAIT_MS)
    min_bytes: int = wire(INT32, default=DEFAULT_MIN_BYTES)
    max_bytes: int = wire(INT32, default=DEFAULT_MAX_BYTES)
    isolation: Isolation = wire(ISOLATION, default=Isolation.READ_UNCOMMITTED)
    format: Format = wire(choice(Format), default=Format.BATCHES)
    gaps: Gaps | None = wire(choice(Gaps), nullable=True, default=None, left_out=True)


@struct
class FetchPartitionResponse(PartitionAnswer):
    """The records of one partition from the offset on.

    `records` is a buffer of batches, the last perhaps cut short by a limit, or a tuple of records; empty on error.
    `next_offset` is where to go on after plain records, which may all have been left out; -1 with batches, which tell, unless
    there are none up to the end of what can be read. Of a range of times it is always told, and `range_ended`, whether
    nothing of the range is left there; without a range that is None.
    `aborted` lists (producer id, first offset) of the aborted transactions that batches have a part in; empty under
    read_uncommitted and with plain records.
    """

    high_watermark: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    last_stable_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    log_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    aborted: tuple[tuple[int, int], ...] = wire(ABORTED, default=(), last=True)
    records: Bytes | tuple[Record, ...] = wire(RECORDS, default=b"", last=True)
    next_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET, later=True)
    range_ended: bool | None = wire(BOOL, nullable=True, default=None, left_out=True)


@struct
class FetchResponse(ResponseMessage):
    """The results of the requested partitions, in the same order."""

    partitions: tuple[FetchPartitionResponse, ...] = wire([FetchPartitionResponse])
