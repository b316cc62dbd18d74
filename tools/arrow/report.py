"""The findings of a read, updated while the read continues."""

from __future__ import annotations

import attrs

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
