"""JSON set in lines: tokens stay as they were written, numbers of any length and keys that come twice among them."""

from __future__ import annotations

import re
from typing import Final

TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
INDENT: Final = "  "
MAX_DEPTH: Final = 40
"""Lines are not indented any more from there on."""


def indented(text: str) -> str:
    """A text that is valid JSON, each member on a line of its own."""
    pieces: list[str] = []
    depth = 0
    before = ""
    for match in TOKENS.finditer(text):
        token = match[0]
        if token in "}]":
            depth -= 1
            if before not in "{[":
                pieces.append(_line(depth))
        elif before and before in "{[":
            pieces.append(_line(depth))
        pieces.append(token)
        if token in "{[":
            depth += 1
        elif token == ",":
            pieces.append(_line(depth))
        elif token == ":":
            pieces.append(" ")
        before = token
    return "".join(pieces)


def _line(depth: int) -> str:
    return "\n" + INDENT * min(depth, MAX_DEPTH)
