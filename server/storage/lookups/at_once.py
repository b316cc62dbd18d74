"""The short way of a lookup by time: a plain function for the many lookups of which all is at hand.

At hand are both indexes where they are mapped, and the first few KiB from the position that they give where those are in the
page cache. Most lookups end there, in a batch that is small and not compressed. It takes the steps of `timestamps` in their
order and answers what they would; on any doubt it answers None, and they are taken from the start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from ....protocol.records.batch import COMPRESSION_MASK, LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD, parse_header
from ....protocol.records.record import first_record_steps
from ....protocol.types import Bytes
from ..disk.diskops import FileHandle
from ..indexes.file_records import FIRST_READ_BYTES, REACH
from ..log.log_snapshot import LogSnapshot
from ..segments.segment_view import UNTOLD_RECORDS, TimestampAndOffset
from .timestamps import NO_SUCH_RECORD

CachedBytes = Callable[[FileHandle, int, int], Bytes | None]
"""(file, position, size) -> the bytes, where they can be had without waiting for the device. Raises OSError."""


def first_at_once(snapshot: LogSnapshot, timestamp: int, cached_bytes: CachedBytes) -> TimestampAndOffset | None:
    """The first record below the high watermark with a timestamp >= `timestamp` (>= 0), NO_SUCH_RECORD for none, or None where
    that takes more than one look. Raises what the records' walk raises."""
    largest = snapshot.largest_timestamps
    slot = bisect_left(largest, timestamp) if largest else 0
    view = snapshot.active if slot == len(largest) else snapshot.inactive[slot]
    base_offset, log, end, max_timestamp, offsets, offset_entries, times, time_entries, _, _ = view
    if max_timestamp < timestamp:
        return NO_SUCH_RECORD
    if base_offset >= snapshot.readable_segment:
        end = snapshot.readable_position if base_offset == snapshot.readable_segment else 0
    start_offset = snapshot.log_start_offset
    indexed, position = base_offset, 0
    if time_entries:
        if (shown := times.shown(time_entries)) is None:
            return None
        _, _, indexed = times.lookup_in(shown, time_entries, timestamp)
    if offset_entries:
        if (shown := offsets.shown(offset_entries)) is None:
            return None
        _, _, position = offsets.lookup_in(shown, offset_entries, indexed if indexed > start_offset else start_offset)
    size = end - position
    if size < RECORD_BATCH_OVERHEAD or snapshot.check_crcs:
        return None
    data = cached_bytes(log, position, size if size < FIRST_READ_BYTES else FIRST_READ_BYTES)
    return None if data is None else _first_in(data, timestamp, start_offset, snapshot.high_watermark)


def _first_in(data: Bytes, timestamp: int, start_offset: int, end_offset: int) -> TimestampAndOffset | None:
    """The answer, if it lies in the first batch of `data` that can hold it."""
    at, last = 0, len(data) - RECORD_BATCH_OVERHEAD
    unpack = REACH.unpack_from
    while at <= last:
        first_offset, size, magic, last_offset_delta, max_timestamp = unpack(data, at)
        stop = at + size + LOG_OVERHEAD
        if magic != MAGIC or stop < at + RECORD_BATCH_OVERHEAD or stop > len(data):
            return None
        if max_timestamp < timestamp or first_offset + last_offset_delta < start_offset:
            at = stop
            continue
        header = parse_header(data, at)
        if header.attributes & COMPRESSION_MASK or not 0 < header.records_count <= UNTOLD_RECORDS:
            return None
        records = bytes(data[at + RECORD_BATCH_OVERHEAD : stop])
        for found in first_record_steps(records, header, timestamp=timestamp, min_offset=start_offset):
            if found is None or found.offset < 0:
                return None
            offset, found_timestamp = found
            if offset >= end_offset:
                return NO_SUCH_RECORD
            return TimestampAndOffset(found_timestamp, offset, header.partition_leader_epoch)
    return None
