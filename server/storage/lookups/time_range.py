"""Reading the records of a range of times, in offset order, wherever they lie. Works on a snapshot only.

Timestamps need not be in order. Before the first batch that reaches the start of the range, which the indexes know, nothing is
of the range. From there on stretches of offsets are passed over in which no timestamp is below its end (`least_timestamps`);
what is not known of a stretch is looked up in its records once, and remembered. What is left are batches that can hold records
of the range, and these are the answer, as they lie in the file: which of their records are meant their reader says, or who
unpacks them. In a log that is in order that is the range, and of the batches behind it at most one stretch.

An answer is a page: it has about as many bytes as were asked for, goes on where the one before ended, and says so when the
range is at its end. It has no batches, and is not at the end, where much had to be looked at and nothing was found yet.

Offsets that damage has taken out are refused or passed over as by a fetch if they lie between the first batch that reaches the
start of the range and the last one that can hold a record of it; what they held elsewhere is not known and not asked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import attrs

from ....protocol.errors import CorruptRecordError, InvalidRecordError, InvalidRequestError, RecordTooLargeError, RequestError
from ....protocol.limits import INT64_MAX, KIB, MIB
from ....protocol.records.batch import LOG_APPEND_TIME_FLAG, RECORD_BATCH_OVERHEAD, BatchHeader, iter_batches, parse_header
from ....protocol.records.record import least_timestamp_steps
from ....protocol.types import NO_OFFSET, Bytes, Isolation, TimeRange
from ..disk.diskops import Procedure, Read
from ..indexes.file_records import HEADERS_PER_PAUSE, LARGEST_READ_BYTES, FoundBatch
from ..indexes.transaction_index import AbortedTxn
from ..log.gaps import OffsetGap, gap_at, next_gap
from ..log.log import LogSnapshot
from ..segments.segment_view import ANYTHING, NOTHING, SegmentView, dropped, unpacked
from .fetch import FetchedRecords, check_fetch_offset, fetched, refused_gap
from .fetch_check import checked_prefix

MOST_RUNS: Final = 64
"""Pieces of the log in one page."""
MOST_LOOKED_AT_BYTES: Final = 16 * MIB
"""Of batches of which nothing was known, in one page."""
LEAST_STRETCH_BYTES: Final = 16 * KIB
STRETCHES_PER_SEGMENT: Final = 128
"""Of those that are found by looking."""


def check_range(snapshot: LogSnapshot, times: TimeRange) -> None:
    """Raises InvalidRequestError for a range that ends before it starts, or starts before there is time."""
    if times.start < 0:
        raise InvalidRequestError(f"{snapshot.topic_partition}: start_timestamp is {times.start}, expected 0 or more")
    if times.end < times.start:
        raise InvalidRequestError(
            f"{snapshot.topic_partition}: end_timestamp {times.end} is before start_timestamp {times.start}"
        )


def fetch_range(
    snapshot: LogSnapshot,
    offset: int,
    times: TimeRange,
    max_bytes: int,
    *,
    min_one_batch: bool,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    skip_gaps: bool | None = None,
) -> Procedure[FetchedRecords]:
    """A page of the batches that can hold records of `times`, from `offset` on (NO_OFFSET: the log start).

    Whole batches up to `max_bytes`, with `min_one_batch` one at least. `next_offset` says where the next page goes on, and
    `ends_range` that there is none. Raises what `fetch_batches` raises, InvalidRequestError for a range that cannot be.
    """
    check_range(snapshot, times)
    if max_bytes < 0:
        raise ValueError(f"max_bytes is {max_bytes}")
    refused = snapshot.refused_gaps if skip_gaps is None else () if skip_gaps else snapshot.gaps
    if offset != NO_OFFSET:
        if refused and (gap := gap_at(refused, offset)) is not None:
            raise refused_gap(snapshot, offset, gap, by_policy=skip_gaps is None)
        check_fetch_offset(snapshot, offset)
    search = RangeSearch(snapshot, times, isolation)
    page = _Page(max_bytes, min_one_batch)
    yield from search.begin(snapshot.log_start_offset if offset == NO_OFFSET else offset)
    # The markers of transactions must not be missing between batches that come in one answer.
    is_committed = isolation is Isolation.READ_COMMITTED
    is_single = is_committed and snapshot.has_aborted(search.slot())
    while page.has_room:
        before = search.at
        run = yield from search.next_run()
        if run is None:
            break
        gap = next_gap(refused, before - 1) if refused else None
        if gap is not None and gap.start_offset <= run.first_offset:
            if page.pieces:
                search.at = gap.start_offset
                break
            raise refused_gap(snapshot, gap.start_offset, gap, by_policy=skip_gaps is None)
        if is_single and page.pieces:
            search.at = run.first_offset
            break
        if gap is not None and gap.start_offset < run.end_offset:
            run = yield from search.cut(run, gap.start_offset)
        search.at = yield from page.take(snapshot, run, times.start, keeps_all=is_single)
        if search.at < run.end_offset:
            break
    aborted: tuple[AbortedTxn, ...] | None = () if is_committed else None
    if is_single and page.pieces:
        aborted = yield from snapshot.aborted_among(page.first_slot, page.first_offset, page.end_offset)
    return fetched(
        snapshot,
        page.pieces[0] if len(page.pieces) == 1 else b"".join(page.pieces),
        aborted=aborted,
        passed=_passed(snapshot.gaps, page) if snapshot.gaps else (),
        next_offset=search.at,
        ends_range=search.is_done,
    )


class Run(NamedTuple):
    """Batches that follow each other in a segment and can hold records of the range."""

    slot: int
    first: FoundBatch
    stop: int
    """The position behind them."""
    first_offset: int
    end_offset: int


@attrs.define(eq=False, repr=False)
class RangeSearch:
    """Goes from one run of a range to the next. Owner: the procedure that reads it."""

    snapshot: LogSnapshot
    times: TimeRange
    isolation: Isolation
    at: int = 0
    """All that can be of the range before is found."""
    looked_at_bytes: int = 0
    end_offset: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.end_offset = self.snapshot.end_offset(self.isolation)

    @property
    def is_done(self) -> bool:
        """Return whether nothing of the range is left."""
        return self.at >= self.end_offset or self.times.start >= self.times.end

    def begin(self, offset: int) -> Procedure[None]:
        """Go to `offset`, or to the first batch that reaches the start of the range, if that lies behind it."""
        snapshot, start = self.snapshot, self.times.start
        self.at = offset
        slot = snapshot.slot_reaching(start)
        if slot == len(snapshot):
            self.at = max(offset, self.end_offset)
            return
        view = snapshot.segment(slot)
        if start > 0 and self.at < self._end_of(slot) and not self.is_done:
            self.at = max(offset, view.base_offset)
            found = yield from self._first_batch(slot, self.at)
            if found is not None:
                self.at = max(self.at, found.header.base_offset)

    def next_run(self) -> Procedure[Run | None]:
        """None: nothing of the range is left, or enough was looked at, see `is_done`. The run is not counted as found."""
        snapshot, times = self.snapshot, self.times
        while not self.is_done:
            slot = self.slot()
            view, end = snapshot.segment(slot), self._end_of(slot)
            if view.max_timestamp < times.start:
                self.at = end
                continue
            limit = end
            if times.end <= INT64_MAX:
                stretch = view.least_timestamps.next_below(self.at, times.end)
                if stretch is None or stretch.start >= end:
                    self.at = end
                    continue
                self.at, limit = max(self.at, stretch.start), min(stretch.end, end)
                if not stretch.is_known:
                    if self.looked_at_bytes >= MOST_LOOKED_AT_BYTES:
                        break
                    yield from self._look(view, limit)
                    continue
            found = yield from self._first_batch(slot, self.at)
            if found is None:
                self.at = end
            elif found.header.base_offset >= limit:
                self.at = found.header.base_offset
            else:
                stop = yield from self._position_of(slot, limit)
                return Run(slot, found, stop, max(self.at, found.header.base_offset), limit)
        return None

    def cut(self, run: Run, end_offset: int) -> Procedure[Run]:
        """The run up to an offset before its end."""
        return run._replace(stop=(yield from self._position_of(run.slot, end_offset)), end_offset=end_offset)

    def slot(self) -> int:
        """Of the segment where the search is."""
        return max(0, self.snapshot.slot_of(self.at))

    def _end_of(self, slot: int) -> int:
        """Return the end of the segment's offsets, or of the range to read if that is lower."""
        return min(self.snapshot.end_offset_of(slot), self.end_offset)

    def _first_batch(self, slot: int, offset: int) -> Procedure[FoundBatch | None]:
        """The first batch that can hold a record at or behind `offset` and the start of the range."""
        view, start = self.snapshot.segment(slot), self.times.start
        _, _, indexed = yield from view.first_offset_of(start)
        _, _, position = yield from view.position_of(max(indexed, offset))
        end = yield from self.snapshot.end_position(slot, self.isolation)
        try:
            return (yield from view.find_matching(position, end, offset, start))
        except CorruptRecordError:
            if not position:
                raise
        found = yield from view.find_matching(0, end, offset, start)
        view.offset_index.doubt()
        return found

    def _position_of(self, slot: int, end_offset: int) -> Procedure[int]:
        """Return the end position of the batches with offsets below `end_offset`."""
        snapshot = self.snapshot
        view, end = snapshot.segment(slot), (yield from snapshot.end_position(slot, self.isolation))
        if end_offset >= self._end_of(slot):
            return end
        behind = yield from view.translate_offset(end_offset)
        if behind is None:
            return end
        is_inside = behind.header.base_offset < end_offset
        return min(end, behind.position + behind.header.size_bytes if is_inside else behind.position)

    def _look(self, view: SegmentView, end_offset: int) -> Procedure[None]:
        """Look at the batches from `at` up to `end_offset`, about, for how small their timestamps are."""
        found = yield from view.translate_offset(self.at)
        if found is None:
            view.least_timestamps.learn(self.at, [(end_offset, NOTHING)])
            return
        wanted = max(LEAST_STRETCH_BYTES, view.size // STRETCHES_PER_SEGMENT)
        stretches: list[tuple[int, int]] = []
        position, known, least, size = found.position, self.at, NOTHING, 0
        while known < end_offset and position < view.size and self.looked_at_bytes < MOST_LOOKED_AT_BYTES:
            data, before = (yield from _whole_batches(view, position)), position
            for header, batch in iter_batches(data):
                least = min(least, (yield from least_of(batch, header, self.snapshot.max_decompressed_bytes)))
                known, size = max(known, header.next_offset), size + len(batch)
                position += len(batch)
                self.looked_at_bytes += len(batch)
                if size >= wanted:
                    stretches.append((known, least))
                    least, size = NOTHING, 0
                if known >= end_offset:
                    break
            if position == before:
                position = view.size  # an incomplete batch, where readers end without complaint
        if position >= view.size:
            known = max(known, end_offset)
        if not stretches or known > stretches[-1][0]:
            stretches.append((known, least))
        view.least_timestamps.learn(self.at, stretches)


def _whole_batches(view: SegmentView, position: int) -> Procedure[memoryview]:
    """Up to 1 MiB from a position where a batch starts, or that batch."""
    data = memoryview((yield Read(view.log, position, min(LARGEST_READ_BYTES, view.size - position))))
    if len(data) >= RECORD_BATCH_OVERHEAD and (size := parse_header(data).size_bytes) > len(data):
        if position + size > view.size:
            return memoryview(b"")
        data = memoryview((yield Read(view.log, position, size)))
    return data


def least_of(batch: memoryview, header: BatchHeader, max_bytes: int) -> Procedure[int]:
    """The least timestamp of a batch's records that have one; ANYTHING where they cannot be read."""
    if header.is_control or header.records_count <= 0:
        return NOTHING
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return header.max_timestamp
    try:
        data = yield from unpacked(batch, header, max_bytes)
    except (CorruptRecordError, InvalidRecordError, RecordTooLargeError):
        return ANYTHING
    least: int | None = None
    try:
        for least in least_timestamp_steps(data, header):
            if least is None:
                yield None
    except RequestError:
        least = ANYTHING
    yield from dropped(data)
    assert least is not None
    return max(ANYTHING, least)


@attrs.define(eq=False, repr=False)
class _Page:
    """The part of a range that one response holds."""

    left: int
    min_one_batch: bool
    pieces: list[Bytes] = attrs.field(factory=list)
    first_slot: int = 0
    first_offset: int = 0
    end_offset: int = 0

    @property
    def has_room(self) -> bool:
        return (self.left > 0 or (self.min_one_batch and not self.pieces)) and len(self.pieces) < MOST_RUNS

    def take(self, snapshot: LogSnapshot, run: Run, start: int, *, keeps_all: bool) -> Procedure[int]:
        """Take the whole batches of a run that there is room for, without those that end before `start`, unless it `keeps_all`;
        answers where they end."""
        view, first = snapshot.segment(run.slot), run.first
        size = min(run.stop - first.position, self.left)
        if self.min_one_batch and not self.pieces:
            size = max(size, first.header.size_bytes)
        if size < first.header.size_bytes:
            self.left = 0
            return run.first_offset
        data: Bytes | None = first.data if size == first.header.size_bytes else None
        if data is None:
            data = yield Read(view.log, first.position, size)
        if snapshot.check_crcs:
            end = snapshot.end_offset_of(run.slot)
            data = yield from checked_prefix(data, view, first.position, run.first_offset, end, snapshot.leader_epochs)
        kept: list[tuple[int, int]] = []
        at, next_offset = 0, run.first_offset
        for number, (header, batch) in enumerate(iter_batches(data), 1):
            stop = at + len(batch)
            if keeps_all or header.max_timestamp >= start:
                if kept and kept[-1][1] == at:
                    kept[-1] = kept[-1][0], stop
                else:
                    kept.append((at, stop))
            at, next_offset = stop, header.next_offset
            if not number % HEADERS_PER_PAUSE:
                yield None
        if not self.pieces:
            self.first_slot, self.first_offset = run.slot, run.first_offset
        whole = memoryview(data)
        self.pieces += [whole[begin:stop] for begin, stop in kept]
        self.left -= sum(stop - begin for begin, stop in kept)
        self.end_offset = next_offset
        if first.position + at < run.stop:
            self.left = 0
            return next_offset
        return max(run.end_offset, next_offset)


def _passed(gaps: tuple[OffsetGap, ...], page: _Page) -> tuple[OffsetGap, ...]:
    """The gaps among the batches of a page."""
    if not page.pieces:
        return ()
    return tuple(gap for gap in gaps if page.first_offset < gap.end_offset and gap.end_offset <= page.end_offset)
