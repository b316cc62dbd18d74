"""All segments of a log as boxes over time and offsets, with the question as a line, or a band, and the answer as a dot; and
the marks of the time axis: whole seconds, hours, days, months or years of a zone.

A box reaches from the smallest timestamp of a segment to the largest, and from its first offset to its last. Where the smallest
is not known it begins, as far as is known, where the segment before ends, and a dashed line leads to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, Final

import attrs

from ...protocol.limits import INT64_MAX
from ..cli.terminal.output import count_text, size_text
from ..cli.terminal.times import Zone, format_time
from ..cli.terminal.walk_words import answer_text
from .canvas import MARGIN, WIDTH, Canvas

LEFT: Final = MARGIN + 84
RIGHT: Final = WIDTH - MARGIN
MOST_BOXES: Final = 500
MOST_TICKS: Final = 7
_LEAST_HEIGHT: Final = 40
_MOST_HEIGHT: Final = 168
_LABEL: Final = 150
_TAIL: Final = 12

Walk = dict[str, Any]
Corner = tuple[float, float]


@attrs.frozen(kw_only=True)
class Stretch:
    """A segment, or neighbours that are drawn as one."""

    start: int
    end: int
    """Offset, exclusive."""
    count: int
    size_bytes: int
    least: int
    """ms, -1 where it is not known."""
    largest: int
    is_chosen: bool


@attrs.frozen
class _Scales:
    """The scales of times and offsets. Half of the height is divided evenly, so that small segments are visible."""

    low: int
    high: int
    starts: list[int]
    """Offsets where boxes begin, and the end of the last one."""
    heights: list[float]
    """How high above the bottom these lie."""
    top: float
    height: float

    def x(self, timestamp: int) -> float:
        part = 0.5 if self.high <= self.low else (timestamp - self.low) / (self.high - self.low)
        return LEFT + min(max(part, 0), 1) * (RIGHT - LEFT)

    def y(self, offset: int) -> float:
        slot = min(max(bisect_right(self.starts, offset) - 1, 0), len(self.starts) - 2)
        start, end = self.starts[slot], self.starts[slot + 1]
        part = 1 if end <= start else min(max((offset - start) / (end - start), 0), 1)
        low, high = self.heights[slot], self.heights[slot + 1]
        return self.top + self.height - low - part * (high - low)


def stretches(walk: Walk) -> list[Stretch]:
    """Return the log's stretches from the walk. For a server that reports only the segments it searched, return those."""
    steps = walk.get("segments", ())
    looked_into = [step.get("segment", 0) for step in steps]
    told = list(walk.get("log_segments") or steps)
    if not told:
        return []
    ends = [each.get("segment", 0) for each in told[1:]] + [max(walk.get("high_watermark", 0), 0)]
    found = []
    for each, end in zip(told, ends, strict=True):
        start = each.get("segment", 0)
        found.append(
            Stretch(
                start=start,
                end=max(start, end),
                count=each.get("segments", 1),
                size_bytes=each.get("size_bytes", 0),
                least=each.get("least_timestamp", -1),
                largest=each.get("max_timestamp", -1),
                is_chosen=any(start <= base < end or base == start for base in looked_into),
            )
        )
    each = -(-len(found) // MOST_BOXES) or 1
    return found if each == 1 else [_one(found[at : at + each]) for at in range(0, len(found), each)]


def panel_height(boxes: list[Stretch]) -> float:
    """Of the boxes alone."""
    return min(_MOST_HEIGHT, _LEAST_HEIGHT + 14 * (len(boxes) - 1))


def draw_log(canvas: Canvas, top: float, walk: Walk, boxes: list[Stretch], zone: Zone, zoom_to: float | None) -> float:
    """The panel below `top`, its axis too; returns where it ends. `zoom_to`: where the first chosen segment is told of."""
    scales = _scales(walk, boxes, top + 14, panel_height(boxes))
    bottom = scales.top + scales.height
    canvas.rect(LEFT, scales.top, RIGHT - LEFT, scales.height, "panel")
    _draw_band(canvas, scales, walk.get("asked", {}))
    corners = _spans(boxes, scales, walk)
    chosen = [corner for corner, box in zip(corners, boxes, strict=True) if box.is_chosen]
    if chosen and zoom_to is not None:
        (x, y), (right, below) = chosen[0]
        canvas.polygon([(x, below), (right, below), (WIDTH - MARGIN, zoom_to), (MARGIN, zoom_to)], "chosen clear")
    for at, words in time_ticks(scales.low, scales.high, MOST_TICKS, zone) if scales.high >= 0 else ():
        canvas.line([(scales.x(at), scales.top), (scales.x(at), bottom + 4)], "grid")
        anchor, x = _beside(scales.x(at), 40)
        canvas.text(x, bottom + 16, words, "quiet", size=11, anchor=anchor)
    for box, ((x, y), (right, below)) in zip(boxes, corners, strict=True):
        kind = "chosen" if box.is_chosen else "segment"
        canvas.rect(x, y, right - x, below - y, kind, title=_words(box, zone), radius=1)
        if box.largest >= 0 and box.least < 0 and x - _TAIL > LEFT:
            canvas.line([(x - _TAIL, (y + below) / 2), (x, (y + below) / 2)], "unknown")
    _draw_offsets(canvas, scales)
    _draw_question(canvas, scales, walk)
    return bottom + 20


def _scales(walk: Walk, boxes: list[Stretch], top: float, height: float) -> _Scales:
    times = [time for box in boxes for time in (box.least, box.largest) if time >= 0]
    answered = walk.get("answer", {}).get("timestamp", -1)
    low, high = min(times, default=-1), max(times, default=-1)
    asked = walk.get("asked", {})
    for at in (answered, asked.get("timestamp", -1), asked.get("start_timestamp", -1), asked.get("end_timestamp", -1)):
        if 0 <= low - (high - low) <= at <= high + (high - low):  # what is far away would squeeze the log
            low, high = min(low, at), max(high, at)
    share = max(sum(box.end - box.start for box in boxes), 1)
    each = [height * (0.5 / len(boxes) + 0.5 * (box.end - box.start) / share) for box in boxes]
    starts = [*(box.start for box in boxes), boxes[-1].end]
    return _Scales(low, high, starts, list(accumulate(each, initial=0.0)), top, height)


def _seen(walk: Walk, base_offset: int) -> list[int]:
    """Timestamps that the walk has met in a segment: it begins with the least of them, or before."""
    found = []
    for step in walk.get("segments", ()):
        if step.get("segment") == base_offset:
            found.append(step.get("time_index", {}).get("timestamp", -1))
            if step.get("runs"):
                found.append(walk.get("asked", {}).get("end_timestamp", -1))
            answer = walk.get("answer", {})
            if step is walk["segments"][-1] and "runs" not in step:
                found.append(answer.get("timestamp", answer.get("batch_max_timestamp", -1)))
    return [at for at in found if at >= 0]


def _spans(boxes: list[Stretch], scales: _Scales, walk: Walk) -> list[tuple[Corner, Corner]]:
    """Upper left and lower right corner of each box."""
    corners = []
    before = scales.low
    for box in boxes:
        begin = box.least if box.least >= 0 else min([before, box.largest, *_seen(walk, box.start)])
        x, right = scales.x(begin), scales.x(box.largest)
        if scales.high < 0:  # no timestamps at all
            x, right = LEFT, RIGHT
        x = min(x, RIGHT - 3)
        y, below = scales.y(box.end), scales.y(box.start)
        gap = 1 if below - y > 3 else 0
        corners.append(((x, y), (max(right, x + 3), max(below - gap, y + 1))))
        before = max(box.largest, scales.low)
    return corners


def _draw_band(canvas: Canvas, scales: _Scales, asked: Walk) -> None:
    if "start_timestamp" in asked and scales.high >= 0:
        x, right = scales.x(asked["start_timestamp"]), scales.x(min(asked.get("end_timestamp", INT64_MAX), INT64_MAX))
        canvas.rect(x, scales.top - 4, max(right - x, 2), scales.height + 4, "band")


def _draw_offsets(canvas: Canvas, scales: _Scales) -> None:
    for y, offset in ((scales.top + 10, scales.starts[-1]), (scales.top + scales.height - 1, scales.starts[0])):
        canvas.text(LEFT - 8, y, f"{offset:,}", "quiet", size=11, anchor="end", width=LEFT - 12)


def _draw_question(canvas: Canvas, scales: _Scales, walk: Walk) -> None:
    asked, answer = walk.get("asked", {}), walk.get("answer", {})
    bottom = scales.top + scales.height
    if scales.high >= 0:
        for key in ("timestamp", "start_timestamp", "end_timestamp"):
            at = asked.get(key, -1)
            if 0 <= at < INT64_MAX:
                x = scales.x(at)
                canvas.line([(x, scales.top - 4), (x, bottom)], "asked-line")
                words = "until before" if key == "end_timestamp" else "asked for"
                words = f"{words}, earlier" if at < scales.low else f"{words}, later" if at > scales.high else words
                is_left = key == "start_timestamp" or x > RIGHT - _LABEL
                canvas.text(
                    x - 4 if is_left else x + 4, scales.top - 4, words, "asked", size=11, anchor="end" if is_left else "start"
                )
    if "offset" in asked:
        y = scales.y(asked["offset"])
        canvas.line([(LEFT - 4, y), (RIGHT, y)], "asked-line")
    offset = answer.get("offset", -1)
    if offset < 0:
        return
    if "end_offset" in answer and scales.high >= 0:
        x, right = scales.x(asked.get("start_timestamp", 0)), scales.x(asked.get("end_timestamp", INT64_MAX))
        y = scales.y(answer["end_offset"])
        wide = max(right - x, 5)
        kind = "found half" if wide > 5 else "found"
        canvas.rect((x + right - wide) / 2, y, wide, scales.y(offset) - y, kind, title=answer_text(answer, asked, None))
        return
    timestamp = answer.get("timestamp", answer.get("batch_max_timestamp", -1))
    y = scales.y(offset)
    if timestamp < 0 or scales.high < 0:
        canvas.line([(LEFT - 4, y), (RIGHT, y)], "found-line")
        return
    x = scales.x(timestamp)
    canvas.dot(x, y, 7, "paper")
    canvas.dot(x, y, 5, "found", title=f"offset {offset}")


def _beside(x: float, room: float) -> tuple[str, float]:
    """Return the anchor and the position of words around `x` that keep them inside the picture."""
    if x + room > RIGHT:
        return "end", RIGHT
    return ("start", LEFT) if x - room < LEFT - 30 else ("middle", x)


def _words(box: Stretch, zone: Zone) -> str:
    name = f"segment {box.start:020d}" if box.count == 1 else f"{count_text(box.count, 'segment')} from {box.start:020d} on"
    least = "not known" if box.least < 0 else format_time(box.least, zone)
    return f"{name}: {size_text(box.size_bytes)}, timestamps from {least} to {format_time(box.largest, zone)}"


def _one(boxes: list[Stretch]) -> Stretch:
    return Stretch(
        start=boxes[0].start,
        end=boxes[-1].end,
        count=sum(box.count for box in boxes),
        size_bytes=sum(box.size_bytes for box in boxes),
        least=min(box.least for box in boxes),
        largest=max(box.largest for box in boxes),
        is_chosen=any(box.is_chosen for box in boxes),
    )


_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_CLOCK_STEPS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S, _M, 2 * _M, 5 * _M, 10 * _M, 15 * _M, 30 * _M),
    *(_H, 2 * _H, 3 * _H, 6 * _H, 12 * _H),
)
_DAYS: Final = (1, 2, 5, 10)
_MONTHS: Final = (1, 2, 3, 6, *(12 * years for years in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTH_MS: Final = 30 * _D

Tick = tuple[int, str]


def time_ticks(low_ms: int, high_ms: int, most: int, zone: Zone) -> list[Tick]:
    """At most `most` marks from `low_ms` to `high_ms`: milliseconds, and words. Where no calendar reaches: numbers."""
    try:
        start, end = _moment(low_ms, zone), _moment(high_ms, zone)
        return _calendar_ticks(low_ms, high_ms, start, end, most, zone)
    except (OverflowError, ValueError, OSError):
        step = 1
        while (high_ms - low_ms) // step >= most:
            step *= 10
        first = -(-low_ms // step) * step
        return [(at, str(at)) for at in range(first, high_ms + 1, step)]


def _calendar_ticks(low: int, high: int, start: datetime, end: datetime, most: int, zone: Zone) -> list[Tick]:
    span = high - low
    for step in _CLOCK_STEPS:
        if span // step < most:
            shift = int((start.utcoffset() or timedelta()) / timedelta(milliseconds=1))
            first = -(-(low + shift) // step) * step - shift
            return [(at, _clock_text(_moment(at, zone), step)) for at in range(first, high + 1, step)]
    for days in _DAYS:
        if span // (days * _D) <= most:
            ticks = [(_ms(day, zone), f"{day:%Y-%m-%d}") for day in _days(start, end, days)]
            if len(found := [tick for tick in ticks if low <= tick[0] <= high]) <= most:
                return found
    for months in _MONTHS:
        if span // (months * _MONTH_MS) <= most:
            ticks = [(_ms(month, zone), _month_text(month, months)) for month in _month_starts(start, end, months)]
            if len(found := [tick for tick in ticks if low <= tick[0] <= high]) <= most:
                return found
    return [(low, f"{start.year:04d}"), (high, f"{end.year:04d}")]


def _days(start: datetime, end: datetime, days: int) -> Iterator[datetime]:
    day = datetime(start.year, start.month, start.day)
    while day.date() <= end.date():
        if days == 1 or ((day.day - 1) % days == 0 and day.day < 31):
            yield day
        day += timedelta(days=1)


def _month_starts(start: datetime, end: datetime, months: int) -> Iterator[datetime]:
    number = -(-(start.year * 12 + start.month - 1) // months) * months
    while number <= end.year * 12 + end.month - 1:
        if number >= 12:
            yield datetime(number // 12, number % 12 + 1, 1)
        number += months


def _clock_text(moment: datetime, step: int) -> str:
    if step >= _M:
        return f"{moment:%m-%d %H:%M}" if step >= _H else f"{moment:%H:%M}"
    return f"{moment:%H:%M:%S}" if step >= _S else f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


def _month_text(month: datetime, months: int) -> str:
    return f"{month.year:04d}" if months % 12 == 0 else f"{month.year:04d}-{month.month:02d}"


def _moment(ms: int, zone: Zone) -> datetime:
    return (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone)


def _ms(local: datetime, zone: Zone) -> int:
    moment = local.astimezone(UTC) if zone is None else local.replace(tzinfo=zone)
    return (moment - _EPOCH) // timedelta(milliseconds=1)
