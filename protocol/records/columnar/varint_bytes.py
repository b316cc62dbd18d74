"""Varints written for many records at once: the same bytes as `..varint` writes, as an Arrow column of byte strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

    from .arrays import Int64s, UInt64s


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
    import numpy as np
    import pyarrow as pa

    count = next(len(field.sizes) for field in fields if isinstance(field, Varints))
    widths = [1 if isinstance(field, int) else int(field.sizes.max(initial=1)) for field in fields]
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
            rest: UInt64s = field.folded
            for index in range(width):
                if index:
                    present[place + index] = field.sizes > index
                if index == width - 1:
                    matrix[place + index] = rest
                else:
                    matrix[place + index] = rest & 0x7F | (field.sizes > index + 1).astype(np.uint64) << 7
                    rest = rest >> np.uint64(7)
        place += width
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = matrix.T[present.T] if offsets[-1] < matrix.size else matrix.T.ravel()
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
