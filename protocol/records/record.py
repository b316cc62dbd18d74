"""The records inside a batch: read them, check them without building them, find one by time (Kafka: DefaultRecord).

| field | encoding | meaning |
|---|---|---|
| length | varint | bytes of the record that follow this field |
| attributes | 1 byte | unused |
| timestamp_delta | varlong | from the batch's base_timestamp |
| offset_delta | varint | from the batch's base_offset |
| key | varint length, bytes | a negative length is null |
| value | varint length, bytes | a negative length is null |
| headers | varint count, then key and value of each | header keys are UTF-8 and never null |

Short varints are decoded in place, for the reasons that `walk` gives.

`CommittedFilter` decides which batches a reader of committed records skips (KIP-98; Kafka: CompletedFetch). A fetch response
lists the aborted transactions that its batches have a part in, as (producer id, first offset). A producer has one transaction
at a time on a partition. So from the first offset of a transaction on, its batches are aborted until the next marker of the
producer: ABORT, or COMMIT of the next transaction where the ABORT was lost to corruption. One filter serves one response.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any, Final, NamedTuple

from ..errors import CorruptRecordError, InvalidRecordError
from ..limits import INT64_MAX, MAX_DECOMPRESSED_BYTES
from ..types import NO_OFFSET, NO_TIMESTAMP, Bytes, Record
from .batch import LOG_APPEND_TIME_FLAG, RECORD_BATCH_OVERHEAD, BatchHeader, parse_header
from .control import ControlRecordType, control_record_type
from .steps import STEPS_PER_PAUSE, BatchLimits, Steps, last
from .unpacking import (
    INT64_MIN,
    raise_consumption,
    raise_length,
    raise_timestamp,
    raise_underflow,
    read_headers_count,
    records_data,
)
from .varint import decode_unsigned_varint, decode_varint, decode_varlong

_PER_PAUSE: Final = 4 * STEPS_PER_PAUSE
"""Records that are only looked at for their time."""


class FoundRecord(NamedTuple):
    """The offset and timestamp of a record found by its time."""

    offset: int
    timestamp: int


NOT_FOUND: Final = FoundRecord(NO_OFFSET, NO_TIMESTAMP)


def iter_records(
    batch: Bytes, header: BatchHeader | None = None, *, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[Record]:
    """Yield the records of one batch, decompressed if need be.

    InvalidRecordError where a record contradicts its lengths or the header's count, CorruptRecordError for compressed
    data that cannot be read, RecordTooLargeError when it would exceed `max_bytes`.
    """
    if header is None:
        header = _header_of(batch)
    return _records(records_data(batch, header, max_bytes), header, None)


def record_steps(data: bytes, header: BatchHeader, limits: BatchLimits) -> Iterator[Record | None]:
    """The records of a batch whose plain records are `data`; None among the headers of a record that has many. Raises what
    `limits` say of headers too."""
    return _records(data, header, limits)


def _records(data: bytes, header: BatchHeader, limits: BatchLimits | None) -> Iterator[Any]:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    earliest, latest = INT64_MIN - base_timestamp, INT64_MAX - base_timestamp
    new_record = tuple.__new__
    position = index = 0
    try:
        for index in range(header.records_count):
            if (length := data[position]) < 0x80:
                length = length >> 1 ^ -(length & 1)
                position += 1
            else:
                length, position = decode_varint(data, position)
            end = position + length
            if (folded := data[position + 1]) < 0x80:
                timestamp_delta = folded >> 1 ^ -(folded & 1)
                position += 2
            else:
                timestamp_delta, position = decode_varlong(data, position + 1)
            if (folded := data[position]) < 0x80:
                offset_delta = folded >> 1 ^ -(folded & 1)
                position += 1
            else:
                offset_delta, position = decode_varint(data, position)
            if (folded := data[position]) < 0x80 and not folded & 1:
                start = position + 1
                position = start + (folded >> 1)
                key: bytes | None = data[start:position]
            else:
                key, position = _read_bytes(data, position)
            if (folded := data[position]) < 0x80 and not folded & 1:
                start = position + 1
                position = start + (folded >> 1)
                value: bytes | None = data[start:position]
            else:
                value, position = _read_bytes(data, position)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if data[position]:
                count, position = read_headers_count(data, position, end)
                if limits is not None and count > STEPS_PER_PAUSE:
                    limits.check_headers(count, index)
                    headers, position = yield from _read_many_headers(data, position, count)
                else:
                    headers, position = _read_headers(data, position, count)
            else:
                position += 1
            if position != end:
                raise_length(header, index, end - position)
            if not earliest <= timestamp_delta <= latest:
                raise_timestamp(header, timestamp_delta)
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            # What Record(...) does, without its Python-level __new__: 150 ns less.
            yield new_record(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    except IndexError:
        raise_underflow(header, index, data)
    if position != len(data):
        raise_consumption(header, position, data)


def first_record_at(
    batch: Bytes,
    header: BatchHeader,
    *,
    timestamp: int,
    min_offset: int,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record with at least this timestamp and at least this offset."""
    if not can_reach(header, timestamp):
        return None
    data = records_data(batch, header, max_bytes)
    found = last(first_record_steps(data, header, timestamp=timestamp, min_offset=min_offset))
    return None if found.offset < 0 else found


def can_reach(header: BatchHeader, timestamp: int) -> bool:
    """Return whether a record of the batch can have this timestamp or a later one, as far as the header shows."""
    return not header.attributes & LOG_APPEND_TIME_FLAG or header.max_timestamp >= timestamp


def first_record_steps(data: bytes, header: BatchHeader, *, timestamp: int, min_offset: int) -> Steps[FoundRecord]:
    """`first_record_at` in steps, for the plain records of a batch that `can_reach` the timestamp; or NOT_FOUND."""
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    least_timestamp_delta = timestamp - header.base_timestamp if append_time is None else INT64_MIN
    least_offset_delta = min_offset - header.base_offset
    least_folded = max(0, least_timestamp_delta << 1)  # a delta that is large enough is at least this when it is folded
    position = index = 0
    try:
        for first in range(0, header.records_count, _PER_PAUSE):
            for index in range(first, min(first + _PER_PAUSE, header.records_count)):
                if (length := data[position]) < 0x80:
                    end = position + 1 + (length >> 1)
                    position += 2
                elif (second := data[position + 1]) < 0x80:
                    end = position - 62 + ((second << 7) + length >> 1)  # 2 bytes on, and without 0x80 of the first
                    position += 3
                else:
                    length, position = decode_unsigned_varint(data, position)
                    end = position + (length >> 1)
                    position += 1
                if (folded := data[position]) >= 0x80:
                    if (second := data[position + 1]) < 0x80:
                        folded = folded & 0x7F | second << 7
                        position += 1
                    else:
                        timestamp_delta, position = decode_varlong(data, position)
                        folded = timestamp_delta << 1 if timestamp_delta >= 0 else ~timestamp_delta << 1 | 1
                        position -= 1
                if length & 1 or end <= position:
                    raise_length(header, index, end - position - 1)
                if folded >= least_folded and (folded >> 1 ^ -(folded & 1)) >= least_timestamp_delta:
                    if (offset_delta := data[position + 1]) < 0x80:
                        offset_delta = offset_delta >> 1 ^ -(offset_delta & 1)
                    else:
                        offset_delta, _ = decode_varint(data, position + 1)
                    if offset_delta >= least_offset_delta:
                        found = append_time
                        if found is None:
                            found = header.base_timestamp + (folded >> 1 ^ -(folded & 1))
                        yield FoundRecord(header.base_offset + offset_delta, found)
                        return
                position = end
            yield None
    except IndexError:
        raise_underflow(header, index, data)
    if position != len(data):
        raise_consumption(header, position, data)
    yield NOT_FOUND


def largest_timestamp_steps(data: bytes, header: BatchHeader, min_offset: int) -> Steps[int]:
    """The largest timestamp of a record with at least this offset, -1 for none; `data` are the batch's plain records."""
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else None
    largest = NO_TIMESTAMP
    position = index = 0
    try:
        for index in range(header.records_count):
            length, position = decode_varint(data, position)
            timestamp_delta, fields = decode_varlong(data, position + 1)
            offset_delta, fields = decode_varint(data, fields)
            position += length
            if not fields <= position <= len(data):
                raise_length(header, index, position - fields)
            if header.base_offset + offset_delta >= min_offset:
                largest = max(largest, header.base_timestamp + timestamp_delta if append_time is None else append_time)
            if index % STEPS_PER_PAUSE == STEPS_PER_PAUSE - 1:
                yield None
    except IndexError:
        raise_underflow(header, index, data)
    yield largest


def least_timestamp_steps(data: bytes, header: BatchHeader) -> Steps[int]:
    """The least timestamp of a record that has one, INT64_MAX for none; `data` are the batch's plain records."""
    if header.attributes & LOG_APPEND_TIME_FLAG:
        yield header.max_timestamp if header.records_count else INT64_MAX
        return
    untimed = NO_TIMESTAMP - header.base_timestamp
    least, size = INT64_MAX - header.base_timestamp, len(data)
    position = index = 0
    try:
        for index in range(header.records_count):
            if (length := data[position]) < 0x80:
                position += 1
                end = position + (length >> 1)
                length &= 1
            else:
                length, position = decode_varint(data, position)
                end = position + length
                length = length < 0
            if (folded := data[position + 1]) < 0x80:
                delta = folded >> 1 ^ -(folded & 1)
            else:
                delta, _ = decode_varlong(data, position + 1)
            if length or not position + 1 < end <= size:
                raise_length(header, index, end - position)
            if delta < least and delta != untimed:
                least = delta
            position = end
            if index % _PER_PAUSE == _PER_PAUSE - 1:
                yield None
    except IndexError:
        raise_underflow(header, index, data)
    yield header.base_timestamp + least


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    if (length := data[position]) < 0x80:
        if length & 1:
            return None, position + 1
        position += 1
        length >>= 1
    else:
        length, position = decode_varint(data, position)
        if length < 0:
            return None, position
    stop = position + length
    return data[position:stop], stop


def _read_headers(data: bytes, position: int, count: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position)
        if key is None:
            raise InvalidRecordError(f"a header key before position {position} is null")
        value, position = _read_bytes(data, position)
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def _read_many_headers(
    data: bytes, position: int, count: int
) -> Generator[None, None, tuple[tuple[tuple[str, bytes | None], ...], int]]:
    headers: list[tuple[str, bytes | None]] = []
    while len(headers) < count:
        some, position = _read_headers(data, position, min(count - len(headers), STEPS_PER_PAUSE))
        headers += some
        yield
    return tuple(headers), position


def _header_of(batch: Bytes) -> BatchHeader:
    if len(batch) < RECORD_BATCH_OVERHEAD:
        raise CorruptRecordError(f"{len(batch)} bytes are not a record batch. The smallest has {RECORD_BATCH_OVERHEAD}")
    return parse_header(batch)


_MARKERS: Final = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


class CommittedFilter:
    """Asked for the batches of one answer, in order. Owner: whoever walks the answer."""

    __slots__ = ("_aborting", "_upcoming")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted` holds (producer id, first offset) in any order."""
        self._upcoming = sorted(aborted, key=_first_offset, reverse=True)  # the next one comes last
        self._aborting: set[int] = set()

    def leaves_out(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether readers must not see this batch: a control batch, or part of an aborted transaction.

        Raises InvalidRecordError for a control batch whose record is not a control record.
        """
        while self._upcoming and self._upcoming[-1][1] <= header.last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        if header.is_control:
            if header.producer_id in self._aborting and _is_marker(header, batch):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]


def _is_marker(header: BatchHeader, batch: memoryview) -> bool:
    """False when compaction has left the batch without its record: the transaction's records are gone then, too."""
    return any(control_record_type(record.key) in _MARKERS for record in iter_records(batch, header))
