"""The call `produce`: append record batches, or plain records that the server packs into a batch.

Owns the plain record `[timestamp_ms or nil, key or nil, value or nil, headers?]` too. Whether record bytes are valid
batches the appending side says, per partition.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import attrs

from ... import limits
from ...errors import ErrorCode, ExpectedOffsetError, RequestError
from ...types import NO_OFFSET, NO_TIMESTAMP, Bytes
from ..kinds import INT32, INT64, INT64_OR_NONE, FieldError, Kind, Steps, integer, unexpected
from ..structs import Partition, PartitionAnswer, RequestMessage, ResponseMessage, struct, wire
from .transactions import TRANSACTIONAL_ID

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
DEFAULT_TIMEOUT_MS: Final = 30_000

RECORDS_PER_PAUSE: Final = 256
"""Plain records, or headers of one, that are read before others have their turn."""

Headers = tuple[tuple[str, bytes | None], ...]


class PlainRecord(NamedTuple):
    """A record to be appended; a timestamp of None is the time of the append."""

    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def _read_acks(acks: int, key: str) -> int:
    if acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
        raise RequestError(f"produce.{key} is {acks}, expected 0, 1 or -1", ErrorCode.INVALID_REQUIRED_ACKS)
    return acks


def _read_records(values: Any, key: str) -> Bytes | tuple[PlainRecord, ...]:
    if type(values) is bytes:
        return values
    if type(values) is not list:
        raise unexpected(key, values, RECORDS.expected)
    records: list[PlainRecord] = []
    try:
        for value in values:
            records.append(_read_plain_record(value))
    except FieldError as exc:
        raise exc.within(f"{key}[{len(records)}]") from None
    return tuple(records)


def _read_records_in_steps(values: list[Any], key: str) -> Steps:
    """Takes the values out of the list while it goes, so that there is not much to give back at the end."""
    records: list[PlainRecord] = []
    steps = 0
    try:
        for index, value in enumerate(values):
            if type(value) is list and len(value) == 4 and type(value[3]) is list:
                steps += len(value[3])
                if len(value[3]) > RECORDS_PER_PAUSE:
                    value[3] = yield from _read_headers_in_steps(value[3])
            records.append(_read_plain_record(value))
            values[index] = None
            steps += 1
            if steps >= RECORDS_PER_PAUSE:
                steps = 0
                yield
    except FieldError as exc:
        raise exc.within(f"{key}[{len(records)}]") from None
    return tuple(records)


def _read_headers_in_steps(values: list[Any]) -> Steps:
    headers: list[tuple[str, bytes | None]] = []
    for start in range(0, len(values), RECORDS_PER_PAUSE):
        headers += read_headers(values[start : start + RECORDS_PER_PAUSE], start)
        values[start : start + RECORDS_PER_PAUSE] = [None] * len(values[start : start + RECORDS_PER_PAUSE])
        yield
    return tuple(headers)


def _read_plain_record(value: Any) -> PlainRecord:
    if type(value) is not list or not 3 <= len(value) <= 4:
        raise unexpected("", value, "[timestamp_ms or nil, key or nil, value or nil, headers?]")
    timestamp, key, content = value[:3]
    if timestamp is not None and not (type(timestamp) is int and 0 <= timestamp <= limits.INT64_MAX):
        raise unexpected("timestamp", timestamp, f"nil or int from 0 to {limits.INT64_MAX}")
    if key is not None and type(key) is not bytes:
        raise unexpected("key", key, "nil or bin")
    if content is not None and type(content) is not bytes:
        raise unexpected("value", content, "nil or bin")
    return PlainRecord(timestamp, key, content, read_headers(value[3]) if len(value) == 4 else ())


def read_headers(values: Any, first_index: int = 0) -> Headers:
    """The checked headers of a plain record, `[[name, value or nil], ...]`, or those from `first_index` on. A tuple has been
    read in steps before."""
    if type(values) is tuple:
        return values
    if type(values) is not list:
        raise unexpected("headers", values, "array of [str, bin or nil]")
    for index, header in enumerate(values):
        if not (
            type(header) is list
            and len(header) == 2
            and type(header[0]) is str
            and (header[1] is None or type(header[1]) is bytes)
        ):
            raise unexpected(f"headers[{first_index + index}]", header, "[str, bin or nil]")
    return tuple((name, value) for name, value in values)


ACKS: Final = attrs.evolve(integer(limits.INT32_MIN, limits.INT32_MAX), read=_read_acks)
RECORDS: Final = Kind(
    expected="bin or array of records",
    read=_read_records,
    read_steps=_read_records_in_steps,
    write="list({v}) if type({v}) is tuple else {v}",
)


@struct
class ProducePartition(Partition):
    """An append to one partition: whole record batches, stored as they are, or records that the server packs into one.

    With `expected_offset` the server appends only if the log ends there.
    """

    records: Bytes | tuple[PlainRecord, ...] = wire(RECORDS, last=True)
    expected_offset: int | None = wire(INT64, nullable=True, default=None, left_out=True)


@struct
class ProduceRequest(RequestMessage):
    """Appends to any number of partitions; each succeeds or fails alone. With acks 0 there is no answer at all.

    Transactional batches need the transactional id of their producer; their partitions become part of its transaction. Acks
    other than 0, 1 and -1 are INVALID_REQUIRED_ACKS.
    """

    partitions: tuple[ProducePartition, ...] = wire([ProducePartition], last=True)
    acks: int = wire(ACKS, default=ACKS_ALL)
    timeout_ms: int = wire(INT32, default=DEFAULT_TIMEOUT_MS)
    transactional_id: str | None = wire(TRANSACTIONAL_ID, nullable=True, default=None)


@struct
class ProducePartitionResponse(PartitionAnswer):
    """The offset of the first record appended to one partition, or the error.

    `log_append_time` is -1 unless the topic stamps records with it. `log_end_offset` comes with the error that the log does
    not end at the expected offset, and is the offset at which the log ends.
    """

    base_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    log_append_time: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    log_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    log_end_offset: int | None = wire(INT64, nullable=True, default=None, left_out=True)

    @property
    def failure(self) -> RequestError | None:
        """The error, and where the log ends if that is what is wrong; None when there is none."""
        if self.error is None or self.log_end_offset is None:
            return self.error
        return ExpectedOffsetError(self.error.message, self.log_end_offset)


@struct
class ProduceResponse(ResponseMessage):
    """The results of the requested partitions, in the same order."""

    partitions: tuple[ProducePartitionResponse, ...] = wire([ProducePartitionResponse])
