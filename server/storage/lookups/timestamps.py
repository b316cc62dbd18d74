"""Offsets by time, and the largest timestamp (Kafka: UnifiedLog.fetchOffsetByTimestamp). Works on a snapshot only.

The answer is always what a scan of the readable log gives: the first *record* at or behind the log start offset and below the
high watermark (for a committed read, the last stable offset) with a timestamp >= the one asked for. The way there: the first
segment whose largest timestamp reaches it; in its time index the greatest entry <= it; in its offset index the greatest entry
<= that offset; from that position over batch headers to the first batch that can hold it, and into that batch. A segment whose
matches all lie below the log start offset is passed over.
"""

from __future__ import annotations

from ....protocol.errors import RequestError
from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import BatchHeader
from ....protocol.records.record import largest_timestamp_steps
from ....protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, NO_OFFSET, NO_TIMESTAMP, Isolation
from ..disk.diskops import Procedure
from ..log.log_snapshot import LogSnapshot
from ..segments.segment_view import SegmentView, TimestampAndOffset
from ..segments.unpacked_batches import dropped, unpacked

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
    raise ValueError(f"{snapshot.topic_partition}: timestamp {timestamp} is none of -1 latest, -2 earliest, -3 max timestamp")


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
