"""Names and small values that every floor speaks. No behaviour that belongs to one owner lives here."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from .former import warn_former

Bytes = bytes | bytearray | memoryview
"""What record bytes may arrive in: they are looked at in place and never copied just to change the type."""

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1
NO_OFFSET: Final = -1

LATEST_TIMESTAMP: Final = -1
"""Asked as a timestamp: the high watermark (Kafka: ListOffsetsRequest.LATEST_TIMESTAMP)."""
EARLIEST_TIMESTAMP: Final = -2
"""Asked as a timestamp: the log start offset."""
MAX_TIMESTAMP: Final = -3
"""Asked as a timestamp: the first record that carries the largest timestamp (KIP-734)."""

SCHEMAS_TOPIC: Final = "_schemas"
"""Of a schema registry (Confluent). To a server it is a topic like others."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of whoever has not said who it is."""


class TopicPartition(NamedTuple):
    """A partition of a topic; written `topic-partition`, as its directory is named."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class CompressionType(enum.IntEnum):
    """Bits 0-2 of a record batch's attributes (Kafka: CompressionType)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(enum.IntEnum):
    """Bit 3 of a record batch's attributes (Kafka: TimestampType)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Isolation(enum.Enum):
    """Up to where a reader sees (KIP-98): the high watermark, or the last stable offset without aborted transactions."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class TimeRange(NamedTuple):
    """The records whose timestamps (ms) lie from `start` on and before `end`; those without a timestamp are in none."""

    start: int = 0
    end: int = 2**63

    def holds(self, timestamp: int) -> bool:
        """Return whether the range holds a record of that time."""
        return self.start <= timestamp < self.end


def range_of(start: int | None, end: int | None) -> TimeRange | None:
    """None where neither end is said."""
    if start is None and end is None:
        return None
    return TimeRange(start or 0) if end is None else TimeRange(start or 0, end)


class Record(NamedTuple):
    """A record as a reader sees it.

    `timestamp` is in ms since the epoch, -1 when there is none; under LogAppendTime it is the batch's append time.
    A None key or value is Kafka's null; a None value in a compacted topic is a tombstone.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class AppendResult(NamedTuple):
    """The position of an append in the log. `base_offset` is -1 when its batches are in two places: the first ones were stored
    before a crash, and batches of other appends follow them. `log_append_time` is -1 under CreateTime; a duplicate has its
    largest timestamp there."""

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int

    @property
    def end_offset(self) -> int:
        """Use `last_offset + 1`."""
        warn_former("end_offset", "last_offset + 1")
        return self.last_offset + 1


class TimestampAndOffset(NamedTuple):
    """A record's timestamp in ms, its offset, and the leader epoch of its batch (-1: none)."""

    timestamp: int
    offset: int
    leader_epoch: int = -1
