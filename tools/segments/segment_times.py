"""The first offset with a timestamp at or above a given one, found in segment files (Kafka: LogSegment.findOffsetByTimestamp).

Time index -> offset index -> batch headers -> the one batch. Per segment: the greatest time index entry below the timestamp
says up to which offset no record can match; from the batch there the headers are walked to the first whose largest timestamp
reaches it, and that batch's records decide (not the order of the records: it is not trusted). As the broker answers it,
control batches and aborted records count. A closed segment is passed over when the last entry of its complete time index lies
below.
"""

from __future__ import annotations

from typing import Final

from ...protocol.errors import RequestError
from ...protocol.limits import KIB
from ...protocol.records.batch import BatchHeader
from ...protocol.records.record import iter_records
from .segment_bytes import SegmentBytes
from .segment_damage import DamageCounts, DamagedSegmentError, ReadMode, walk_headers
from .segment_index import OffsetIndex, read_offset_index, read_offset_tail, read_time_index, read_time_tail
from .segment_log import PartitionLog, SegmentFile, position_at_or_below

_SMALL_BYTES: Final = 64 * KIB
"""Of a segment whose headers are walked without a thought."""


def first_offset_at(log: PartitionLog, timestamp: int, mode: ReadMode = ReadMode.PERMISSIVE) -> int | None:
    """The first offset >= the log start whose record has a timestamp >= `timestamp` (ms); None when there is none.

    Damage is passed over, or raises DamagedSegmentError with `mode` FAILFAST. Raises OSError.
    """
    counts = DamageCounts(mode)
    for segment in log.segments_within(log.log_start_offset, log.end_offset):
        offset = _first_in(log, segment, timestamp, counts) if segment.size_bytes else None
        if offset is not None:
            return offset if offset < log.end_offset else None
    return None


def _first_in(log: PartitionLog, segment: SegmentFile, timestamp: int, counts: DamageCounts) -> int | None:
    if _is_closed_below(log, segment, timestamp):
        return None
    times = read_time_index(segment.path, segment.base_offset).below(log.end_offset)
    index = read_offset_index(segment.path, segment.base_offset, segment.size_bytes)
    slot = times.slot_below(timestamp)
    searched_from = segment.base_offset
    with SegmentBytes(segment.path, segment.size_bytes) as file:
        if slot >= 0 and _is_true(file, segment, index, int(times.timestamps[slot]), int(times.offsets[slot])):
            if _is_closed(log, segment) and slot == len(times) - 1:
                return None
            searched_from = int(times.offsets[slot])
        position, next_offset = position_at_or_below(file, segment, index, max(log.log_start_offset, searched_from))
        for header, at in walk_headers(file, segment.part, position, next_offset, counts):
            if header.next_offset <= log.log_start_offset or header.max_timestamp < timestamp or not header.records_count:
                continue
            offset = _first_of_batch(file, header, at, log.log_start_offset, timestamp, counts.mode)
            if offset is not None:
                return offset
    return None


def _is_closed(log: PartitionLog, segment: SegmentFile) -> bool:
    """Return whether the last entry of the segment's time index has the largest timestamp of the segment."""
    return not segment.is_last and segment.end_offset <= log.trusted_offset


def _is_closed_below(log: PartitionLog, segment: SegmentFile, timestamp: int) -> bool:
    """Return whether the last index entries prove that all timestamps are below `timestamp`. They do where time ascends.

    Neither index has to be read whole then.
    """
    if not _is_closed(log, segment):
        return False
    times = read_time_tail(segment.path, segment.base_offset)
    if not len(times) or times.timestamps[-1] >= timestamp:
        return False
    index = read_offset_tail(segment.path, segment.base_offset, segment.size_bytes)
    if segment.size_bytes > _SMALL_BYTES and (not len(index) or index.offsets[-1] > times.offsets[-1]):
        return False
    with SegmentBytes(segment.path, segment.size_bytes) as file:
        return _is_true(file, segment, index, int(times.timestamps[-1]), int(times.offsets[-1]))


def _is_true(file: SegmentBytes, segment: SegmentFile, index: OffsetIndex, timestamp: int, offset: int) -> bool:
    """Return whether the batch with the offset of a time index entry has its timestamp as the largest one, as it must."""
    position, next_offset = position_at_or_below(file, segment, index, offset)
    for header, _ in walk_headers(file, segment.part, position, next_offset, DamageCounts(ReadMode.DROPMALFORMED)):
        if header.next_offset > offset:
            return header.base_offset <= offset and header.max_timestamp == timestamp
    return False


def _first_of_batch(
    file: SegmentBytes, header: BatchHeader, position: int, low: int, timestamp: int, mode: ReadMode
) -> int | None:
    try:
        for record in iter_records(file.batch_at(position, header), header):
            if record.offset >= low and record.timestamp >= timestamp:
                return record.offset
    except RequestError as exc:
        if mode is ReadMode.FAILFAST:
            raise DamagedSegmentError(file.path, position, exc.message) from exc
    return None
