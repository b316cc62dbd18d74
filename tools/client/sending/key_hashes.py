"""Partitions for the rows of a column of keys: `partitioner`'s rule for many rows at once. Needs numpy and pyarrow.

The hash is MurmurHash2 (Kafka: Utils.murmur2). Rows are grouped by the length of their keys, so that one numpy operation mixes
the same word of all keys of a group; groups that are too small for that are hashed one by one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from . import partitioner

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_MASK: Final = 0xFFFF_FFFF
_SIGN: Final = 0x7FFF_FFFF
LEAST_GROUP: Final = 32
"""Rows from which numpy's cost per operation (about 1 us, ten for a word) is below that of Python's loop over words."""


def murmur2_of_keys(keys: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The hash of every key as an unsigned 32 bit number; that of a null key means nothing. Takes slices too."""
    hashes = np.zeros(len(keys), np.uint32)
    if not len(keys):
        return hashes
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    _, begins = np.unique(lengths[order], return_index=True)
    for rows in np.split(order, begins[1:]):
        length = int(lengths[rows[0]])
        starts = offsets[rows]
        if len(rows) < LEAST_GROUP:
            view = memoryview(data_buffer or b"")
            hashes[rows] = [partitioner.murmur2(view[start : start + length]) for start in starts.tolist()]
        else:
            hashes[rows] = _hash_group(data, starts, length)
    return hashes


def partitions_for_keys(keys: pa.BinaryArray, partitions: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The partition of every keyed row, as in Kafka's BuiltInPartitioner; what stands for a null key means nothing."""
    return (murmur2_of_keys(keys) & np.uint32(_SIGN)).astype(np.int64) % partitions


def _hash_group(
    data: np.ndarray[Any, np.dtype[np.uint8]], starts: np.ndarray[Any, np.dtype[np.int64]], length: int
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The hashes of keys of one length; uint32 arrays wrap around, which is what the hash wants."""
    h = np.full(len(starts), (_SEED ^ length) & _MASK, np.uint32)
    words = length >> 2
    if words:
        # Element i is the little-endian word that begins at byte i: keys begin anywhere.
        at = np.ndarray((len(data) - 3,), np.dtype("<u4"), data, strides=(1,))
        for word in range(words):
            k = at[starts + 4 * word] * _M
            k = (k ^ (k >> np.uint32(24))) * _M
            h = (h * _M) ^ k
    if length & 3:
        tail = np.zeros(len(starts), np.uint32)
        for index in range(length & 3):
            tail |= data[starts + 4 * words + index].astype(np.uint32) << np.uint32(8 * index)
        h = (h ^ tail) * _M
    h = (h ^ (h >> np.uint32(13))) * _M
    return h ^ (h >> np.uint32(15))
