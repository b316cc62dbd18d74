"""Offsets by time, and the largest timestamp (Kafka: UnifiedLog.fetchOffsetByTimestamp). Works on a snapshot only.

The answer is always what a scan of the readable log gives: the first *record* at or behind the log start offset and below the
high watermark (for a committed read, the last stable offset) with a timestamp >= the one asked for. The way there: the first
segment whose largest timestamp reaches it; in its time index the greatest entry <= it; in its offset index the greatest entry
<= that offset; from that position over batch headers to the first batch that can hold it, and into that batch. A segment whose
matches all lie below the log start offset is passed over.

The short way of a lookup by time: a plain function for the many lookups of which all is at hand.

At hand are both indexes where they are mapped, and the first few KiB from the position that they give where those are in the
page cache. Most lookups end there, in a batch that is small and not compressed. It takes the steps of `timestamps` in their
order and answers what they would; on any doubt it answers None, and they are taken from the start.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from struct import Struct
from typing import Final

from ....protocol.errors import InvalidRecordError, RequestError
from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    BatchHeader,
)
from ....protocol.records.record import largest_timestamp_steps
from ....protocol.records.varint import decode_varint
from ....protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_OFFSET,
    NO_TIMESTAMP,
    Bytes,
    Isolation,
    TimestampAndOffset,
)
from ..disk.diskops import FileHandle, Procedure
from ..indexes.file_records import FIRST_READ_BYTES, REACH, UNTOLD_HEADERS
from ..log.log import LogSnapshot
from ..segments.segment_view import UNTOLD_RECORDS, SegmentView, dropped, unpacked

NO_SUCH_RECORD = TimestampAndOffset(NO_TIMESTAMP, NO_OFFSET)


def offset_for_timestamp(
    snapshot: LogSnapshot, timestamp: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Procedure[TimestampAndOffset]:
    """The answer to one question: a timestamp in ms, -1 latest, -2 earliest or -3 max timestamp.

    -1 and -2 are answered without a timestamp. (-1, -1) when no readable record matches.
    """
    if timestamp >= 0:
        return _first_at_or_after(snapshot, timestamp, isolation)
    if timestamp == LATEST_TIMESTAMP:
        return _known(TimestampAndOffset(NO_TIMESTAMP, snapshot.end_offset(isolation), snapshot.leader_epoch))
    if timestamp == EARLIEST_TIMESTAMP:
        return _known(TimestampAndOffset(NO_TIMESTAMP, snapshot.log_start_offset, snapshot.earliest_epoch))
    if timestamp == MAX_TIMESTAMP:
        return _largest(snapshot, isolation)
    raise ValueError(
        f"{snapshot.topic_partition}: timestamp {timestamp} is not one of -1 latest, -2 earliest, -3 max timestamp"
    )


def _known(answer: TimestampAndOffset) -> Procedure[TimestampAndOffset]:
    return answer
    yield


def _first_at_or_after(snapshot: LogSnapshot, timestamp: int, isolation: Isolation) -> Procedure[TimestampAndOffset]:
    end_offset = snapshot.end_offset(isolation)
    is_decided = end_offset == snapshot.high_watermark
    for slot in range(snapshot.slot_reaching(timestamp), len(snapshot)):
        view = snapshot.segment(slot)
        if view.max_timestamp < timestamp:
            end = 0
        elif is_decided:
            end = snapshot.readable_end(slot)
        else:
            end = yield from snapshot.end_position(slot, isolation)
        if end:
            found = yield from view.find_offset_by_timestamp(
                timestamp,
                snapshot.log_start_offset,
                max_bytes=snapshot.max_decompressed_bytes,
                end=end,
                check_crcs=snapshot.check_crcs,
            )
            if found is not None:
                return found if found.offset < end_offset else NO_SUCH_RECORD
    return NO_SUCH_RECORD


def _largest(snapshot: LogSnapshot, isolation: Isolation) -> Procedure[TimestampAndOffset]:
    """The first readable record with the largest timestamp of all readable records.

    A segment that is readable as a whole is known by its largest timestamp; of one that is cut by the log start offset or
    the end of what is readable the headers are read.
    """
    best, best_slot, best_end = NO_TIMESTAMP, -1, 0
    for slot in range(len(snapshot)):
        view = snapshot.segment(slot)
        end = (yield from snapshot.end_position(slot, isolation)) if view.max_timestamp > best else 0
        if not end:
            continue
        if end == view.size and view.base_offset >= snapshot.log_start_offset:
            largest = view.max_timestamp
        else:
            largest = yield from _largest_readable(snapshot, view, end)
        if largest > best:
            best, best_slot, best_end = largest, slot, end
    if best_slot < 0:
        return NO_SUCH_RECORD
    found = yield from snapshot.segment(best_slot).find_offset_by_timestamp(
        best,
        snapshot.log_start_offset,
        max_bytes=snapshot.max_decompressed_bytes,
        end=best_end,
        check_crcs=snapshot.check_crcs,
    )
    return NO_SUCH_RECORD if found is None else found


def _largest_readable(snapshot: LogSnapshot, view: SegmentView, end: int) -> Procedure[int]:
    start = snapshot.log_start_offset
    largest = NO_TIMESTAMP
    straddling: BatchHeader | None = None

    def see(header: BatchHeader, _: int) -> None:
        nonlocal largest, straddling
        if header.last_offset < start:
            return
        if header.base_offset < start:
            straddling = header
        elif header.max_timestamp > largest:
            largest = header.max_timestamp

    _, _, position = yield from view.position_of(start)
    area = view.bytes_from(position, end)
    yield from area.visit_headers(see)
    if straddling is not None and straddling.max_timestamp > largest:
        found = yield from area.find_reaching(start)
        assert found is not None
        batch = yield from area.read_batch(found)
        data = yield from unpacked(batch, found.header, snapshot.max_decompressed_bytes)
        try:
            for readable in largest_timestamp_steps(data, found.header, start):
                if readable is None:
                    yield None
                else:
                    largest = max(largest, readable)
        except RequestError:
            yield from dropped(data)
            raise
        yield from dropped(data)
    return largest


def check_timestamp(timestamp: int) -> None:
    """Refuse what no question is. Raises ValueError."""
    if not MAX_TIMESTAMP <= timestamp <= INT64_MAX:
        raise ValueError(f"timestamp {timestamp} is not in {MAX_TIMESTAMP}..{INT64_MAX}")


CachedBytes = Callable[[FileHandle, int, int], Bytes | None]
"""(file, position, size) -> the bytes, where they can be had without waiting for the device. Raises OSError."""

_PLAIN: Final = Struct(">12xi5xh4xq22xi")
"""partition_leader_epoch, attributes, base_timestamp, records_count: the fields of a header that its records need."""
_NOT_PLAIN: Final = COMPRESSION_MASK | LOG_APPEND_TIME_FLAG


def first_cached(snapshot: LogSnapshot, timestamp: int, cached_bytes: CachedBytes) -> TimestampAndOffset | None:
    """The first record below the high watermark with a timestamp >= `timestamp` (>= 0), NO_SUCH_RECORD for none, or None where
    that takes more than one look."""
    largest = snapshot.largest_timestamps
    slot = bisect_left(largest, timestamp) if largest else 0
    view = snapshot.active if slot == len(largest) else snapshot.inactive[slot]
    base_offset, log, end, max_timestamp, offsets, offset_entries, times, time_entries, _, _, _ = view
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
    if size < RECORD_BATCH_OVERHEAD or position < 0 or snapshot.check_crcs:
        return None
    data = cached_bytes(log, position, size if size < FIRST_READ_BYTES else FIRST_READ_BYTES)
    return None if data is None else _first_in(data, timestamp, start_offset, snapshot.high_watermark)


def _first_in(data: Bytes, timestamp: int, start_offset: int, end_offset: int) -> TimestampAndOffset | None:
    """The answer, if it lies in the first batch of `data` that can hold it."""
    at, size = 0, len(data)
    unpack = REACH.unpack_from
    for _ in range(UNTOLD_HEADERS):
        if at + RECORD_BATCH_OVERHEAD > size:
            return None
        base_offset, batch_length, magic, last_offset_delta, max_timestamp = unpack(data, at)
        stop = at + batch_length + LOG_OVERHEAD
        if magic != MAGIC or stop < at + RECORD_BATCH_OVERHEAD or stop > size:
            return None
        if max_timestamp < timestamp or base_offset + last_offset_delta < start_offset:
            at = stop
            continue
        leader_epoch, attributes, base_timestamp, records_count = _PLAIN.unpack_from(data, at)
        if attributes & _NOT_PLAIN:
            return None
        records = bytes(data[at + RECORD_BATCH_OVERHEAD : stop])
        count = records_count if records_count < UNTOLD_RECORDS else UNTOLD_RECORDS
        found = _first_record(records, count, timestamp - base_timestamp, start_offset - base_offset)
        if found is None:
            return None
        timestamp_delta, offset_delta = found
        if base_offset + offset_delta >= end_offset:
            return NO_SUCH_RECORD
        # What TimestampAndOffset(...) makes, without its Python-level call.
        return tuple.__new__(TimestampAndOffset, (base_timestamp + timestamp_delta, base_offset + offset_delta, leader_epoch))
    return None


def _first_record(data: bytes, count: int, least_timestamp_delta: int, least_offset_delta: int) -> tuple[int, int] | None:
    """(timestamp delta, offset delta) of the first record with at least these among the first `count`, as `first_record_steps`
    finds it. None where it finds none, at a record of 8 KiB or more, a time of more than 2 bytes, or a length that cannot
    be."""
    least_folded = least_timestamp_delta << 1 if least_timestamp_delta > 0 else 0
    position = 0
    try:
        for _ in range(count):
            if (length := data[position]) < 0x80:
                end = position + 1 + (length >> 1)
                position += 2
            elif (second := data[position + 1]) < 0x80:
                end = position - 62 + ((second << 7) + length >> 1)  # 2 bytes on, and without 0x80 of the first
                position += 3
            else:
                return None
            if (folded := data[position]) >= 0x80:
                position += 1
                if (second := data[position]) >= 0x80:
                    return None
                folded = folded & 0x7F | second << 7
            if length & 1 or end <= position:
                return None
            if folded >= least_folded and (timestamp_delta := folded >> 1 ^ -(folded & 1)) >= least_timestamp_delta:
                if (offset_delta := data[position + 1]) < 0x80:
                    offset_delta = offset_delta >> 1 ^ -(offset_delta & 1)
                else:
                    offset_delta, _ = decode_varint(data, position + 1)
                if offset_delta >= least_offset_delta:
                    return timestamp_delta, offset_delta
            position = end
    except (IndexError, InvalidRecordError):
        return None
    return None
