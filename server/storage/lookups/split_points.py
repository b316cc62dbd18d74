"""Splits a range of offsets into pieces of about the same size, so that several readers can divide the work.

Cuts lie where entries of the sparse offset indexes point, at the starts of batches: finding one costs a binary search and the
read of a batch header, whatever the size of the log. Works on a snapshot only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ....protocol.errors import InvalidRequestError, OffsetOutOfRangeError
from ....protocol.records.batch import MAGIC, RECORD_BATCH_OVERHEAD, parse_header
from ..disk.diskops import Procedure, Read
from ..log.log import LogSnapshot
from ..segments.segment_view import SegmentView

SMALLEST_REST: Final = 4
"""A rest below this part of a piece goes to the one before: a reader that starts for it would only cost."""


class SplitPoint(NamedTuple):
    """The first offset of a piece, and the bytes from there to the next one."""

    offset: int
    size_bytes: int


class _Area(NamedTuple):
    """The bytes of a segment that belong to the range."""

    view: SegmentView
    begin: int
    end: int


def split_points(
    snapshot: LogSnapshot, start: int, end: int, target_bytes: int, max_points: int
) -> Procedure[list[SplitPoint]]:
    """Pieces of [start, end), in order, without a gap: the first begins at `start`, the others with a batch.

    A piece has `target_bytes` or a little more; larger ones are answered when there would be more than `max_points`. Raises
    OffsetOutOfRangeError, InvalidRequestError when the range is the wrong way round.
    """
    if start > end:
        raise InvalidRequestError(f"{snapshot.topic_partition}: the range {start} to {end} is reversed")
    if not snapshot.log_start_offset <= start <= end <= snapshot.high_watermark:
        raise OffsetOutOfRangeError(
            f"{snapshot.topic_partition}: {start} to {end} is not in {snapshot.log_start_offset} to "
            f"{snapshot.high_watermark}. Look up the earliest and the latest offset again"
        )
    if start == end:
        return []
    areas = yield from _areas(snapshot, start, end)
    total = sum(area.end - area.begin for area in areas)
    target = max(target_bytes, -(-total // max_points))
    points: list[SplitPoint] = []
    offset, size = start, 0
    for area in areas:
        position = area.begin
        cut = position if size >= target else (yield from _next_cut(area, position, target - size))
        while cut is not None:
            found = yield from _offset_at(area.view, cut)
            size += cut - position
            if found is not None and offset < found < end:
                points.append(SplitPoint(offset, size))
                offset, size = found, 0
            position = cut
            cut = yield from _next_cut(area, position, max(1, target - size))
        size += area.end - position
    if points and size * SMALLEST_REST < target:
        offset, before = points.pop()
        size += before
    return [*points, SplitPoint(offset, size)]


def _areas(snapshot: LogSnapshot, start: int, end: int) -> Procedure[list[_Area]]:
    areas = []
    for slot in range(max(0, snapshot.slot_of(start)), len(snapshot)):
        view = snapshot.segment(slot)
        if view.base_offset >= end:
            break
        begin, stop = 0, snapshot.readable_end(slot)
        if view.base_offset < start:
            found = yield from view.translate_offset(start)
            begin = stop if found is None else found.position
        if end < min(snapshot.end_offset_of(slot), snapshot.high_watermark):
            last = yield from view.translate_offset(end - 1)
            if last is not None:
                within = last.header.base_offset < end
                stop = min(stop, last.position + (last.header.size_bytes if within else 0))
        if begin < stop:
            areas.append(_Area(view, begin, stop))
    return areas


def _next_cut(area: _Area, position: int, missing: int) -> Procedure[int | None]:
    """The first place at least `missing` bytes behind `position` where a batch starts, as far as the index says; None when
    there is none before the area's end."""
    wanted = position + missing
    entry = None if wanted >= area.end else (yield from area.view.entry_behind(wanted))
    return None if entry is None or not position < entry[1] < area.end else entry[1]


def _offset_at(view: SegmentView, position: int) -> Procedure[int | None]:
    """Base offset of the batch at `position`; None when the index is wrong and there is none."""
    data = yield Read(view.log, position, RECORD_BATCH_OVERHEAD)
    if len(data) < RECORD_BATCH_OVERHEAD:
        return None
    header = parse_header(data)
    return header.base_offset if header.magic == MAGIC else None
