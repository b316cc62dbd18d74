"""SVG as text: shapes and words put on a canvas of a given width that grows downwards, and their styles on light paper and on
dark.

All text comes from outside: it is escaped, control characters are shown as escapes, and it is cut to its space. The width of
words is estimated for a wide typeface, so that they fit in every one.

A kind of shape or words is a class; each has its colours written out twice, because not every program that shows SVG knows
variables. Words have a contrast of 4.5 or more to the paper (WCAG AA), and so have those on a shape to that shape.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ..cli.terminal.output import printable

WIDTH: Final = 880
MARGIN: Final = 20
INNER: Final = WIDTH - 2 * MARGIN
MAX_CHARACTERS: Final = 1_000
"""Of one piece of text, also of one that nobody sees unless asked for."""
_NO_XML: Final = {0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
_DIRECTIONS: Final = {
    code: f"\\u{code:04x}" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
"""Marks that would turn the words around them."""


class Canvas:
    """The picture drawn so far. Owner: the function that draws. Coordinates are CSS pixels from the upper left corner."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._said: list[str] = []
        self.bottom: float = 0
        """Below everything that is drawn."""

    def say(self, sentence: str) -> None:
        """A sentence of what the picture shows, for those who do not see it."""
        self._said.append(sentence)

    def rect(self, x: float, y: float, width: float, height: float, kind: str, *, title: str = "", radius: float = 0) -> None:
        """A rectangle; `title` is told where the pointer rests on it."""
        corners = f' rx="{_number(radius)}"' if radius else ""
        place = f'x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"'
        self._shape(f'rect class="{kind}" {place}{corners}', title)
        self._reach(y + height)

    def dot(self, x: float, y: float, radius: float, kind: str, *, title: str = "") -> None:
        """A filled circle."""
        self._shape(f'circle class="{kind}" cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}"', title)
        self._reach(y + radius)

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A line from point to point."""
        self._path(points, kind, "")

    def polygon(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """A closed line, for kinds that have a fill."""
        self._path(points, kind, "z")

    def text(
        self, x: float, y: float, text: str, kind: str = "ink", *, size: int = 12, anchor: str = "start", width: float = WIDTH
    ) -> float:
        """Words on the line `y`, cut to `width`; where they end, about."""
        wide = 1.16 if "strong" in kind else 1
        said = fitted(text, width / wide, size)
        side = "" if anchor == "start" else f' text-anchor="{anchor}"'
        shape = f'<text class="{kind}" x="{_number(x)}" y="{_number(y)}" font-size="{size}"{side}>'
        self._parts.append(f"{shape}{escape(said, quote=False)}</text>")
        self._reach(y + size / 3)
        return x + wide * text_width(said, size)

    def markup(self, *, is_alone: bool = True) -> str:
        """The picture: a file, or, not alone, a part of a page that has the `style` already."""
        height = _number(self.bottom + MARGIN)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="tp" role="img" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" font-family="{FONT}">'
        )
        lines = [
            head,
            f"<title>{_escaped(self._title)}</title>",
            f"<desc>{_escaped(' '.join(self._said))}</desc>",
            *([f"<style>{style()}</style>"] if is_alone else ()),
            f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
            *self._parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _path(self, points: Iterable[tuple[float, float]], kind: str, end: str) -> None:
        places = [(x, y) for x, y in points]
        steps = "L".join(f"{_number(x)} {_number(y)}" for x, y in places)
        self._parts.append(f'<path class="{kind}" d="M{steps}{end}"/>')
        self._reach(max(y for _, y in places))

    def _shape(self, shape: str, title: str) -> None:
        end = f"><title>{_escaped(title)}</title></{shape.partition(' ')[0]}>" if title else "/>"
        self._parts.append(f"<{shape}{end}")

    def _reach(self, y: float) -> None:
        self.bottom = max(self.bottom, y)


def fitted(text: str, width: float, size: int = 12) -> str:
    """The text, printable, with `…` for what there is no room for."""
    said = safe(text)
    if text_width(said, size) <= width:
        return said
    while said and text_width(said, size) > width - size:
        said = said[: min(len(said) - 1, max(0, int(len(said) * width / text_width(said, size))))]
    return said + "…" if said else ""


def fitting_size(text: str, width: float, sizes: Sequence[int]) -> int:
    """The first of these sizes in which all of the text has room, else the last."""
    return next((size for size in sizes if text_width(safe(text), size) <= width), sizes[-1])


def text_width(text: str, size: int = 12) -> float:
    """Return the greatest width of a text in most typefaces."""
    return size * sum(_width_of(character) for character in text)


def safe(text: str) -> str:
    """Return the text cut to MAX_CHARACTERS, with escapes for characters that are invisible or that XML forbids."""
    cut = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"
    return printable(cut).translate(_NO_XML).translate(_DIRECTIONS)


def merged(spans: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` spans that cover the same, in order: what overlaps is one, then what is closest to each other."""
    found: list[tuple[float, float]] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    if len(found) <= most:
        return found
    gaps = sorted(range(1, len(found)), key=lambda number: found[number][0] - found[number - 1][1])
    joined = set(gaps[: len(found) - most])
    rows: list[tuple[float, float]] = []
    for number, (start, stop) in enumerate(found):
        if number in joined:
            rows[-1] = rows[-1][0], stop
        else:
            rows.append((start, stop))
    return rows


def _escaped(text: str) -> str:
    return escape(safe(text), quote=False)


def _width_of(character: str) -> float:
    if character in "ijl.,:;|!'()[] ":
        return 0.38
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    return 0.86 if character in "MWmw%@→" else 0.72 if character.isupper() else 0.615


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


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
    "read-line": FILLS["read"],
    "cold-line": FILLS["cold"],
}
"""Class -> its stroke; such shapes have no fill."""
_MORE: Final = (
    "svg.tp text{font-variant-numeric:tabular-nums}"
    ".tp .strong{font-weight:600}"
    ".tp .unknown{stroke-dasharray:3 2}.tp .asked-line,.tp .found-line{stroke-width:1.5}"
    ".tp .walk,.tp .curve,.tp .read-line,.tp .cold-line{stroke-width:1.75;stroke-linejoin:round}"
    ".tp .clear{fill-opacity:.14}.tp .half{fill-opacity:.55}"
)


def style() -> str:
    """The rules, which hold inside of pictures alone."""
    return _rules(0) + _MORE + f"@media (prefers-color-scheme:dark){{{_rules(1)}}}"


def _rules(side: int) -> str:
    fills = (f".tp .{name}{{fill:{colors[side]}}}" for name, colors in FILLS.items())
    strokes = (f".tp .{name}{{stroke:{colors[side]};fill:none}}" for name, colors in STROKES.items())
    return "".join((*fills, *strokes))
