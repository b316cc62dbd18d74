"""Records as a program gives them: with the key that they share, and the partition that it says."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.records.key_partition import partition_for_key
from ..broker import Broker, PlainRecord


def keyed(records: Sequence[PlainRecord | bytes], key: bytes | None) -> list[PlainRecord]:
    """Plain records: of values that are no tuples `key` is the key."""
    return [record if isinstance(record, tuple) else (None, key, record, ()) for record in records]


def partition_of(core: Broker, topic: str, key: bytes | None, partition: int | None) -> int:
    """The partition that is named; otherwise that of the key, without one the first. Raises RequestError."""
    if partition is not None:
        return partition
    return 0 if key is None else partition_for_key(key, core.topics.partition_count(topic))


def by_partition(records: Sequence[PlainRecord | bytes], partitions: int, without_key: int) -> dict[int, list[PlainRecord]]:
    """The records of each partition, in their order: by their own keys, those without one in `without_key`."""
    found: dict[int, list[PlainRecord]] = {}
    for record in keyed(records, None):
        key = record[1]
        found.setdefault(without_key if key is None else partition_for_key(key, partitions), []).append(record)
    return found
