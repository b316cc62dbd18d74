"""The partition that a program's records go to."""

from __future__ import annotations

from ...protocol.records.partitioners import partition_for_key
from ..broker import Broker


def partition_of(core: Broker, topic: str, key: bytes | None, partition: int | None) -> int:
    """The partition that is named; otherwise that of the key, without one the first. Raises RequestError."""
    if partition is not None:
        return partition
    return 0 if key is None else partition_for_key(key, core.topics.partition_count(topic))
