"""The records part of a batch as plain bytes, and the words for what may be wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

from ..errors import InvalidRecordError
from ..limits import INT64_MAX
from ..types import Bytes
from .batch import COMPRESSION_MASK, RECORD_BATCH_OVERHEAD, BatchHeader
from .compression import decompress
from .steps import STEPS_PER_PAUSE
from .varint import decode_varint

INT64_MIN: Final = -INT64_MAX - 1


def records_data(batch: Bytes, header: BatchHeader, max_bytes: int) -> bytes:
    # One copy into bytes: reading a memoryview byte by byte costs more than copying it.
    if header.records_count < 0:
        raise InvalidRecordError(f"batch at offset {header.base_offset} counts {header.records_count} records")
    records = memoryview(batch)[RECORD_BATCH_OVERHEAD:]
    if header.records_count == 0:
        return b""
    if not header.attributes & COMPRESSION_MASK:
        return bytes(records)
    return decompress(header.compression_type, records, max_bytes=max_bytes)


def skip_headers(data: bytes, position: int, end: int) -> int:
    count, position = read_headers_count(data, position, end)
    for _ in range(count):
        key_length, position = decode_varint(data, position)
        if key_length < 0:
            raise InvalidRecordError(f"a header key before position {position} is null")
        value_length, position = decode_varint(data, position + key_length)
        position += max(value_length, 0)
    return position


def skip_many_headers(data: bytes, position: int, count: int) -> Iterator[int]:
    """The positions that it pauses at among `count` headers from `position` on; the last one lies behind them."""
    while count > 0:
        some = min(count, STEPS_PER_PAUSE)
        count -= some
        for _ in range(some):
            key_length, position = decode_varint(data, position)
            if key_length < 0:
                raise InvalidRecordError(f"a header key before position {position} is null")
            value_length, position = decode_varint(data, position + key_length)
            position += max(value_length, 0)
        yield position


def read_headers_count(data: bytes, position: int, end: int) -> tuple[int, int]:
    count, position = decode_varint(data, position)
    if not 0 <= count <= end - position:
        raise InvalidRecordError(f"header count {count} before position {position}, of a record that ends at {end}")
    return count, position


def raise_length(header: BatchHeader, index: int, missing: int) -> NoReturn:
    raise InvalidRecordError(
        f"record {index} of the batch at offset {header.base_offset}: its length and its fields differ by {missing} bytes"
    )


def raise_offset_delta(header: BatchHeader, index: int, offset_delta: int) -> NoReturn:
    raise InvalidRecordError(
        f"record {index} of {header.records_count} in the batch at offset {header.base_offset} has offset delta "
        f"{offset_delta}; last offset delta is {header.last_offset_delta}"
    )


def raise_timestamp(header: BatchHeader, delta: int) -> NoReturn:
    raise InvalidRecordError(
        f"batch at offset {header.base_offset}: base timestamp {header.base_timestamp} and delta {delta} exceed 64 bits"
    )


def raise_underflow(header: BatchHeader, index: int, data: bytes) -> NoReturn:
    raise InvalidRecordError(
        f"batch at offset {header.base_offset}: its {len(data)} bytes of records end inside record {index} of "
        f"{header.records_count}"
    ) from None


def raise_consumption(header: BatchHeader, position: int, data: bytes) -> NoReturn:
    raise InvalidRecordError(
        f"batch at offset {header.base_offset}: its {header.records_count} records take {position} of {len(data)} bytes"
    )
