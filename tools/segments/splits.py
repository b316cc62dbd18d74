"""Plans the bytes of the segments to read, cut at batch starts in the sparse offset index. Needs no broker and no Spark.

1. A segment is part of the read when its offsets can lie in [low, high).
2. It is read from the position of the greatest index entry <= low (else from its start) to that of the entry behind the first
   one >= high (else to its end): an entry pairs the *last* offset of an append with the position where it starts.
3. It is cut at entries: the first one at least `split_bytes` behind the last cut, an earlier one when `max_records` demands
   it; no tail of less than a quarter of `split_bytes`. `min_partitions` lowers `split_bytes`.
4. Each position is taken only if the batch that starts there is whole, carries its CRC and has offsets that fit: an index may
   lie. So the parts of a segment have no hole, do not overlap and start at batches, whatever its index says. Without one a
   segment is one split.
5. Neighbouring small segments of a partition share a task, up to `split_bytes`: a task costs as much as reading several MB.

A split's reader still filters by offset: the first and the last batch may reach beyond [low, high).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import attrs

from ...protocol.limits import INT64_MAX, MIB
from .segment_bytes import SegmentBytes
from .segment_damage import SegmentPart
from .segment_index import OffsetIndex, read_offset_index
from .segment_log import SEARCHED_ENTRIES, PartitionLog, SegmentFile, position_at_or_below

SPLIT_BYTES: Final = 64 * MIB
"""Splits of 32 to 64 MiB: of 1 MiB ones the overhead of a task is four times their reading (spark.md, decision 5)."""
_SMALLEST_TAIL: Final = 4
"""The last split of a segment has at least this part of `split_bytes`."""


@attrs.frozen(kw_only=True)
class SplitLimits:
    """The limits on the size of a split. All are hints, since cuts are at index entries."""

    split_bytes: int = SPLIT_BYTES
    min_partitions: int = 1
    max_records: int | None = None


@attrs.frozen(kw_only=True)
class AbortedRange:
    """Transactional batches of a producer in [first_offset, last_offset] are aborted; `last_offset` is that of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int


@attrs.frozen(kw_only=True)
class LogRange:
    """The offsets [low, high) of one partition."""

    log: PartitionLog
    low: int
    high: int
    aborted: tuple[AbortedRange, ...] | None = None
    """For a committed read, ascending by `last_offset`; None for an uncommitted one."""
    marked_offset: int = -1
    """The base offset of the last segment without a transaction index to believe: up to there markers have to be looked at."""


@attrs.frozen(kw_only=True)
class SegmentSplit:
    """Bytes [start_byte, end_byte) of one segment, and which offsets [low, high) of them are wanted. Picklable."""

    topic: str
    partition: int
    path: str
    start_byte: int
    end_byte: int
    low: int
    high: int
    first_offset: int
    """No batch of the split has a base offset below it; where it does not start with the file, its first batch has this one."""
    end_offset: int = INT64_MAX
    """The next segment's base offset."""
    is_tail: bool = False
    """Whether it ends where the log's last segment ended: a batch may be cut short there."""
    closed_bytes: int | None = None
    """Of a closed segment's whole file: with another size it is another file. None where the file may grow, or is leased."""
    aborted: tuple[AbortedRange, ...] | None = None
    """Aborted ranges with records in the split; None when records of aborted transactions are wanted, too."""
    finds_markers: bool = False
    """Whether a segment at or behind it has no transaction index to believe, so that markers tell what else was aborted."""

    @property
    def size_bytes(self) -> int:
        return self.end_byte - self.start_byte

    @property
    def part(self) -> SegmentPart:
        return SegmentPart(path=self.path, end_byte=self.end_byte, end_offset=self.end_offset, is_tail=self.is_tail)


def plan_splits(ranges: Sequence[LogRange], limits: SplitLimits) -> list[SegmentSplit]:
    """Every split of a read, in the order of the ranges, each one's ascending. Raises OSError."""
    pieces = [_piece(wanted, segment) for wanted in ranges for segment in _segments(wanted)]
    target = _target_bytes(sum(piece.end - piece.start for piece in pieces), limits)
    return [split for piece in pieces if piece.start < piece.end for split in _split(piece, target, limits.max_records)]


def pack_splits(splits: Sequence[SegmentSplit], limits: SplitLimits) -> list[tuple[SegmentSplit, ...]]:
    """Neighbouring splits of a partition together, up to the limits: what one task reads."""
    target = _target_bytes(sum(each.size_bytes for each in splits), limits)
    tasks: list[list[SegmentSplit]] = []
    size = 0
    for split in splits:
        size += split.size_bytes
        if tasks and size <= target and _may_share(tasks[-1][0], split, limits.max_records):
            tasks[-1].append(split)
        else:
            tasks.append([split])
            size = split.size_bytes
    return [tuple(task) for task in tasks]


def _target_bytes(total_bytes: int, limits: SplitLimits) -> int:
    return max(1, min(limits.split_bytes, -(-total_bytes // max(1, limits.min_partitions))))


def _may_share(first: SegmentSplit, last: SegmentSplit, max_records: int | None) -> bool:
    if (first.topic, first.partition) != (last.topic, last.partition):
        return False
    most = min(last.high, last.end_offset) - max(first.low, first.first_offset)  # a record for each offset
    return max_records is None or most <= max_records


@attrs.frozen
class _Piece:
    """Bytes [start, end) of a segment that a range takes; no batch in them has a base offset below `first_offset`."""

    wanted: LogRange
    segment: SegmentFile
    start: int
    end: int
    first_offset: int

    @property
    def high(self) -> int:
        """Behind the last wanted offset of the segment."""
        return min(self.wanted.high, self.segment.end_offset, self.wanted.log.end_offset)


def _segments(wanted: LogRange) -> Iterator[SegmentFile]:
    for segment in wanted.log.segments_within(wanted.low, wanted.high):
        if segment.size_bytes and wanted.low < wanted.high:
            yield segment


def _piece(wanted: LogRange, segment: SegmentFile) -> _Piece:
    low, high = wanted.low, wanted.high
    starts_inside, ends_inside = low > segment.base_offset, high < min(segment.end_offset, wanted.log.end_offset)
    if not starts_inside and not ends_inside:
        return _Piece(wanted, segment, 0, segment.size_bytes, segment.base_offset)
    index = read_offset_index(segment.path, segment.base_offset, segment.size_bytes)
    with SegmentBytes(segment.path, segment.size_bytes) as file:
        start, first_offset = position_at_or_below(file, segment, index, low) if starts_inside else (0, segment.base_offset)
        end = _end_position(file, segment, index, high) if ends_inside else segment.size_bytes
    return _Piece(wanted, segment, start, max(start, end), first_offset)


def _end_position(file: SegmentBytes, segment: SegmentFile, index: OffsetIndex, high: int) -> int:
    slot = index.slot_at_or_above(high) + 1
    for position in index.positions[slot : slot + SEARCHED_ENTRIES].tolist():
        base_offset = file.base_offset_at(position)
        if base_offset is not None and base_offset >= high:
            return int(position)
    return segment.size_bytes


def _split(piece: _Piece, target: int, max_records: int | None) -> Iterator[SegmentSplit]:
    wanted, segment = piece.wanted, piece.segment
    cuts = [(piece.start, piece.first_offset), *_cuts(piece, target, max_records), (piece.end, segment.end_offset)]
    for (start, first_offset), (end, end_offset) in pairwise(cuts):
        aborted = wanted.aborted
        if aborted is not None:
            aborted = tuple(each for each in aborted if each.last_offset >= first_offset and each.first_offset < end_offset)
        yield SegmentSplit(
            topic=wanted.log.topic_partition.topic,
            partition=wanted.log.topic_partition.partition,
            path=segment.path,
            start_byte=start,
            end_byte=end,
            low=wanted.low,
            high=wanted.high,
            first_offset=first_offset,
            end_offset=end_offset,
            is_tail=segment.is_last and end == segment.size_bytes,
            closed_bytes=None if segment.is_last or segment.is_leased else segment.size_bytes,
            aborted=aborted,
            finds_markers=aborted is not None and segment.base_offset <= wanted.marked_offset,
        )


def _cuts(piece: _Piece, target: int, max_records: int | None) -> Iterator[tuple[int, int]]:
    """Positions inside of the piece to cut at, each with the base offset of the batch there."""
    segment = piece.segment
    last = piece.start, max(piece.first_offset, piece.wanted.low)
    if piece.end - piece.start <= target and (max_records is None or piece.high - last[1] <= max_records):
        return
    index = read_offset_index(segment.path, segment.base_offset, segment.size_bytes)
    with SegmentBytes(segment.path, segment.size_bytes) as file:
        while (cut := _next_cut(file, index, piece, last, target, max_records)) is not None:
            yield cut
            last = cut


def _next_cut(
    file: SegmentBytes, index: OffsetIndex, piece: _Piece, last: tuple[int, int], target: int, max_records: int | None
) -> tuple[int, int] | None:
    (position, offset), end = last, piece.end
    first = int(index.positions.searchsorted(position, "right"))
    slot = max(first, int(index.positions.searchsorted(position + target, "left")))
    if max_records is not None and piece.high - offset > max_records:
        # The entry's batch may reach above the limit and still begin below it.
        by_records = max(first, index.slot_at_or_below(offset + max_records) + 1)
        if by_records <= slot:
            cut = _cut_at(file, index, slice(by_records, by_records + 1), offset, end)
            if cut is not None and cut[1] <= offset + max_records:
                return cut
            by_records = max(first, by_records - 1)
            return _cut_at(file, index, slice(by_records, by_records + SEARCHED_ENTRIES), offset, end)
    return _cut_at(file, index, slice(slot, slot + SEARCHED_ENTRIES), offset, end - target // _SMALLEST_TAIL)


def _cut_at(file: SegmentBytes, index: OffsetIndex, slots: slice, offset: int, end: int) -> tuple[int, int] | None:
    """The first of these entries before `end` where a batch starts, with that batch's base offset, which is above `offset`."""
    for position, last_offset in zip(index.positions[slots].tolist(), index.offsets[slots].tolist(), strict=True):
        if position >= end:
            return None
        base_offset = file.base_offset_at(position)
        if base_offset is not None and offset < base_offset <= last_offset:
            return position, base_offset
    return None
