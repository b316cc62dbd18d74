"""Which partition of a coordinator's topic a group or a transactional id belongs to.

Java's `String.hashCode` over UTF-16 units, made positive, modulo the number of partitions (Kafka: Utils.abs,
GroupCoordinatorService.partitionFor, TransactionStateManager.partitionFor). Whoever opens the directory next has to look in
the same place.
"""

from __future__ import annotations

import codecs
from typing import Final

_SIGN: Final = 1 << 31
_MASK: Final = (1 << 32) - 1
_UTF_16: Final = codecs.lookup("utf-16-be").encode
"""Looked up here, because Python imports an encoding when it is first used, for which there may be no descriptor then."""


def java_hash(text: str) -> int:
    """String.hashCode: a signed 32 bit number."""
    units = _UTF_16(text)[0]
    value = 0
    for position in range(0, len(units), 2):
        value = 31 * value + (units[position] << 8 | units[position + 1]) & _MASK
    return value - (1 << 32) if value & _SIGN else value


def coordinator_partition(name: str, partitions: int) -> int:
    """The partition for a group or a transactional id. The smallest integer has no positive twin and counts as 0."""
    value = java_hash(name)
    return (0 if value == -_SIGN else abs(value)) % partitions
