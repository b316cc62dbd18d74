"""Draws a lookup in one segment as strips below each other. The slot of the time index leads to the slot of the offset index,
which leads to a position in the log, where reading starts."""

from __future__ import annotations

from typing import Any, Final

from ..cli.terminal.output import count_text, size_text
from ..cli.terminal.times import Zone, format_time
from ..cli.terminal.walk_words import reads_text
from .canvas import INNER, MARGIN, Canvas, merged

STRIP_LEFT: Final = MARGIN + 108
STRIP_WIDTH: Final = 336
WORDS_LEFT: Final = STRIP_LEFT + STRIP_WIDTH + 18
WORDS_WIDTH: Final = MARGIN + INNER - WORDS_LEFT - 12
STRIP_HEIGHT: Final = 22
ROW: Final = 48
MOST_READS: Final = 200
"""That are drawn one by one."""
MOST_SLOTS: Final = 80
"""Of an index whose entries are drawn one by one."""
_HEAD: Final = 30
_COMPACT: Final = 36

Step = dict[str, Any]


def panel_height(step: Step) -> float:
    """Of what `draw_segment` draws."""
    return _HEAD + ROW * (1 + sum(name in step for name in ("time_index", "offset_index"))) - 12


def draw_segment(canvas: Canvas, top: float, step: Step, walk: Step, zone: Zone) -> float:
    """The segment that a lookup has looked into, below `top`; returns where it ends."""
    bottom = top + panel_height(step)
    canvas.rect(MARGIN, top, INNER, bottom - top, "zoom", radius=4)
    active = ", active" if step.get("is_active") else ""
    count = walk.get("segment_count", 0)
    end = canvas.text(MARGIN + 12, top + 20, f"segment {step.get('segment', 0):020d}", "ink strong")
    words = f"number {step.get('number', 0) + 1} of {count}{active}, {size_text(step.get('size_bytes', 0))}, "
    words += f"largest timestamp {format_time(step.get('max_timestamp', -1), zone)}"
    canvas.text(end + 4, top + 20, words, "quiet", width=MARGIN + INNER - end - 12)
    y = top + _HEAD
    origin: float | None = None
    for name, label in (("time_index", "time index"), ("offset_index", "offset index")):
        if (index := step.get(name)) is not None:
            origin = _draw_index(canvas, y, label, index, zone, origin)
            y += ROW
    _draw_scan(canvas, y, step, walk, origin)
    return bottom


def draw_compact(canvas: Canvas, top: float, step: Step, most_bytes: int) -> float:
    """Draw another segment with records of a range: only its log, with a length to scale with the others. Return its bottom."""
    width = max(STRIP_WIDTH * step.get("size_bytes", 0) / max(most_bytes, 1), 2)
    canvas.text(MARGIN + 12, top + 15, f"{step.get('segment', 0)}", "ink", width=STRIP_LEFT - MARGIN - 20)
    canvas.rect(STRIP_LEFT, top, width, STRIP_HEIGHT, "strip", radius=2)
    _draw_reads(canvas, top, step, width)
    runs = f"{size_text(step.get('run_bytes', 0))} in {count_text(step.get('runs', 0), 'run')} of batches"
    _draw_words(canvas, top, runs, f"scanned{reads_text(step)}")
    return top + _COMPACT


def _draw_index(canvas: Canvas, y: float, label: str, index: Step, zone: Zone, origin: float | None) -> float:
    slot, entries = index.get("slot", -1), max(index.get("entries", 0), 0)
    canvas.text(MARGIN + 12, y + 15, label, "ink")
    canvas.rect(STRIP_LEFT, y, STRIP_WIDTH, STRIP_HEIGHT, "strip", radius=2)
    each = STRIP_WIDTH / max(entries, 1)
    if 1 < entries <= MOST_SLOTS:
        for number in range(1, entries):
            canvas.line([(STRIP_LEFT + number * each, y), (STRIP_LEFT + number * each, y + STRIP_HEIGHT)], "notch")
    if slot < 0:
        x = STRIP_LEFT
        canvas.rect(x - 2, y - 2, 4, STRIP_HEIGHT + 4, "slot", radius=2)
        what, found = f"none of {count_text(entries, 'entry', 'entries')} is low enough", "from the start of the segment"
    else:
        width = max(each, 4)
        left = min(STRIP_LEFT + slot * each, STRIP_LEFT + STRIP_WIDTH - width)
        canvas.rect(left, y - 2, width, STRIP_HEIGHT + 4, "slot", radius=2)
        x = left + width / 2
        what, found = f"slot {slot} of {entries}", f"offset {index.get('offset')} → position {index.get('position')}"
        if "timestamp" in index:
            found = f"{format_time(index['timestamp'], zone)} → offset {index.get('offset')}"
    _draw_words(canvas, y, what, found)
    _draw_way(canvas, origin, x, y)
    return x


def _draw_scan(canvas: Canvas, y: float, step: Step, walk: Step, origin: float | None) -> None:
    size = max(step.get("size_bytes", 0), 1)
    canvas.text(MARGIN + 12, y + 15, "log", "ink")
    canvas.rect(STRIP_LEFT, y, STRIP_WIDTH, STRIP_HEIGHT, "strip", radius=2)
    _draw_reads(canvas, y, step, STRIP_WIDTH)
    position = max(step.get("offset_index", {}).get("position", 0), 0)
    x = STRIP_LEFT + min(position / size, 1) * STRIP_WIDTH
    answer = walk.get("answer", {})
    reads = step.get("reads", ())
    where = f"from position {position}" if reads else "nothing to read"
    if "batch_bytes" in answer and answer.get("position", 0) < size and step is walk.get("segments", [step])[-1]:
        width = max(answer["batch_bytes"] / size * STRIP_WIDTH, 4)
        left = min(STRIP_LEFT + answer["position"] / size * STRIP_WIDTH, STRIP_LEFT + STRIP_WIDTH - width)
        canvas.rect(
            left, y + 5, width, STRIP_HEIGHT - 10, "found", radius=2, title=f"the batch at position {answer['position']}"
        )
        where += f"; the batch is at {answer['position']}"
    _draw_words(canvas, y, f"scanned{reads_text(step)}", where)
    _draw_way(canvas, origin, x, y)


def _draw_reads(canvas: Canvas, y: float, step: Step, width: float) -> None:
    size = max(step.get("size_bytes", 0), 1)
    reads = step.get("reads", ())
    for kind, is_cached in (("read", True), ("cold", False)):
        spans = [
            (float(read["position"]), float(read["position"] + read["bytes"]))
            for read in reads
            if bool(read["cached"]) is is_cached
        ]
        for start, stop in merged(spans, MOST_READS):
            left = STRIP_LEFT + min(start / size, 1) * width
            right = STRIP_LEFT + min(stop / size, 1) * width
            wide = min(max(right - left, 2), width)
            words = f"bytes {start:.0f} to {stop:.0f}, {'cached' if is_cached else 'cold'}"
            canvas.rect(min(left, STRIP_LEFT + width - wide), y, wide, STRIP_HEIGHT, kind, title=words)


def _draw_words(canvas: Canvas, y: float, what: str, found: str) -> None:
    canvas.text(WORDS_LEFT, y + 9, what, "ink", width=WORDS_WIDTH)
    canvas.text(WORDS_LEFT, y + 24, found, "quiet", size=11, width=WORDS_WIDTH)


def _draw_way(canvas: Canvas, origin: float | None, x: float, y: float) -> None:
    """An arrow from what was found in the strip above to where that leads in the strip at `y`."""
    if origin is None:
        return
    start, end = y - ROW + STRIP_HEIGHT + 3, y - 4
    middle = (start + end) / 2
    canvas.line([(origin, start), (origin, middle), (x, middle), (x, end - 4)], "walk")
    canvas.polygon([(x - 4, end - 5), (x + 4, end - 5), (x, end + 1)], "slot")
