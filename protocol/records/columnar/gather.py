"""Slices of one buffer as an Arrow column: one copy, made in C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...types import Bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from .varints import Int64s


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
