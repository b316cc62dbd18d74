"""The partition of a record's key, and of a group or transactional id, as Kafka chooses it.

Keys: MurmurHash2, 32 bit, seed 0x9747b28c (Kafka: Utils.murmur2), so that all records of a key are in one partition whichever
client wrote them. Groups and transactional ids: Java's `String.hashCode` over UTF-16 units, made positive, modulo the number of
partitions (Kafka: Utils.abs, GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor).
"""

from __future__ import annotations

import codecs
import functools
import struct
from operator import mul
from typing import Final

from ..types import Bytes

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK_32: Final = 0xFFFF_FFFF


def murmur2(data: Bytes) -> int:
    """The hash as an unsigned 32 bit int."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK_32
        h = (h * _M & _MASK_32) ^ ((k ^ k >> 24) * _M & _MASK_32)
    rest = length & 3
    if rest:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK_32
    h = (h ^ h >> 13) * _M & _MASK_32
    return h ^ h >> 15


def partition_for_key(key: Bytes, partitions: int) -> int:
    """The partition of a keyed record, as in Kafka's BuiltInPartitioner: the sign bit is dropped, not the sign."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


_SIGN: Final = 1 << 31
_UTF_16: Final = codecs.lookup("utf-16-be").encode
"""Looked up here, because Python imports an encoding when it is first used, for which there may be no descriptor then."""

_BLOCK: Final = 256
"""Units whose share is added up in one step: a transactional id may have 32,767 characters."""
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(_BLOCK, -1, -1))
"""From that of a whole block down to 1."""


def java_hash(text: str) -> int:
    """String.hashCode: a signed 32 bit number."""
    data = _UTF_16(text)[0]
    size = len(data) // 2
    units = struct.unpack(f">{size}H", data)
    value = 0
    for start in range(0, size, _BLOCK):
        block = units[start : start + _BLOCK]
        powers = _POWERS[-len(block) - 1 :]
        value = (value * powers[0] + sum(map(mul, block, powers[1:]))) & _MASK_32
    return value - (1 << 32) if value & _SIGN else value


_hash_of_short: Final = functools.lru_cache(256)(java_hash)
_SHORT: Final = 128


def coordinator_partition(name: str, partitions: int) -> int:
    """The partition for a group or a transactional id. The smallest integer has no positive twin and counts as 0."""
    value = _hash_of_short(name) if len(name) <= _SHORT else java_hash(name)
    return (0 if value == -_SIGN else abs(value)) % partitions
