"""Draws how figures grow: a panel for each figure, both axes logarithmic, a line for each server that was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from ...pictures.canvas import INNER, MARGIN, Canvas

COLUMNS: Final = 2
KINDS: Final = (("curve", "log"), ("read-line", "read"), ("cold-line", "cold"))
"""Class of a line and of its dots, in the order of names."""
_GAP: Final = 48
_WIDTH: Final = (INNER - _GAP * COLUMNS) / COLUMNS
_HEIGHT: Final = 150
_ROW: Final = _HEIGHT + 74


@attrs.frozen
class Curve:
    """The growth of a figure: the value at each number of things, by name of what is compared."""

    figure: str
    unit: str
    what: str
    """The things that there are more of, in the plural."""
    points: Mapping[str, Mapping[int, float]]


def growth_picture(title: str, curves: Sequence[Curve]) -> str:
    """Return an SVG file."""
    canvas = Canvas(title)
    names = list(dict.fromkeys(name for curve in curves for name in curve.points))
    x = canvas.text(MARGIN, MARGIN + 14, title, "ink strong", size=16) + 24
    for name, (_, dots) in zip(names, KINDS, strict=False):
        canvas.dot(x, MARGIN + 9, 4, dots)
        x = canvas.text(x + 9, MARGIN + 14, name, "quiet") + 16
    for number, curve in enumerate(curves):
        left = MARGIN + _GAP + number % COLUMNS * (_WIDTH + _GAP)
        _draw_panel(canvas, left, MARGIN + 40 + number // COLUMNS * _ROW, curve, names)
    return canvas.markup()


def _draw_panel(canvas: Canvas, left: float, top: float, curve: Curve, names: Sequence[str]) -> None:
    values = [value for points in curve.points.values() for value in points.values()]
    steps = sorted({step for points in curve.points.values() for step in points})
    low, high = _decades(values)
    bottom = top + 20 + _HEIGHT
    canvas.text(left, top + 10, f"{curve.figure}, {curve.unit}", "ink strong")
    canvas.rect(left, bottom - _HEIGHT, _WIDTH, _HEIGHT, "panel")

    def y(value: float) -> float:
        return bottom - _HEIGHT * (math.log10(value) - low) / (high - low)

    def x(step: int) -> float:
        first, last = math.log10(steps[0]), math.log10(steps[-1])
        return left + 12 + (_WIDTH - 24) * (math.log10(step) - first) / ((last - first) or 1)

    for exponent in range(low, high + 1):
        canvas.line([(left, y(10**exponent)), (left + _WIDTH, y(10**exponent))], "grid")
        canvas.text(left - 6, y(10**exponent) + 4, f"{10.0**exponent:,.10g}", "quiet", size=11, anchor="end")
    for step in steps:
        canvas.text(x(step), bottom + 16, f"{step:,}", "quiet", size=11, anchor="middle")
    canvas.text(left + _WIDTH, bottom + 30, curve.what, "quiet", size=11, anchor="end")
    for name, points in curve.points.items():
        line, dots = KINDS[names.index(name)]
        canvas.line([(x(step), y(value)) for step, value in points.items()], line)
        for step, value in points.items():
            canvas.dot(x(step), y(value), 3, dots, title=f"{name}, {step:,} {curve.what}: {value:.3g} {curve.unit}")
        canvas.say(f"{curve.figure}, {name}: {_told(points, curve)}.")


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten that enclose all values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _told(points: Mapping[int, float], curve: Curve) -> str:
    return ", ".join(f"{value:.3g} {curve.unit} with {step:,} {curve.what}" for step, value in points.items())
