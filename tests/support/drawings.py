"""What a picture shows, read out of its SVG."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

SVG: Final = "{http://www.w3.org/2000/svg}"
_OUTSIDE: Final = re.compile(r"(?:href|src|url\(|@import|<script|<foreignObject|\son\w+=)", re.IGNORECASE)


class Drawing:
    """A picture; whoever makes one has it checked that it is well-formed, says what it shows, and loads and runs nothing."""

    def __init__(self, markup: str) -> None:
        self.root = ElementTree.fromstring(markup)
        assert self.root.tag == f"{SVG}svg"
        assert self.root.get("role") == "img"
        assert self.title
        assert self.description
        assert not _OUTSIDE.search(re.sub(r">[^<]*<", "><", markup))

    @property
    def title(self) -> str:
        return self.root.findtext(f"{SVG}title") or ""

    @property
    def description(self) -> str:
        return self.root.findtext(f"{SVG}desc") or ""

    @property
    def texts(self) -> list[str]:
        """Words that are seen."""
        return [each.text or "" for each in self.root.iter(f"{SVG}text")]

    @property
    def hints(self) -> list[str]:
        """Words that the pointer finds."""
        return [each.text or "" for each in self.root.iter(f"{SVG}title")][1:]

    def rects(self, kind: str) -> list[tuple[float, float, float, float]]:
        """x, y, width and height of the rectangles of a class."""
        found = [each for each in self.root.iter(f"{SVG}rect") if kind in (each.get("class") or "").split()]
        return [_place(each, "x", "y", "width", "height") for each in found]

    def dots(self, kind: str) -> list[tuple[float, float, float, float]]:
        """x, y, radius and 0 of the dots of a class."""
        found = [each for each in self.root.iter(f"{SVG}circle") if each.get("class") == kind]
        return [_place(each, "cx", "cy", "r", "") for each in found]

    @property
    def size(self) -> tuple[float, float]:
        width, height, _, _ = _place(self.root, "width", "height", "", "")
        return width, height


def _place(element: ElementTree.Element, *names: str) -> tuple[float, float, float, float]:
    a, b, c, d = (float(element.get(name, "0")) for name in names)
    return a, b, c, d
