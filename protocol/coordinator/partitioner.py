"""Which partition of a coordinator's topic a group or a transactional id belongs to.

Java's `String.hashCode` over UTF-16 units, made positive, modulo the number of partitions (Kafka: Utils.abs,
GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor). Whoever opens the directory next has to look in
the same place.
"""

from __future__ import annotations

import codecs
import functools
import struct
from operator import mul
from typing import Final

_SIGN: Final = 1 << 31
_MASK: Final = (1 << 32) - 1
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
        value = (value * powers[0] + sum(map(mul, block, powers[1:]))) & _MASK
    return value - (1 << 32) if value & _SIGN else value


_hash_of_short: Final = functools.lru_cache(256)(java_hash)
_SHORT: Final = 128


def coordinator_partition(name: str, partitions: int) -> int:
    """The partition for a group or a transactional id. The smallest integer has no positive twin and counts as 0."""
    value = _hash_of_short(name) if len(name) <= _SHORT else java_hash(name)
    return (0 if value == -_SIGN else abs(value)) % partitions
