"""A column of values decoded at once, and what becomes of those that do not parse.

All values of a batch are parsed together. Where that fails the batch is halved until what is wrong stands alone, so a value is
judged by the same parser whatever stands beside it, and a few bad ones cost little.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

MAX_REASON_CHARS: Final = 200
_OWN_ROW: Final = re.compile(r" in row 0$")


class Parser(Protocol):
    """Makes an array of values without nulls."""

    how: str
    """What the values are to be, in messages."""
    type: pa.DataType

    def parse(self, values: pa.Array) -> pa.Array:
        """A cell for each value. ValueError (ArrowInvalid is one) when one of them is wrong."""


class BadValue(NamedTuple):
    """A row that did not parse."""

    row: int
    reason: str


def decode_values(parser: Parser, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
    """The decoded column, with null for nulls and for what did not parse; and those rows, ascending."""
    rows = None
    if values.null_count:
        rows = values.is_valid()
        values = values.drop_null()
    parts: list[pa.Array] = []
    bad: list[BadValue] = []
    _parse(parser, values, 0, parts, bad)
    decoded = parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.nulls(0, parser.type)
    if rows is not None:
        places = rows.cast(pa.int64()).to_numpy(zero_copy_only=False).cumsum() - 1
        present = rows.to_numpy(zero_copy_only=False)
        decoded = decoded.take(pa.array(places, mask=~present))
        found = present.nonzero()[0]
        bad = [BadValue(int(found[each.row]), each.reason) for each in bad]
    return decoded, bad


def _parse(parser: Parser, values: pa.Array, first: int, parts: list[pa.Array], bad: list[BadValue]) -> None:
    if not len(values):
        return
    try:
        parts.append(parser.parse(values))
    except ValueError as exc:
        if len(values) == 1:
            parts.append(pa.nulls(1, parser.type))
            bad.append(BadValue(first, _in_one_line(exc)))
            return
        middle = len(values) // 2
        _parse(parser, values.slice(0, middle), first, parts, bad)
        _parse(parser, values.slice(middle), first + middle, parts, bad)


def _in_one_line(error: Exception) -> str:
    text = _OWN_ROW.sub("", " ".join(str(error).split()))
    return text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}..."
