"""Varints written for many records at once: the same bytes as `..varint` writes, as an Arrow column of byte strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from .gather import gather

if TYPE_CHECKING:
    import pyarrow as pa

    from .varints import Int64s, UInt64s


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
