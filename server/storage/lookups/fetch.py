"""Reading record batches from an offset (Kafka: LocalLog.read, LogSegment.read). Works on a snapshot only.

The answer is bytes as they lie in the file: whole batches from the one that holds the offset, the last of which may be cut.
It ends with its segment; the next read goes on in the next one. A committed read ends at the last stable offset and names the
aborted transactions whose records are among the bytes: leaving those out is the reader's work, as in Kafka.

The short way of a fetch: a plain function for the many reads of which all is at hand.

At hand are the offset index where it is mapped, and the bytes from the position that it gives where those are in the page
cache. It takes the steps of `fetch` in their order and answers what they would; on any doubt it answers None, and they are
taken from the start. Of what is small, one read has the way to the batch and the answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.errors import CorruptRecordError, OffsetOutOfRangeError
from ....protocol.limits import KIB
from ....protocol.records.batch import LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD
from ....protocol.types import NO_OFFSET, Bytes, Isolation
from ..disk.diskops import Procedure, Read
from ..errors import OffsetInGapError
from ..indexes.file_records import FIRST_READ_BYTES, REACH, UNTOLD_HEADERS, FoundBatch
from ..indexes.transaction_index import AbortedTxn
from ..log.gaps import NO_FILE, OffsetGap, gap_at, next_gap
from ..log.log import LogSnapshot
from ..segments.segment_view import SegmentView
from .fetch_check import HiddenBatchError, behind_damage, check_end, checked_prefix, confirmed_at
from .timestamps import CachedBytes


@attrs.frozen
class FetchedRecords:
    """`records` starts with the batch that holds the asked offset; empty when nothing readable is there."""

    records: Bytes
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    ends_segment: bool = False
    """The read ends with its segment and the log goes on: waiting would not make it longer."""
    aborted: tuple[AbortedTxn, ...] | None = None
    """Of a committed read: the aborted transactions that reach into the bytes, by the offsets of their markers."""
    passed: tuple[OffsetGap, ...] = ()
    """What damage has taken out between the asked offset and the last of the batches."""
    next_offset: int = NO_OFFSET
    """Of a range of times: where the next page goes on."""
    ends_range: bool = False
    """And whether there is none."""


def check_fetch_offset(snapshot: LogSnapshot, offset: int) -> None:
    """Raises OffsetOutOfRangeError outside of log start offset to log end offset, both possible."""
    if not snapshot.log_start_offset <= offset <= snapshot.log_end_offset:
        raise OffsetOutOfRangeError(
            f"{snapshot.topic_partition}: offset {offset} is not in {snapshot.log_start_offset} to "
            f"{snapshot.log_end_offset}. Seek to the earliest or the latest offset"
        )


def fetch_batches(
    snapshot: LogSnapshot,
    offset: int,
    max_bytes: int,
    *,
    min_one_batch: bool,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    skip_gaps: bool | None = None,
) -> Procedure[FetchedRecords]:
    """Readable batches from the one that holds `offset`, up to `max_bytes` of them.

    With `min_one_batch` the first batch comes whole even when it is larger. `skip_gaps`: a read goes on behind offsets whose
    records were damaged and taken out, and such an offset is read as the next one that is there; False: it ends before them,
    and the next one is refused; None: the topic's gap.policy says which, and what somebody has accepted is passed over. Raises
    OffsetOutOfRangeError, OffsetInGapError, ValueError for a negative `max_bytes`, CorruptRecordError when the file holds
    something else than batches (or damaged ones, when the topic has fetch.check.crcs).
    """
    locate = partial(_locate, snapshot, offset, max_bytes, isolation, min_one_batch=min_one_batch, skip_gaps=skip_gaps)
    data: Bytes | None = None
    if snapshot.check_crcs:
        try:
            located, data = yield from _read_checked(snapshot, offset, isolation, locate)
        except CorruptRecordError:
            confirmed = yield from _read_confirmed(snapshot, offset, isolation, None if min_one_batch else max_bytes)
            if confirmed is None:
                raise
            located, data = confirmed
    else:
        located = yield from locate()
        data = yield from _read(snapshot, located)
    committed = isolation is Isolation.READ_COMMITTED
    if data is None:
        return fetched(snapshot, b"", aborted=() if committed else None)
    aborted = (yield from _aborted_among(snapshot, located, offset)) if committed else None
    passed = (yield from _passed(snapshot, located, offset, len(data))) if snapshot.gaps else ()
    return fetched(snapshot, data, ends_segment=located.slot + 1 < len(snapshot), aborted=aborted, passed=passed)


def fetched(snapshot: LogSnapshot, records: Bytes, **more: Any) -> FetchedRecords:
    """The answer of a read. `more`: the rest of it."""
    bounds = snapshot.high_watermark, snapshot.log_start_offset, snapshot.last_stable_offset
    return FetchedRecords(records, *bounds, **more)


def _read(snapshot: LogSnapshot, located: _Located) -> Procedure[Bytes | None]:
    """The bytes of what was located; None for nothing."""
    first, size = located.first, located.size
    if first is None or not size:
        return None
    if first.data is not None and size == first.header.size_bytes:
        return first.data
    data: Bytes = yield Read(snapshot.segment(located.slot).log, first.position, size)
    return data


def _read_checked(
    snapshot: LogSnapshot, offset: int, isolation: Isolation, locate: Callable[..., Procedure[_Located]]
) -> Procedure[tuple[_Located, Bytes | None]]:
    """Return the located range and its bytes, None for no bytes. The range may follow a damaged batch that hides it from
    `_locate`."""
    start: tuple[int, int] | None = None
    behind: tuple[int, int] | None = None
    while True:
        try:
            located = yield from locate(start=start)
            yield from _check_passed_over(snapshot, offset, located, isolation, behind)
            data = yield from _read(snapshot, located)
            if data is None or located.first is None:
                return located, None
            data = yield from checked_prefix(
                data,
                snapshot.segment(located.slot),
                located.first.position,
                offset,
                snapshot.end_offset_of(located.slot),
                snapshot.leader_epochs,
                looked_from=_looked_from(behind, located.slot),
            )
            return located, data
        except HiddenBatchError as exc:
            start = located.slot, exc.position
        except CorruptRecordError:
            slot = max(0, snapshot.slot_of(offset))
            position = None if behind else (yield from behind_damage(snapshot.segment(slot), offset))
            if position is None:
                raise
            start = behind = slot, position


def _read_confirmed(
    snapshot: LogSnapshot, offset: int, isolation: Isolation, most_bytes: int | None
) -> Procedure[tuple[_Located, Bytes | None] | None]:
    """The one batch that holds the offset, among damaged ones; None where it may be one of those."""
    slot = max(0, snapshot.slot_of(offset))
    view = snapshot.segment(slot)
    found = yield from confirmed_at(view, offset, snapshot.end_offset_of(slot), snapshot.leader_epochs)
    if found is None or found.position >= (yield from snapshot.end_position(slot, isolation)):
        return None
    size = found.header.size_bytes
    if most_bytes is not None and size > most_bytes:
        return _Located(0, None, 0), None
    located = _Located(slot, found, size)
    return located, (yield from _read(snapshot, located))


def _looked_from(behind: tuple[int, int] | None, slot: int) -> int:
    """Return the position to start from in a segment. `behind` is the slot and position of the end of the damage."""
    return behind[1] if behind is not None and behind[0] == slot else 0


class Readable(NamedTuple):
    """The extent of a result of `fetch_batches`."""

    size_bytes: int
    ends_segment: bool


def readable_bytes(
    snapshot: LogSnapshot,
    offset: int,
    max_bytes: int,
    *,
    min_one_batch: bool,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    skip_gaps: bool | None = None,
) -> Procedure[Readable]:
    """Return the size of the result of `fetch_batches`, without reading it. Raises the errors of `fetch_batches`."""
    located = yield from _locate(snapshot, offset, max_bytes, isolation, min_one_batch=min_one_batch, skip_gaps=skip_gaps)
    return Readable(located.size, located.first is not None and located.slot + 1 < len(snapshot))


def refused_gap(snapshot: LogSnapshot, offset: int, gap: OffsetGap, *, by_policy: bool) -> OffsetInGapError:
    """Return the error for a reader that is at a gap."""
    topic, partition = snapshot.topic_partition
    next_step = (
        f"`triolog gaps accept {topic} {partition} {gap.start_offset}` lets readers skip it, gap.policy=skip "
        f"all gaps of the topic. Or continue from {gap.end_offset}"
        if by_policy
        else f"Continue from {gap.end_offset}, or fetch with gaps skipped"
    )
    kept = "nothing was left of the bytes" if gap.file == NO_FILE else f"the bytes are kept in {gap.file}"
    return OffsetInGapError(
        f"{snapshot.topic_partition}: offset {offset} was lost to corruption, with all of {gap.start_offset} "
        f"to {gap.end_offset - 1}; {kept}; {next_step}",
        snapshot.topic_partition,
        (gap.start_offset, gap.end_offset),
        by_policy=by_policy,
    )


class _Located(NamedTuple):
    """The range of a read: `size` bytes from the batch `first` on, in the segment at `slot`."""

    slot: int
    first: FoundBatch | None
    size: int


def _locate(
    snapshot: LogSnapshot,
    offset: int,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one_batch: bool,
    skip_gaps: bool | None,
    start: tuple[int, int] | None = None,
) -> Procedure[_Located]:
    """`start`: the slot and position from which on the offset is searched, where what lies before is known not to hold it."""
    if max_bytes < 0:
        raise ValueError(f"max_bytes is {max_bytes}")
    refused = snapshot.refused_gaps if skip_gaps is None else () if skip_gaps else snapshot.gaps
    gap = gap_at(refused, offset) if refused else None
    if gap is not None:
        raise refused_gap(snapshot, offset, gap, by_policy=skip_gaps is None)
    check_fetch_offset(snapshot, offset)
    if offset >= snapshot.end_offset(isolation):
        return _Located(0, None, 0)
    gap = next_gap(refused, offset) if refused else None
    if gap is not None and gap.start_offset >= snapshot.end_offset(isolation):
        gap = None
    for slot in range(max(0, snapshot.slot_of(offset)) if start is None else start[0], len(snapshot)):
        view = snapshot.segment(slot)
        if start is not None and slot == start[0]:
            found = yield from view.bytes_from(start[1]).find_reaching(offset)
        else:
            found = yield from view.translate_offset(offset)
        if found is not None:
            end = yield from snapshot.end_position(slot, isolation)
            if gap is not None:
                is_damaged = snapshot.check_crcs and found.header.base_offset >= snapshot.end_offset_of(slot)
                if found.header.base_offset >= gap.start_offset and not is_damaged:  # compaction left nothing before the gap
                    raise refused_gap(snapshot, gap.start_offset, gap, by_policy=skip_gaps is None)
                end = min(end, (yield from _gap_position(view, gap, found)))
            wanted = max(max_bytes, found.header.size_bytes) if min_one_batch else max_bytes
            return _Located(slot, found, max(0, min(end - found.position, wanted)))
    if gap is not None:  # nor anything behind it
        raise refused_gap(snapshot, gap.start_offset, gap, by_policy=skip_gaps is None)
    return _Located(0, None, 0)


def _check_passed_over(
    snapshot: LogSnapshot, offset: int, located: _Located, isolation: Isolation, behind: tuple[int, int] | None
) -> Procedure[None]:
    """Check the segments in which the offset was not found: a damaged length can hide it."""
    if offset < snapshot.end_offset(isolation):
        for slot in range(max(0, snapshot.slot_of(offset)), len(snapshot) if located.first is None else located.slot):
            end_offset, looked_from = snapshot.end_offset_of(slot), _looked_from(behind, slot)
            yield from check_end(snapshot.segment(slot), offset, end_offset, looked_from=looked_from)


def _gap_position(view: SegmentView, gap: OffsetGap, found: FoundBatch) -> Procedure[int]:
    """Return the position of the gap after a batch in its segment. A read ends there, so that the next one meets the gap."""
    behind = yield from view.translate_offset(gap.start_offset)
    return view.size if behind is None else max(behind.position, found.position + found.header.size_bytes)


def _passed(snapshot: LogSnapshot, located: _Located, offset: int, size: int) -> Procedure[tuple[OffsetGap, ...]]:
    """The gaps between `offset` and the last whole batch of what is answered, which has `size` bytes."""
    assert located.first is not None
    view, first = snapshot.segment(located.slot), located.first
    passed: list[OffsetGap] = []
    for gap in snapshot.gaps[bisect_right(snapshot.gaps, offset, key=lambda gap: gap.end_offset) :]:
        if gap.end_offset > first.header.base_offset:
            last = yield from view.translate_offset(gap.end_offset - 1)  # or a control batch that covers the gap
            if last is None or last.position + last.header.size_bytes > first.position + size:
                break
        passed.append(gap)
    return tuple(passed)


def _aborted_among(snapshot: LogSnapshot, located: _Located, offset: int) -> Procedure[tuple[AbortedTxn, ...]]:
    """The aborted transactions that reach into what a committed read answers."""
    assert located.first is not None
    if not snapshot.has_aborted(located.slot):
        return ()
    # An offset behind everything that was read, from the offset index: it need not be the next one.
    behind = yield from snapshot.segment(located.slot).offset_behind(located.first.position + located.size)
    upper_bound = snapshot.end_offset_of(located.slot) if behind is None else behind
    return (yield from snapshot.aborted_among(located.slot, offset, upper_bound))


READ_WITH_ANSWER_BYTES: Final = 64 * KIB
"""So much is read at once for the way to the batch and the answer, which is then copied, in 3 us at most."""
FEW_READS: Final = 3
"""Before the answer's. Batches above FIRST_READ_BYTES take two: an index entry leads to the batch before."""


FetchCached = Callable[..., FetchedRecords | None]
"""`fetch_cached`, or another function of its arguments."""


def fetch_cached(
    snapshot: LogSnapshot,
    offset: int,
    max_bytes: int,
    cached_bytes: CachedBytes,
    *,
    min_one_batch: bool,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> FetchedRecords | None:
    """Return the result of `fetch_batches`, or None where that takes more than one read. Raises the errors of
    `cached_bytes`."""
    high_watermark = snapshot.high_watermark
    is_committed = isolation is Isolation.READ_COMMITTED
    aborted = () if is_committed else None
    if snapshot.check_crcs or (is_committed and snapshot.last_stable_offset != high_watermark):
        return None
    if snapshot.gaps and offset < snapshot.gaps[-1].end_offset:
        return None
    if not snapshot.log_start_offset <= offset < high_watermark:
        return fetched(snapshot, b"", aborted=aborted) if offset == high_watermark else None
    view, is_active = snapshot.active, True
    if offset < view.base_offset or is_committed:
        slot = snapshot.slot_of(offset)
        if slot < 0 or (is_committed and snapshot.has_aborted(slot)):
            return None
        view, is_active = snapshot.segment(slot), slot + 1 == len(snapshot)
    if max_bytes <= 0:
        return None
    end = snapshot.readable_end_of(view)
    piece = max_bytes + FIRST_READ_BYTES
    found = _find(view, offset, end, piece if piece <= READ_WITH_ANSWER_BYTES else FIRST_READ_BYTES, cached_bytes)
    if found is None:
        return None
    position, size, data, at = found
    if size < max_bytes or not min_one_batch:
        size = max_bytes
    size = end - position if size > end - position else size
    if at + size <= len(data):
        records: Bytes | None = bytes(memoryview(data)[at : at + size])
    else:
        records = cached_bytes(view.log, position, size)
    if records is None:
        return None
    return fetched(snapshot, records, ends_segment=not is_active, aborted=aborted)


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


def _first_reaching(data: Bytes, offset: int) -> tuple[int, int, int]:
    """Return the position in `data` of the first batch with a last offset of at least `offset`, its size and its base offset.
    The size is 0 where the batch is after `data`, and -1 where a few headers do not decide it."""
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
