"""Indexes of a segment that is not scanned: taken over from their files, after a look at what they say of the log's end.

An existing file counts as full. What it says is checked where that costs one read: the last entry of the offset index leads to
a batch, from which headers lead exactly to the end of the log, below the next segment. A contradiction is a CorruptIndexError
(or CorruptRecordError where no batch starts): the caller scans the segment.
"""

from __future__ import annotations

from typing import NamedTuple

from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_TIMESTAMP
from ..disk.diskops import Procedure
from ..errors import CorruptIndexError
from ..indexes.offset_index import OffsetIndex
from ..indexes.time_index import TimeIndex
from ..segments.segment import LogSegment


class Ends(NamedTuple):
    """What the first and the last batch of a segment say."""

    first_timestamp: int | None
    """The largest timestamp of the first batch; None when it was not looked at, or is not there."""
    next_offset: int


def load_indexes(segment: LogSegment, end_offset: int | None) -> Procedure[Ends]:
    """Take the indexes over; answers what was seen of the segment's batches. Offsets lie below `end_offset`."""
    size = segment.config.segment_index_bytes
    offset_index = yield from OffsetIndex.load(segment.offset_index.path, segment.base_offset, size)
    time_index = yield from TimeIndex.load(segment.time_index.path, segment.base_offset, size)
    yield from segment.transaction_index.load()
    if offset_index is None or time_index is None:
        raise CorruptIndexError(f"{segment.log.path}: an index file is missing")
    ends = yield from _read_ends(segment, offset_index)
    next_offset = ends.next_offset
    if segment.size and not time_index.entries and not (yield from _has_no_timestamps(segment)):
        raise CorruptIndexError(f"{time_index.path} is empty and the log has timestamps")
    limit = segment.base_offset + INT32_MAX + 1
    limit = limit if end_offset is None else min(limit, end_offset)
    if next_offset > limit:
        raise CorruptIndexError(f"{segment.log.path} ends before offset {next_offset}, which is behind {limit}, its limit")
    segment.offset_index, segment.time_index = offset_index, time_index
    segment.max_timestamp, segment.offset_of_max_timestamp = time_index.last_entry
    return ends


def _read_ends(segment: LogSegment, index: OffsetIndex) -> Procedure[Ends]:
    """The offset behind the last batch, over headers from the last index entry on."""
    offset, position = (index.tail.key, index.tail.value) if index.entries else (None, 0)
    next_offset, first_timestamp = segment.base_offset, None
    stop = position
    is_first = True

    def see(header: BatchHeader, at: int) -> None:
        nonlocal next_offset, is_first, first_timestamp
        if at == 0:
            first_timestamp = header.max_timestamp
        if is_first and offset is not None and header.base_offset > offset:
            return
        is_first = False
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptIndexError(
                f"{segment.log.path}: offset {header.base_offset} follows {next_offset - 1}, so it or an index is damaged"
            )
        next_offset = header.next_offset

    if position < segment.size:
        stop = yield from segment.view().bytes_from(position).visit_headers(see)
    if stop != segment.size or (is_first and segment.size):
        raise CorruptIndexError(
            f"{index.path}: the last entry says that offset {offset} is found from position {position} on, where no batch "
            f"starts from which headers lead to the end of a log of {segment.size} bytes"
        )
    return Ends(first_timestamp, next_offset)


def _has_no_timestamps(segment: LogSegment) -> Procedure[bool]:
    return (yield from segment.records.find_batch(lambda header: header.max_timestamp != NO_TIMESTAMP)) is None
