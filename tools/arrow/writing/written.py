"""The result of a write."""

from __future__ import annotations

import attrs


@attrs.define
class WrittenPartition:
    """The acknowledged records of a partition; offsets of other producers may lie between."""

    records: int
    first_offset: int
    last_offset: int


@attrs.define
class Written:
    """The records that the server has acknowledged. Owner: the write."""

    topic: str
    records: int = 0
    bytes: int = 0
    """Of record batches, as they were sent."""
    partitions: dict[int, WrittenPartition] = attrs.field(factory=dict)

    def add(self, partition: int, records: int, base_offset: int, size: int) -> None:
        """Count one acknowledged batch."""
        self.records += records
        self.bytes += size
        last = base_offset + records - 1
        known = self.partitions.get(partition)
        if known is None:
            self.partitions[partition] = WrittenPartition(records, base_offset, last)
        else:
            known.records += records
            known.last_offset = last
