"""What a share-partition is asked and answers (KIP-932)."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs


class RecordState(enum.IntEnum):
    """What has become of a record; the numbers stand in the log (Kafka: RecordState)."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member has it, under a lock that ends. Never in the log: after a restart nobody has it."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """Given up: rejected, delivered too often, or not there."""

    @property
    def is_terminal(self) -> bool:
        return self >= RecordState.ACKNOWLEDGED


class AcquireMode(enum.IntEnum):
    """How many records a member gets (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """About as many as it wants: whole batches."""
    RECORD_LIMIT = 1
    """Not more than it wants."""


class AcknowledgeType(enum.IntEnum):
    """What a member says of an offset."""

    GAP = 0
    """There is no record for it."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """It takes longer: the lock begins anew (KIP-1222)."""


TARGETS: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
"""What each makes of a record; a renewal leaves it as it is."""


OUTCOMES: Final = {
    AcknowledgeType.GAP: "gaps",
    AcknowledgeType.ACCEPT: "accepted",
    AcknowledgeType.RELEASE: "released",
    AcknowledgeType.REJECT: "rejected",
}
"""What each counts as, by the names of `ShareCounters`."""


class ShareKey(NamedTuple):
    """A share-partition: a partition as one group reads it."""

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"group {self.group_id!r}, topic {self.topic_id.hex()}, partition {self.partition}"


class OffsetRange(NamedTuple):
    """Offsets, both ends included."""

    first: int
    last: int


class AcquiredRecords(NamedTuple):
    """Offsets that a member was given, both ends included, and how often they have been given by now."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """What a member says of offsets, both ends included: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class StateBatch(NamedTuple):
    """Offsets, both ends included, as they are stored."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


@attrs.define(eq=False, repr=False)
class ShareCounters:
    """What has become of records since the start, over all groups. Owner: `SharePartitions`, whose share-partitions count."""

    acquired: int = 0
    """Given to a member, each time."""
    accepted: int = 0
    released: int = 0
    """Given back by a member, or because it is gone."""
    rejected: int = 0
    gaps: int = 0
    """A member said that there is no record."""
    renewed: int = 0
    lock_timeouts: int = 0
    archived: int = 0
    """Given up: they were given back after the last delivery there may be."""

    def add(self, counted: Counter[str]) -> None:
        """By name of the outcome."""
        for name, count in counted.items():
            setattr(self, name, getattr(self, name) + count)
