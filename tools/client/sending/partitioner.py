"""Which partition a record goes to: by its key as Kafka's clients do it, and without one in large runs.

The hash is MurmurHash2, 32 bit, seed 0x9747b28c (Kafka: Utils.murmur2), so that records with one key meet in one partition
whichever client wrote them. Records without a key stay on one partition for a batch's worth of bytes and then move to
another (KIP-480, KIP-794): batches fill sooner than with one record here and one there.
"""

from __future__ import annotations

import random
import struct
from typing import Final

from ....protocol.types import Bytes

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF
_random: Final = random.Random()


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


class StickyPartitioner:
    """The partition for records of one topic that have no key. Owned by its producer."""

    __slots__ = ("_partition", "_partitions", "_random", "_run_bytes", "_taken_bytes")

    def __init__(self, partitions: int, run_bytes: int, source: random.Random = _random) -> None:
        self._partitions = partitions
        self._run_bytes = run_bytes
        self._random = source
        self._taken_bytes = 0
        self._partition = source.randrange(partitions)

    def partition_for(self, size_bytes: int) -> int:
        """The partition for a record of this size."""
        partition = self._partition
        self._taken_bytes += size_bytes
        if self._taken_bytes >= self._run_bytes:
            self._move_on()
        return partition

    def _move_on(self) -> None:
        self._taken_bytes = 0
        if self._partitions > 1:
            step = self._random.randrange(1, self._partitions)
            self._partition = (self._partition + step) % self._partitions
