"""Draws the disk usage as a picture: by kind of file, by topic and partition as areas, and line by line. Areas are those of the
squarified treemap (Bruls, Huizing, van Wijk 2000).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from ...server.offline.space import PartitionSpace, SegmentSpace, Space
from ..cli.terminal.output import count_text, size_text
from .canvas import INNER, MARGIN, Canvas, text_width

MOST_TOPICS: Final = 40
"""That have an area of their own; the others share one."""
MOST_PARTITIONS: Final = 60
"""Of a topic, the same."""
MOST_LINES: Final = 24
KINDS: Final = ("log", "index", "other", "beside")
WORDS: Final = ("log", "indexes and snapshots", "other files of partitions", "beside partitions")
_MAP_HEIGHT: Final = 250
_LOW_MAP_HEIGHT: Final = 96
_FEW_AREAS: Final = 8
_NAME_WIDTH: Final = 250
_BAR_LEFT: Final = MARGIN + _NAME_WIDTH + 12
_BAR_WIDTH: Final = INNER - _NAME_WIDTH - 12 - 120


Parts = tuple[int, int, int, int]


@attrs.frozen
class Line:
    """A line of the picture: the bytes that `name` occupies on the device, for each of KINDS."""

    name: str
    parts: Parts

    @property
    def size(self) -> int:
        return sum(self.parts)


def segments_line(name: str, segments: Iterable[SegmentSpace]) -> Line:
    """Return the line of segments: their logs and their indexes."""
    spaces = [(segment.log.allocated_bytes, segment.indexes.allocated_bytes) for segment in segments]
    return Line(name, (sum(log for log, _ in spaces), sum(indexes for _, indexes in spaces), 0, 0))


def partition_line(partition: PartitionSpace) -> Line:
    """A partition's line."""
    log, indexes, _, _ = segments_line("", partition.segments).parts
    return Line(str(partition.topic_partition), (log, indexes, partition.others.allocated_bytes, 0))


def space_picture(name: str, partitions: Sequence[PartitionSpace], rest: Space, lines: Iterable[Line] | None = None) -> Canvas:
    """The picture of the log directory `name`; `rest` lies beside its partitions, `lines` are topics, or partitions of one."""
    topics = _topics(partitions)
    log, indexes, others, _ = _sums(line for parts in topics.values() for line in parts)
    parts = (log, indexes, others, rest.allocated_bytes)
    content = sum(_content(partition) for partition in partitions) + rest.logical_bytes
    canvas = Canvas(f"room on the disk: {name}")
    canvas.text(MARGIN, MARGIN + 14, name, "ink strong", size=16, width=INNER)
    words = f"{count_text(len(partitions), 'partition')}, {size_text(content)} of content, {size_text(sum(parts))} on disk"
    canvas.text(MARGIN, MARGIN + 34, words, "quiet")
    canvas.say(f"{words}.")
    _draw_kinds(canvas, MARGIN + 46, parts)
    _draw_map(canvas, canvas.bottom + 16, topics)
    _draw_lines(canvas, canvas.bottom + 22, _lines(topics) if lines is None else lines, sum(parts))
    return canvas


def _topics(partitions: Iterable[PartitionSpace]) -> dict[str, list[Line]]:
    """Partitions by topic, the largest first of both."""
    topics: dict[str, list[Line]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic_partition.topic, []).append(partition_line(partition))
    for lines in topics.values():
        lines.sort(key=lambda line: -line.size)
    return dict(sorted(topics.items(), key=lambda topic: -sum(line.size for line in topic[1])))


def _content(partition: PartitionSpace) -> int:
    spaces = (space for segment in partition.segments for space in (segment.log, segment.indexes))
    return sum(space.logical_bytes for space in spaces) + partition.others.logical_bytes


def _sums(lines: Iterable[Line]) -> Parts:
    log, indexes, others, beside = (sum(part) for part in zip(*(line.parts for line in lines), strict=True))
    return log, indexes, others, beside


def _lines(topics: Mapping[str, Sequence[Line]]) -> list[Line]:
    """Of topics, or of the partitions of the only one."""
    if len(topics) == 1:
        return [line for lines in topics.values() for line in lines]
    return [Line(f"{name} ({count_text(len(lines), 'partition')})", _sums(lines)) for name, lines in topics.items()]


def _draw_kinds(canvas: Canvas, y: float, parts: Sequence[int]) -> None:
    whole = sum(parts)
    _draw_stack(canvas, Box(MARGIN, y, INNER, 16), parts, whole)
    x = float(MARGIN)
    for kind, words, part in zip(KINDS, WORDS, parts, strict=True):
        share = f" ({100 * part / whole:.0f}%)" if whole else ""
        canvas.rect(x, y + 25, 10, 10, kind, radius=2)
        x = canvas.text(x + 15, y + 34, f"{words} {size_text(part)}{share}", "quiet", size=11) + 6
        canvas.say(f"{words}: {size_text(part)}{share}.")


def _draw_stack(canvas: Canvas, box: Box, parts: Sequence[int], whole: int) -> None:
    """Parts beside each other; anything above nothing can be seen."""
    x, kinds = box.x, [(kind, part) for kind, part in zip(KINDS, parts, strict=True) if part]
    free = box.width - len(kinds)
    for kind, part in kinds:
        width = max(free * part / max(whole, 1), 0) + 1
        canvas.rect(x, box.y, width, box.height, kind, title=f"{WORDS[KINDS.index(kind)]}: {size_text(part)}")
        x += width


def _draw_map(canvas: Canvas, y: float, topics: Mapping[str, Sequence[Line]]) -> None:
    areas = [(name, lines, sum(line.size for line in lines)) for name, lines in topics.items()]
    if not sum(size for _, _, size in areas):
        return
    if rest := areas[MOST_TOPICS:]:
        name = f"others: {count_text(len(rest), 'topic')}"
        areas = sorted([*areas[:MOST_TOPICS], (name, [], sum(size for _, _, size in rest))], key=lambda area: -area[2])
    height = _LOW_MAP_HEIGHT if sum(len(lines) for _, lines, _ in areas) <= _FEW_AREAS else _MAP_HEIGHT
    boxes = treemap([size for _, _, size in areas], Box(MARGIN, y, INNER, height))
    for (name, lines, size), box in zip(areas, boxes, strict=True):
        _draw_topic(canvas, name, lines, size, box.inset(1))


def _draw_topic(canvas: Canvas, name: str, lines: Sequence[Line], size: int, box: Box) -> None:
    cells = [(line.name, line.size) for line in lines[:MOST_PARTITIONS]]
    if rest := lines[MOST_PARTITIONS:]:
        others = f"{name}, others: {count_text(len(rest), 'partition')}"
        cells = sorted([*cells, (others, sum(line.size for line in rest))], key=lambda cell: -cell[1])
    cells = cells or [(name, size)]
    for (cell, taken), place in zip(cells, treemap([taken for _, taken in cells], box), strict=True):
        around = place.inset(0.5)
        if around.width >= 0.4 and around.height >= 0.4:
            canvas.rect(*around, "log" if lines else "other", title=f"{cell}: {size_text(taken)}")
            _label(canvas, around, cell, size_text(taken))


def _label(canvas: Canvas, box: Box, name: str, size: str) -> None:
    """The name, where it has room, at least in part."""
    if box.height < 18 or box.width < 46:
        return
    canvas.text(box.x + 6, box.y + 15, name, "on-log", size=11, width=box.width - 10)
    if box.height >= 34 and text_width(size, 11) < box.width - 10:
        canvas.text(box.x + 6, box.y + 29, size, "on-log", size=11)


def _draw_lines(canvas: Canvas, y: float, lines: Iterable[Line], whole: int) -> None:
    ranked = sorted(lines, key=lambda line: -line.size)
    shown = ranked if len(ranked) <= MOST_LINES else ranked[: MOST_LINES - 1]
    if rest := ranked[len(shown) :]:
        shown.append(Line(f"others: {len(rest):,} more", _sums(rest)))
        canvas.say(f"{shown[-1].name}, {size_text(shown[-1].size)}.")
    most = max((line.size for line in shown), default=0)
    for line in shown:
        _draw_line(canvas, y, line, most, whole)
        y += 20


def _draw_line(canvas: Canvas, y: float, line: Line, most: int, whole: int) -> None:
    canvas.text(MARGIN, y + 11, line.name, "ink", width=_NAME_WIDTH)
    if line.size:
        box = Box(_BAR_LEFT, y, max(_BAR_WIDTH * line.size / max(most, 1), 2), 14)
        _draw_stack(canvas, box, line.parts, line.size)
    share = f"{100 * line.size / whole:.0f}%" if whole else ""
    canvas.text(MARGIN + INNER - 42, y + 11, size_text(line.size), "ink", anchor="end")
    canvas.text(MARGIN + INNER, y + 11, share, "quiet", anchor="end")


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float

    def inset(self, by: float) -> Box:
        """The same without a border."""
        by = min(by, self.width / 2, self.height / 2)
        return Box(self.x + by, self.y + by, self.width - 2 * by, self.height - 2 * by)


def treemap(sizes: Sequence[int], box: Box) -> list[Box]:
    """A box for each size, the largest first, that fill `box` together. Sizes are in descending order, and none is negative."""
    whole = sum(sizes)
    if not whole or box.width <= 0 or box.height <= 0:
        return [Box(box.x, box.y, 0, 0) for _ in sizes]
    areas = [size / whole * box.width * box.height for size in sizes]
    boxes: list[Box] = []
    at = 0
    while at < len(areas):
        side = min(box.width, box.height)
        stop = at + 1
        while stop < len(areas) and _worst(areas[at : stop + 1], side) <= _worst(areas[at:stop], side):
            stop += 1
        row, box = _lay(areas[at:stop], box)
        boxes += row
        at = stop
    return boxes


def _worst(row: Sequence[float], side: float) -> float:
    """The least square of a row's rectangles: its longer side in shorter ones."""
    total, least, most = sum(row), min(row), max(row)
    if least <= 0 or side <= 0:
        return float("inf")
    return max(side * side * most / (total * total), total * total / (side * side * least))


def _lay(row: Sequence[float], box: Box) -> tuple[list[Box], Box]:
    """The row along the shorter side, and what is left of the box."""
    total = sum(row)
    boxes = []
    if box.width >= box.height:
        width = min(total / box.height, box.width) if box.height else 0
        y = box.y
        for area in row:
            height = area / width if width else 0
            boxes.append(Box(box.x, y, width, height))
            y += height
        return boxes, Box(box.x + width, box.y, max(box.width - width, 0), box.height)
    height = min(total / box.width, box.height) if box.width else 0
    x = box.x
    for area in row:
        width = area / height if height else 0
        boxes.append(Box(x, box.y, width, height))
        x += width
    return boxes, Box(box.x, box.y + height, box.width, max(box.height - height, 0))
