"""The call `fetch`: record batches as they are stored, or their records, from an offset on.

Under `read_committed` (KIP-98) nothing at or past the last stable offset comes. With `batches` the answer lists the aborted
transactions among them for the client to leave out; with `records` the server has left their records out already.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Final

import attrs

from .. import limits
from ..errors import RequestError
from ..types import NO_OFFSET, Bytes, Isolation, Record
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body
from .produce import read_headers

DEFAULT_MAX_WAIT_MS: Final = 0
DEFAULT_MIN_BYTES: Final = 1
DEFAULT_MAX_BYTES: Final = 50 * limits.MIB
DEFAULT_PARTITION_MAX_BYTES: Final = limits.MIB


class Format(enum.Enum):
    """What stands under `records` in the answer: whole batches as stored, or an array of records."""

    BATCHES = "batches"
    RECORDS = "records"


class Gaps(enum.Enum):
    """What a fetch at an offset inside a quarantined range gets: an error that names the range, or what follows it."""

    REFUSE = "refuse"
    SKIP = "skip"


_ISOLATIONS: Final = {isolation.value: isolation for isolation in Isolation}
_FORMATS: Final = {choice.value: choice for choice in Format}
_GAPS: Final = {choice.value: choice for choice in Gaps}


def read_isolation(body: Body) -> Isolation:
    """The isolation asked for."""
    return fields.choice(body, "isolation", _ISOLATIONS, "read_uncommitted")


@attrs.frozen
class FetchPartition:
    """Where to read in one partition, and how much at most; one whole batch always comes, if there is one."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "offset", "max_bytes")

    topic: str
    partition: int
    offset: int
    max_bytes: int = DEFAULT_PARTITION_MAX_BYTES

    @classmethod
    def from_body(cls, entry: Body) -> FetchPartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            fields.int64(entry, "offset"),
            fields.int32(entry, "max_bytes", 0, DEFAULT_PARTITION_MAX_BYTES),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "max_bytes": self.max_bytes,
        }


@attrs.frozen
class FetchRequest:
    """Reads partitions; with `max_wait_ms` the answer waits that long for `min_bytes` in all (a long poll)."""

    api: ClassVar[str] = "fetch"
    keys: ClassVar[frozenset[str]] = fields.names(
        "max_wait_ms", "min_bytes", "max_bytes", "isolation", "format", "gaps", "partitions"
    )

    partitions: tuple[FetchPartition, ...]
    max_wait_ms: int = DEFAULT_MAX_WAIT_MS
    min_bytes: int = DEFAULT_MIN_BYTES
    max_bytes: int = DEFAULT_MAX_BYTES
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    format: Format = Format.BATCHES
    gaps: Gaps = Gaps.REFUSE

    @classmethod
    def from_body(cls, body: Body) -> FetchRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(
            fields.entries(body, "partitions", FetchPartition.from_body),
            fields.int32(body, "max_wait_ms", 0, DEFAULT_MAX_WAIT_MS),
            fields.int32(body, "min_bytes", 0, DEFAULT_MIN_BYTES),
            fields.int32(body, "max_bytes", 0, DEFAULT_MAX_BYTES),
            read_isolation(body),
            fields.choice(body, "format", _FORMATS, "batches"),
            fields.choice(body, "gaps", _GAPS, "refuse"),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "max_wait_ms": self.max_wait_ms,
            "min_bytes": self.min_bytes,
            "max_bytes": self.max_bytes,
            "isolation": self.isolation.value,
            "format": self.format.value,
            "gaps": self.gaps.value,
            "partitions": [partition.to_body() for partition in self.partitions],
        }


@attrs.frozen
class FetchPartitionResponse:
    """What one partition holds from the offset on.

    `records` is a buffer of batches, the last perhaps cut short by a limit, or a tuple of records; empty on error.
    `next_offset` is where to go on after plain records, which may all have been left out; -1 with batches, which tell, unless
    there are none up to the end of what can be read.
    `aborted` lists (producer id, first offset) of the aborted transactions that batches have a part in; empty under
    read_uncommitted and with plain records.
    """

    topic: str
    partition: int
    error: RequestError | None = None
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted: tuple[tuple[int, int], ...] = ()
    records: Bytes | tuple[Record, ...] = b""
    next_offset: int = NO_OFFSET

    @classmethod
    def from_body(cls, entry: Body) -> FetchPartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        records = entry.get("records")
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.int64(entry, "high_watermark", NO_OFFSET),
            fields.int64(entry, "last_stable_offset", NO_OFFSET),
            fields.int64(entry, "log_start_offset", NO_OFFSET),
            _read_aborted(entry),
            records if type(records) is bytes else _read_records(records),
            fields.int64(entry, "next_offset", NO_OFFSET, NO_OFFSET),
        )

    def to_body(self) -> Body:
        """What msgpack packs; `records` comes last so that it can be sent as a buffer of its own."""
        records = list(self.records) if isinstance(self.records, tuple) else self.records
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "high_watermark": self.high_watermark,
            "last_stable_offset": self.last_stable_offset,
            "log_start_offset": self.log_start_offset,
            "next_offset": self.next_offset,
            "aborted": self.aborted,
            "records": records,
        }


@attrs.frozen
class FetchResponse:
    """One entry per partition asked for, in the same order."""

    api: ClassVar[str] = "fetch"

    partitions: tuple[FetchPartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> FetchResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", FetchPartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


def _read_aborted(entry: Body) -> tuple[tuple[int, int], ...]:
    aborted = fields.array(entry, "aborted", limits.INT32_MAX)
    for index, pair in enumerate(aborted):
        if type(pair) is not list or [type(part) for part in pair] != [int, int]:
            raise fields.unexpected(f"aborted[{index}]", pair, "[producer_id: int, first_offset: int]")
    return tuple((producer_id, first_offset) for producer_id, first_offset in aborted)


def _read_records(values: Any) -> tuple[Record, ...]:
    if type(values) is not list:
        raise fields.unexpected("records", values, "bin or array of records")
    return tuple(_read_record(value, index) for index, value in enumerate(values))


def _read_record(value: Any, index: int) -> Record:
    match value:
        case [int(offset), int(timestamp), (bytes() | None) as key, (bytes() | None) as content, headers]:
            return Record(offset, timestamp, key, content, read_headers(headers))
        case _:
            raise fields.unexpected(f"records[{index}]", value, "[offset, timestamp_ms, key, value, headers]")
