"""Areas of rectangles as shares of a whole: the squarified treemap (Bruls, Huizing, van Wijk 2000)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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
