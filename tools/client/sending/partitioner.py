"""Chooses the partition of a record: by its key as Kafka's clients do it, and in large runs for records without a key.

`protocol/records/partitioners` maps keys to partitions. Records without a key stay on one partition for a batch's worth of
bytes and then move to another (KIP-480, KIP-794): batches fill sooner than with one record here and one there.
"""

from __future__ import annotations

import random
from typing import Final

from ....protocol.records.partitioners import murmur2 as murmur2
from ....protocol.records.partitioners import partition_for_key as partition_for_key

_random: Final = random.Random()


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
