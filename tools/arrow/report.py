"""The outcome of a read and of a write: what was read, the values that did not parse, the records that were acknowledged; and
the errors of both, each a message of one line.
"""

from __future__ import annotations

import attrs

from ...protocol.errors import TriologError
from ...protocol.types import TopicPartition


@attrs.define
class BadValues:
    """Values of one partition that did not parse and are null."""

    count: int
    first_offset: int
    reason: str
    """Of the first."""


@attrs.define
class Report:
    """Give one to `read` to learn how far it is and what it left out. Owner: that read."""

    rows: int = 0
    log_bytes: int = 0
    """Of the batches that were looked at, as stored."""
    bad_values: dict[TopicPartition, BadValues] = attrs.field(factory=dict)

    def add_bad(self, partition: TopicPartition, count: int, first_offset: int, reason: str) -> None:
        """Count values that are null now."""
        known = self.bad_values.get(partition)
        if known is None:
            self.bad_values[partition] = BadValues(count, first_offset, reason)
        else:
            known.count += count


class ArrowError(TriologError):
    """A question that cannot be answered: a topic, column or range that is not there, values or rows that do not fit."""


class ValuesError(ArrowError):
    """Values that do not parse, with `errors="raise"`. They are counted in the Arrow batch where the first one was found."""

    def __init__(self, topic: str, partition: int, offset: int, count: int, values: int, how: str, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition} offset {offset}: {reason}; {count} of {values} values from there on are not {how}. "
            'errors="null" gives null for such values'
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.count = count


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
