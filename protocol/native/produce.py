"""The call `produce`: append record batches, or plain records that the server packs into a batch.

Owns the plain record `[timestamp_ms or nil, key or nil, value or nil, headers?]` too. Whether record bytes are valid
batches the appending side says, per partition.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

import attrs

from .. import limits
from ..errors import ErrorCode, RequestError
from ..types import NO_OFFSET, NO_TIMESTAMP, Bytes
from . import fields
from .error_entries import decode_error, encode_error
from .fields import Body
from .transactions import read_transactional_id

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
DEFAULT_TIMEOUT_MS: Final = 30_000

Headers = tuple[tuple[str, bytes | None], ...]


class PlainRecord(NamedTuple):
    """A record to be appended; a timestamp of None is the time of the append."""

    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@attrs.frozen
class ProducePartition:
    """What to append to one partition: whole record batches, stored as they are, or records to be packed into one."""

    keys: ClassVar[frozenset[str]] = fields.names("topic", "partition", "records")

    topic: str
    partition: int
    records: Bytes | tuple[PlainRecord, ...]

    @classmethod
    def from_body(cls, entry: Body) -> ProducePartition:
        """Read one entry; FieldError for what is wrong in it."""
        fields.check_keys(entry, cls.keys)
        records = entry.get("records", fields.REQUIRED)
        if type(records) is not bytes:
            records = read_plain_records(entry)
        return cls(fields.topic(entry), fields.int32(entry, "partition"), records)

    def to_body(self) -> Body:
        """What msgpack packs."""
        records = list(self.records) if isinstance(self.records, tuple) else self.records
        return {"topic": self.topic, "partition": self.partition, "records": records}


@attrs.frozen
class ProduceRequest:
    """Appends to any number of partitions; each succeeds or fails alone. With acks 0 there is no answer at all.

    Transactional batches need the transactional id of their producer; their partitions become part of its transaction.
    """

    api: ClassVar[str] = "produce"
    keys: ClassVar[frozenset[str]] = fields.names("acks", "timeout_ms", "transactional_id", "partitions")

    partitions: tuple[ProducePartition, ...]
    acks: int = ACKS_ALL
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    transactional_id: str | None = None

    @classmethod
    def from_body(cls, body: Body) -> ProduceRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it, INVALID_REQUIRED_ACKS for other acks."""
        acks = fields.int32(body, "acks", -(2**31), ACKS_ALL)
        if acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            raise RequestError(f"produce.acks is {acks}, expected 0, 1 or -1", ErrorCode.INVALID_REQUIRED_ACKS)
        return cls(
            fields.entries(body, "partitions", ProducePartition.from_body),
            acks,
            fields.int32(body, "timeout_ms", 0, DEFAULT_TIMEOUT_MS),
            read_transactional_id(body),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "acks": self.acks,
            "timeout_ms": self.timeout_ms,
            "transactional_id": self.transactional_id,
            "partitions": [partition.to_body() for partition in self.partitions],
        }


@attrs.frozen
class ProducePartitionResponse:
    """Where one partition's records went: the offset of the first, or why they did not.

    `log_append_time` is -1 unless the topic stamps records with it.
    """

    topic: str
    partition: int
    error: RequestError | None = None
    base_offset: int = NO_OFFSET
    log_append_time: int = NO_TIMESTAMP
    log_start_offset: int = NO_OFFSET

    @classmethod
    def from_body(cls, entry: Body) -> ProducePartitionResponse:
        """Read one entry; FieldError for what is wrong in it."""
        return cls(
            fields.topic(entry),
            fields.int32(entry, "partition"),
            decode_error(entry.get("error")),
            fields.int64(entry, "base_offset", NO_OFFSET),
            fields.int64(entry, "log_append_time", NO_TIMESTAMP),
            fields.int64(entry, "log_start_offset", NO_OFFSET),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "error": encode_error(self.error),
            "base_offset": self.base_offset,
            "log_append_time": self.log_append_time,
            "log_start_offset": self.log_start_offset,
        }


@attrs.frozen
class ProduceResponse:
    """One entry per partition asked for, in the same order."""

    api: ClassVar[str] = "produce"

    partitions: tuple[ProducePartitionResponse, ...]

    @classmethod
    def from_body(cls, body: Body) -> ProduceResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.entries(body, "partitions", ProducePartitionResponse.from_body))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"partitions": [partition.to_body() for partition in self.partitions]}


def read_plain_records(entry: Body) -> tuple[PlainRecord, ...]:
    """The checked records of an entry whose `records` is an array."""
    values = entry.get("records", fields.REQUIRED)
    if type(values) is tuple:  # read before, see `wide`
        return values
    if type(values) is not list:
        if values is fields.REQUIRED:
            raise fields.FieldError("records", "is missing, expected bin or array of records")
        raise fields.unexpected("records", values, "bin or array of records")
    records: list[PlainRecord] = []
    try:
        for value in values:
            records.append(read_plain_record(value))
    except fields.FieldError as exc:
        raise exc.within(f"records[{len(records)}]") from None
    return tuple(records)


def read_plain_record(value: Any) -> PlainRecord:
    """The checked record of one entry of `records`."""
    if type(value) is not list or not 3 <= len(value) <= 4:
        raise fields.unexpected("", value, "[timestamp_ms or nil, key or nil, value or nil, headers?]")
    timestamp, key, content = value[:3]
    if timestamp is not None and not (type(timestamp) is int and 0 <= timestamp <= limits.INT64_MAX):
        raise fields.unexpected("timestamp", timestamp, f"nil or int from 0 to {limits.INT64_MAX}")
    if key is not None and type(key) is not bytes:
        raise fields.unexpected("key", key, "nil or bin")
    if content is not None and type(content) is not bytes:
        raise fields.unexpected("value", content, "nil or bin")
    return PlainRecord(timestamp, key, content, read_headers(value[3]) if len(value) == 4 else ())


def read_headers(values: Any, first_index: int = 0) -> Headers:
    """The checked headers of a plain record, `[[name, value or nil], ...]`, or those from `first_index` on."""
    if type(values) is tuple:  # read before, see `wide`
        return values
    if type(values) is not list:
        raise fields.unexpected("headers", values, "array of [str, bin or nil]")
    for index, header in enumerate(values):
        if not (
            type(header) is list
            and len(header) == 2
            and type(header[0]) is str
            and (header[1] is None or type(header[1]) is bytes)
        ):
            raise fields.unexpected(f"headers[{first_index + index}]", header, "[str, bin or nil]")
    return tuple((name, value) for name, value in values)
