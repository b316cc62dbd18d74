"""Which partition the records of a key are in, as Kafka's clients have it.

The hash is MurmurHash2, 32 bit, seed 0x9747b28c (Kafka: Utils.murmur2), so that records with one key meet in one partition
whoever wrote them.
"""

from __future__ import annotations

import struct
from typing import Final

from ..types import Bytes

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def murmur2(data: Bytes) -> int:
    """The hash as an unsigned 32 bit int."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    rest = length & 3
    if rest:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: Bytes, partitions: int) -> int:
    """The partition of a keyed record, as in Kafka's BuiltInPartitioner: the sign bit is dropped, not the sign."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
