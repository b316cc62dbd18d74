"""The inputs and outputs of a share-partition's state, and the configuration of its group (KIP-932)."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs

from ....protocol.types import Isolation
from ...config.resource_keys import GroupConfig

# ---- configuration ---------------------------------------------------------------------------------------------------------


class OffsetReset(enum.Enum):
    """The offset where a group begins in a partition that it has never read: `share.auto.offset.reset`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


@attrs.frozen(kw_only=True)
class ShareConfig:
    """The configuration of one share group; Kafka's defaults (Kafka: GroupConfig, ShareGroupConfig; KIP-932, KIP-1222)."""

    offset_reset: OffsetReset = OffsetReset.LATEST
    offset_reset_duration_ms: int = 0
    """How far back BY_DURATION begins."""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    """`share.isolation.level`."""
    record_lock_duration_ms: int = 30_000
    """`share.record.lock.duration.ms`: after it a record that a member has not acknowledged is given to another."""
    delivery_count_limit: int = 5
    """`share.delivery.count.limit`: a record that is given back after so many deliveries is archived."""
    partition_max_record_locks: int = 2_000
    """`share.partition.max.record.locks`: offsets of a partition between the first that is not done and the last that was
    given to a member."""
    renew_acknowledge_enabled: bool = True
    """`share.renew.acknowledge.enable`."""
    session_timeout_ms: int = 45_000
    """`share.session.timeout.ms`."""
    heartbeat_interval_ms: int = 5_000
    """`share.heartbeat.interval.ms`."""
    dead_letter_topic: str = ""
    """`errors.deadletterqueue.topic.name` (KIP-1191); empty: records that are given up are archived, and nothing else."""
    copies_dead_letters: bool = False
    """`errors.deadletterqueue.copy.record.enable`."""

    @classmethod
    def of(cls, values: GroupConfig) -> ShareConfig:
        """Return the configuration of a group with these values of keys."""
        reset = values["share.auto.offset.reset"]
        return cls(
            offset_reset=OffsetReset(reset.strategy),
            offset_reset_duration_ms=reset.duration_ms or 0,
            isolation=Isolation.READ_COMMITTED if values["share.isolation.level"] else Isolation.READ_UNCOMMITTED,
            record_lock_duration_ms=values["share.record.lock.duration.ms"],
            delivery_count_limit=values["share.delivery.count.limit"],
            partition_max_record_locks=values["share.partition.max.record.locks"],
            renew_acknowledge_enabled=values["share.renew.acknowledge.enable"],
            session_timeout_ms=values["share.session.timeout.ms"],
            heartbeat_interval_ms=values["share.heartbeat.interval.ms"],
            dead_letter_topic=values["errors.deadletterqueue.topic.name"],
            copies_dead_letters=values["errors.deadletterqueue.copy.record.enable"],
        )


DEFAULT_SHARE_CONFIG: Final = ShareConfig()


# ---- records ---------------------------------------------------------------------------------------------------------------


class RecordState(enum.IntEnum):
    """The state of a record; the numbers are in the log (Kafka: RecordState)."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member has it, under a lock that ends. Never in the log: after a restart nobody has it."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Given up, and not in the dead-letter queue yet (KIP-1191). No member gets it, and the start offset waits for it."""
    ARCHIVED = 4
    """Given up: rejected, delivered too often, or not there."""

    @property
    def is_terminal(self) -> bool:
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AcquireMode(enum.IntEnum):
    """The rule for the number of records that a member acquires (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """About as many as it wants: whole batches."""
    RECORD_LIMIT = 1
    """Not more than it wants."""


class AcknowledgeType(enum.IntEnum):
    """The acknowledgement of an offset."""

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
    """Offsets that a member was given, both ends included, with their delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """Acknowledgements of offsets, both ends included: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class StateBatch(NamedTuple):
    """Offsets, both ends included, as they are stored."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class DeadLetters(NamedTuple):
    """Offsets, both ends included, that a group has given up and that are to be in its dead-letter queue."""

    first_offset: int
    last_offset: int
    delivery_count: int
    was_rejected: bool
    """A member rejected them. Otherwise they were given back after the last delivery there may be."""


@attrs.define(eq=False, repr=False)
class ShareCounters:
    """Counts of record states since the start, over all groups. Owner: `SharePartitions`, whose share-partitions count."""

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
    dead_lettered: int = 0
    """Written into a dead-letter queue."""
    dead_letters_failed: int = 0
    """Archived although their dead letters could not be written."""

    def add(self, counted: Counter[str]) -> None:
        """Add counts by name of the outcome."""
        for name, count in counted.items():
            setattr(self, name, getattr(self, name) + count)
