"""Many varints at once: the same encodings as `..varint`, an array of positions in, arrays of values and positions out.

A position may lie anywhere, also behind the data: reading is clipped to the data, never past it. Whoever asks must see in
the end that the positions came out where they should; what was read from elsewhere is then discarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

if TYPE_CHECKING:  # names for the arrays of this package; they need numpy
    import numpy as np
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    UInt8s = npt.NDArray[np.uint8]
    UInt64s = npt.NDArray[np.uint64]
    Bools = npt.NDArray[np.bool_]

_CONTINUES: Final = 0x80
_PAYLOAD: Final = 0x7F
_MASK_32: Final = 0xFFFFFFFF
_MASK_63: Final = 0x7FFFFFFFFFFFFFFF
_DENSE: Final = 4
"""With a continuation in more than one of 4 varints the second byte is read for all: indexing some costs as much."""


class LeftToScalarError(Exception):
    """Not damage yet: something that the scalar codec is to judge. Never leaves this package."""


def read_varints(data: UInt8s, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Signed 32 bit values, and the positions behind them. LeftToScalarError for one that does not end."""
    folded, positions = read_unsigned(data, positions, MAX_VARINT_BYTES)
    folded &= _MASK_32
    return (folded >> 1) ^ -(folded & 1), positions


def read_varlongs(data: UInt8s, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Signed 64 bit values, and the positions behind them. LeftToScalarError for one that does not end."""
    folded, positions = read_unsigned(data, positions, MAX_VARLONG_BYTES)
    return (folded >> 1 & _MASK_63) ^ -(folded & 1), positions


def read_unsigned(data: UInt8s, positions: Int64s, max_bytes: int) -> tuple[Int64s, Int64s]:
    """As many low bits as 64 hold, as they stand there; bits above are lost, as in Kafka's shifts."""
    import numpy as np

    first = data.take(positions, mode="clip")
    after = positions + 1
    rows = np.flatnonzero(first >= _CONTINUES)
    if not rows.size:
        return first.astype(np.int64), after
    values = (first & _PAYLOAD).astype(np.int64)
    shift = 7
    if rows.size * _DENSE > first.size:
        second = data.take(after, mode="clip")
        continues = first >> 7
        values += (second & _PAYLOAD).astype(np.int64) * continues << shift
        after += continues
        rows = np.flatnonzero(second & continues << 7)
        shift += 7
    while rows.size:
        if shift == 7 * max_bytes:
            raise LeftToScalarError
        byte = data.take(after[rows], mode="clip")
        values[rows] |= (byte & _PAYLOAD).astype(np.int64) << shift
        after[rows] += 1
        rows = rows[byte >= _CONTINUES]
        shift += 7
    return values, after
