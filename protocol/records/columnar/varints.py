"""Many varints at once: the same encodings as `..varint`, read from and written to arrays; and slices of a buffer as a column.

A position may be anywhere, also after the data: reading is clipped to the data, never past it. Callers check at the end that
the positions came out where they should, and discard everything if they did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ...types import Bytes
from ..varint import MAX_VARINT_BYTES, MAX_VARLONG_BYTES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

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


_WORD_BYTES: Final = 8


class Varints(NamedTuple):
    """Zigzag-folded values, and how many bytes each takes."""

    folded: UInt64s
    sizes: Int64s


def varints(values: Int64s) -> Varints:
    """Fold values of up to 64 bits, which is the same for those of 32."""
    import numpy as np

    folded = (values << 1 ^ values >> 63).view(np.uint64)
    sizes = np.ones(len(values), np.int64)
    bound = 1 << 7
    most = int(folded.max(initial=0))
    while most >= bound:
        sizes += folded >= bound
        bound <<= 7
    return Varints(folded, sizes)


def byte_strings(fields: Sequence[Varints | int]) -> pa.Array:
    """A binary column of the fields' bytes one behind another. A plain number is a byte of every row."""
    widths = [1 if isinstance(field, int) else int(field.sizes.max(initial=1)) for field in fields]
    return _in_words(fields, widths) if sum(widths) <= _WORD_BYTES else _in_matrix(fields, widths)


def _in_words(fields: Sequence[Varints | int], widths: Sequence[int]) -> pa.Array:
    """Each row is put together in one integer: less than half the time of the matrix."""
    import numpy as np

    count = next(len(field.sizes) for field in fields if isinstance(field, Varints))
    words = np.zeros(count, "<u8")
    lengths = np.zeros(count, np.int64)
    for field, width in zip(fields, widths, strict=True):
        shifts = (lengths << 3).view(np.uint64)
        if isinstance(field, int):
            words |= np.uint64(field) << shifts
            lengths += 1
        else:
            for index in range(width):
                words |= _varint_byte(field, index, width) << shifts
                shifts += np.uint64(8)
            lengths += field.sizes
    return gather(words.tobytes(), np.arange(0, _WORD_BYTES * count, _WORD_BYTES), lengths)


def _in_matrix(fields: Sequence[Varints | int], widths: Sequence[int]) -> pa.Array:
    """Each row has room for the longest of every field; what is not there is left out in the end."""
    import numpy as np
    import pyarrow as pa

    count = next(len(field.sizes) for field in fields if isinstance(field, Varints))
    matrix = np.empty((sum(widths), count), np.uint8)
    present = np.ones((sum(widths), count), np.bool_)
    lengths = np.zeros(count, np.int64)
    place = 0
    for field, width in zip(fields, widths, strict=True):
        if isinstance(field, int):
            matrix[place] = field
            lengths += 1
        else:
            lengths += field.sizes
            for index in range(width):
                present[place + index] = field.sizes > index
                matrix[place + index] = _varint_byte(field, index, width)
        place += width
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = matrix.T[present.T]
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _varint_byte(field: Varints, index: int, width: int) -> UInt64s:
    """The byte at `index` of each varint; 0 behind its end."""
    import numpy as np

    byte: UInt64s = field.folded if index == 0 else field.folded >> np.uint64(7 * index)
    if index < width - 1:
        byte = byte & np.uint64(0x7F) | (field.sizes > index + 1).astype(np.uint64) << np.uint64(7)
    return byte


def gather(buffer: Bytes, starts: Int64s, lengths: Int64s) -> pa.Array:
    """A binary column of `buffer[start : start + length]`; null where the length is negative.

    Slices must lie in the buffer one behind another, and the buffer must be below 2 GiB: this is not checked. The result
    does not keep the buffer.
    """
    import numpy as np
    import pyarrow as pa

    count = len(starts)
    if not count:
        return pa.array([], type=pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    nulls = lengths < 0
    validity = None
    if nulls.any():
        offsets[1::2] = starts + np.maximum(lengths, 0)
        valid = np.ones(2 * count, np.bool_)
        valid[0::2] = ~nulls
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    else:
        offsets[1::2] = starts + lengths
    # Every second of the slices between the offsets is one of those asked for.
    slices = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [validity, pa.py_buffer(offsets), pa.py_buffer(buffer)])
    return slices.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
