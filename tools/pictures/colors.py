"""Styles of the kinds of shapes and words in a picture, on light paper and on dark.

A kind is a class; each has its colours written out twice, because not every program that shows SVG knows variables. Words have
a contrast of 4.5 or more to the paper (WCAG AA), and so have those that lie on a shape to that shape.
"""

from __future__ import annotations

from typing import Final

FONT: Final = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif"
PAPER: Final = ("#ffffff", "#14191f")

FILLS: Final = {
    "paper": PAPER,
    "ink": ("#1b2530", "#e6ebf0"),
    "quiet": ("#576472", "#9dabb9"),
    "on-log": ("#ffffff", "#0d1319"),
    "found": ("#0b7a4b", "#4cc38a"),
    "asked": ("#b3261e", "#ff8a80"),
    "panel": ("#f5f7f9", "#1b2129"),
    "zoom": ("#e7eef6", "#1d2833"),
    "segment": ("#b9cbdd", "#3b5068"),
    "chosen": ("#2b6cb0", "#63a4e6"),
    "strip": ("#dfe5eb", "#2c3540"),
    "slot": ("#2b6cb0", "#63a4e6"),
    "read": ("#d9822b", "#e39a4a"),
    "cold": ("#8f4fb5", "#c08fe0"),
    "log": ("#2b6cb0", "#63a4e6"),
    "index": ("#d9822b", "#e39a4a"),
    "other": ("#66737f", "#8a97a5"),
    "beside": ("#b7bfc8", "#4d5966"),
    "band": ("#fbe3e1", "#3a2326"),
}
"""Class -> its fill, on light and on dark."""
STROKES: Final = {
    "grid": ("#dde3e9", "#2a333d"),
    "notch": ("#ffffff", "#14191f"),
    "edge": ("#8e9aa6", "#667482"),
    "unknown": ("#6b7885", "#8f9dab"),
    "asked-line": FILLS["asked"],
    "found-line": FILLS["found"],
    "walk": FILLS["slot"],
    "curve": FILLS["log"],
}
"""Class -> its stroke; such shapes have no fill."""
_MORE: Final = (
    "svg.tp text{font-variant-numeric:tabular-nums}"
    ".tp .strong{font-weight:600}"
    ".tp .unknown{stroke-dasharray:3 2}.tp .asked-line,.tp .found-line{stroke-width:1.5}"
    ".tp .walk,.tp .curve{stroke-width:1.75;stroke-linejoin:round}.tp .clear{fill-opacity:.14}.tp .half{fill-opacity:.55}"
)


def style() -> str:
    """The rules, which hold inside of pictures alone."""
    return _rules(0) + _MORE + f"@media (prefers-color-scheme:dark){{{_rules(1)}}}"


def _rules(side: int) -> str:
    fills = (f".tp .{name}{{fill:{colors[side]}}}" for name, colors in FILLS.items())
    strokes = (f".tp .{name}{{stroke:{colors[side]};fill:none}}" for name, colors in STROKES.items())
    return "".join((*fills, *strokes))
