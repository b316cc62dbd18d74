"""The headers of all records of a group: the first header of each record at once, then the second, and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .varints import LeftToScalarError, read_varints

if TYPE_CHECKING:
    from .varints import Int64s, UInt8s

MAX_HEADERS: Final = 64
"""Of one record here: there is a step for each, however few records have that many. More are left to the scalar codec."""


class HeaderFields(NamedTuple):
    """`counts` is per record, the rest per header, in their order: its record, and where key and value lie."""

    counts: Int64s
    records: Int64s
    key_starts: Int64s
    key_lengths: Int64s
    value_starts: Int64s
    value_lengths: Int64s


def read_headers(data: UInt8s, positions: Int64s, ends: Int64s) -> tuple[HeaderFields, Int64s]:
    """The headers, and the positions behind them. LeftToScalarError for negative lengths of keys, and for many headers."""
    import numpy as np

    counts, positions = read_varints(data, positions)
    rows = np.flatnonzero(counts)
    if rows.size and ((counts < 0) | (counts > MAX_HEADERS) | (counts > ends - positions)).any():
        raise LeftToScalarError
    steps = []
    remaining = counts[rows]
    while rows.size:
        key_lengths, key_starts = read_varints(data, positions[rows])
        if (key_lengths < 0).any():
            raise LeftToScalarError
        value_lengths, value_starts = read_varints(data, key_starts + key_lengths)
        positions[rows] = value_starts + np.maximum(value_lengths, 0)
        steps.append((rows, key_starts, key_lengths, value_starts, value_lengths))
        remaining -= 1
        rows, remaining = rows[remaining > 0], remaining[remaining > 0]
    if not steps:
        none = np.empty(0, np.int64)
        return HeaderFields(counts, none, none, none, none, none), positions
    columns = [np.concatenate(parts) for parts in zip(*steps, strict=True)]
    order = np.argsort(columns[1], kind="stable")
    return HeaderFields(counts, *(column[order] for column in columns)), positions
