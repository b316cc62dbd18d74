"""A curve over time with what happened on the way, and bars beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from .canvas import INNER, MARGIN, Canvas

HEIGHT: Final = 150
LEFT: Final = MARGIN + 76
WIDTH: Final = INNER - 76
MOST_POINTS: Final = 600
"""Of a curve that are drawn."""
MOST_BARS: Final = 60
_STEPS: Final = (1, 2, 5, 10)


@attrs.frozen
class Bar:
    """A bar with what stands below it; `words` are told where the pointer rests."""

    label: str
    value: float
    words: str


def curve_picture(
    title: str, points: Sequence[tuple[float, float]], marks: Sequence[tuple[float, str]], *, across: str, up: str
) -> Canvas:
    """A curve through `points`, with a line at each of `marks`; `across` and `up` say what the axes are."""
    canvas = _titled(title)
    canvas.say(f"{up} by {across}, up to {max((y for _, y in points), default=0):,.0f}.")
    top = canvas.bottom + 22 + 15 * len(marks)
    most_x, most_y = max((x for x, _ in points), default=0) or 1, max((y for _, y in points), default=0) or 1
    _draw_axes(canvas, top, most_x, most_y, across, up)
    places = [
        (LEFT + x / most_x * WIDTH, top + HEIGHT * (1 - y / most_y)) for x, y in points[:: -(-len(points) // MOST_POINTS) or 1]
    ]
    if places:
        canvas.polygon([(places[0][0], top + HEIGHT), *places, (places[-1][0], top + HEIGHT)], "log clear")
        canvas.line(places, "curve")
    for number, (at, words) in enumerate(marks):
        x = LEFT + min(max(at / most_x, 0), 1) * WIDTH
        y = top - 6 - 15 * (len(marks) - 1 - number)
        canvas.line([(x, y - 8), (x, top + HEIGHT)], "asked-line")
        is_left = x > MARGIN + INNER / 2
        canvas.text(x - 5 if is_left else x + 5, y, words, "asked", size=11, anchor="end" if is_left else "start")
        canvas.say(f"{words} at {at:.2f}.")
    return canvas


def bar_picture(title: str, bars: Sequence[Bar], *, up: str) -> Canvas:
    """Bars from left to right, MOST_BARS of them at most."""
    canvas = _titled(title)
    shown = bars[:MOST_BARS]
    most = max((bar.value for bar in shown), default=0) or 1
    top = canvas.bottom + 22
    _draw_axes(canvas, top, 0, most, "", up)
    each = WIDTH / max(len(shown), 1)
    for number, bar in enumerate(shown):
        height = HEIGHT * max(bar.value, 0) / most
        x = LEFT + number * each
        canvas.rect(x + each * 0.1, top + HEIGHT - height, each * 0.8, height, "log", title=f"{bar.label}: {bar.words}")
        canvas.text(x + each / 2, top + HEIGHT + 15, bar.label, "quiet", size=10, anchor="middle", width=max(each, 26))
    canvas.say("; ".join([up, *(f"{bar.label}: {bar.words}" for bar in shown)]))
    return canvas


def _titled(title: str) -> Canvas:
    canvas = Canvas(title)
    canvas.text(MARGIN, MARGIN + 12, title, "ink strong", size=14, width=INNER)
    return canvas


def _draw_axes(canvas: Canvas, top: float, most_x: float, most_y: float, across: str, up: str) -> None:
    canvas.rect(LEFT, top, WIDTH, HEIGHT, "panel")
    for at in _round_marks(most_y, 4):
        y = top + HEIGHT * (1 - at / most_y)
        canvas.line([(LEFT, y), (LEFT + WIDTH, y)], "grid")
        canvas.text(LEFT - 8, y + 4, f"{at:,g}", "quiet", size=11, anchor="end")
    for at in _round_marks(most_x, 9):
        x = LEFT + at / most_x * WIDTH
        canvas.text(x, top + HEIGHT + 15, f"{at:,g}", "quiet", size=11, anchor="start" if not at else "middle")
    canvas.text(MARGIN, top - 8, up, "quiet", size=11, width=LEFT + 90)
    if across:
        canvas.text(LEFT + WIDTH, top + HEIGHT + 29, across, "quiet", size=11, anchor="end")


def _round_marks(most: float, count: int) -> list[float]:
    """About `count` round numbers from 0 up to `most`."""
    if most <= 0:
        return []
    power = 1.0
    while power * 10 <= most:
        power *= 10
    while power > most:
        power /= 10
    step = next(
        (step for power in (power / 10, power) for step in (part * power for part in _STEPS) if most / step <= count), most
    )
    return [number * step for number in range(int(most / step + 1e-9) + 1)]
