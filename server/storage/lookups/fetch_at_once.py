"""The short way of a fetch: a plain function for the many reads of which all is at hand.

At hand are the offset index where it is mapped, and the bytes from the position that it gives where those are in the page
cache. It takes the steps of `fetch` in their order and answers what they would; on any doubt it answers None, and they are
taken from the start. Of what is small, one read has the way to the batch and the answer.
"""

from __future__ import annotations

from typing import Final

from ....protocol.limits import KIB
from ....protocol.records.batch import LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD
from ....protocol.types import Bytes, Isolation
from ..indexes.file_records import FIRST_READ_BYTES, REACH, UNTOLD_HEADERS
from ..log.log_snapshot import LogSnapshot
from ..segments.segment_view import SegmentView
from .at_once import CachedBytes
from .fetch import FetchedRecords

READ_WITH_ANSWER_BYTES: Final = 64 * KIB
"""So much is read at once for the way to the batch and the answer, which is then copied, in 3 us at most."""
FEW_READS: Final = 3
"""Before the answer's. Batches above FIRST_READ_BYTES take two: an index entry leads to the batch before."""


def fetch_at_once(
    snapshot: LogSnapshot,
    offset: int,
    max_bytes: int,
    cached_bytes: CachedBytes,
    *,
    min_one_batch: bool,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> FetchedRecords | None:
    """What `fetch_batches` answers, or None where that takes more than one look. Raises what `cached_bytes` raises."""
    high_watermark = snapshot.high_watermark
    is_committed = isolation is Isolation.READ_COMMITTED
    if snapshot.check_crcs or (is_committed and snapshot.last_stable_offset != high_watermark):
        return None
    if snapshot.gaps and offset < snapshot.gaps[-1].end_offset:
        return None
    if not snapshot.log_start_offset <= offset < high_watermark:
        is_at_end = offset == high_watermark
        return _fetched(snapshot, b"", is_committed=is_committed, ends_segment=False) if is_at_end else None
    slot = snapshot.slot_of(offset)
    if slot < 0 or max_bytes <= 0 or (is_committed and _has_aborted(snapshot, slot)):
        return None
    view, end = snapshot.segment(slot), snapshot.readable_end(slot)
    piece = max_bytes + FIRST_READ_BYTES
    found = _find(view, offset, end, piece if piece <= READ_WITH_ANSWER_BYTES else FIRST_READ_BYTES, cached_bytes)
    if found is None:
        return None
    position, size, data, at = found
    size = min(end - position, max(max_bytes, size) if min_one_batch else max_bytes)
    if at + size <= len(data):
        records: Bytes | None = bytes(memoryview(data)[at : at + size])
    else:
        records = cached_bytes(view.log, position, size)
    if records is None:
        return None
    return _fetched(snapshot, records, is_committed=is_committed, ends_segment=slot + 1 < len(snapshot))


def _find(
    view: SegmentView, offset: int, end: int, piece: int, cached_bytes: CachedBytes
) -> tuple[int, int, Bytes, int] | None:
    """Position and size of the first batch before `end` with a last offset of at least this, the bytes that were read last, by
    `piece`, and where in them it begins."""
    indexed = start = 0
    if entries := view.offset_entries:
        shown = view.offset_index.shown(entries)
        if shown is None:
            return None
        _, indexed, start = view.offset_index.lookup_in(shown, entries, offset)
        if start < 0:
            return None
    position = start
    for _ in range(FEW_READS):
        left = end - position
        data = cached_bytes(view.log, position, left if left < piece else piece) if left >= RECORD_BATCH_OVERHEAD else None
        if data is None:
            return None
        at, size, base_offset = _first_reaching(data, offset)
        if not size:
            position += at
            continue
        leads_too_far = position == start and start and not at and base_offset > indexed
        is_doubtful = size < 0 or leads_too_far or position + at + size > end
        return None if is_doubtful else (position + at, size, data, at)
    return None


def _has_aborted(snapshot: LogSnapshot, slot: int) -> bool:
    return any(snapshot.segment(each).transaction_entries for each in range(slot, len(snapshot)))


def _first_reaching(data: Bytes, offset: int) -> tuple[int, int, int]:
    """Where in `data` the first batch is with a last offset of at least this, its size and its base offset. The size is 0 where
    it lies behind `data`, -1 where that is not known after a few headers."""
    at, last = 0, len(data) - RECORD_BATCH_OVERHEAD
    unpack = REACH.unpack_from
    for _ in range(UNTOLD_HEADERS):
        if at > last:
            return at, 0, 0
        base_offset, size, magic, last_offset_delta, _ = unpack(data, at)
        size += LOG_OVERHEAD
        if size < RECORD_BATCH_OVERHEAD or magic != MAGIC:
            break
        if base_offset + last_offset_delta >= offset:
            return at, size, base_offset
        at += size
    return at, -1, 0


def _fetched(snapshot: LogSnapshot, records: Bytes, *, is_committed: bool, ends_segment: bool) -> FetchedRecords:
    return FetchedRecords(
        records,
        snapshot.high_watermark,
        snapshot.log_start_offset,
        snapshot.last_stable_offset,
        ends_segment,
        () if is_committed else None,
    )
