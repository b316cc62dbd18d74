"""Building a record batch (Kafka: MemoryRecordsBuilder). The caller decides when it is full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..limits import INT32_MAX, INT64_MAX
from ..types import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Bytes,
    CompressionType,
    TimestampType,
)
from .batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    assemble_batch,
)
from .compression import compress
from .control import CONTROL_KEY_BYTES
from .steps import STEPS_PER_PAUSE, Steps
from .varint import SMALL_VARINTS, encode_varint, encode_varlong

Headers = Sequence[tuple[str, Bytes | None]]

_MAX_RECORDS_BYTES: Final = INT32_MAX - 2 * RECORD_BATCH_OVERHEAD
"""A batch's length has 32 bits; a header's worth of slack covers the length field of the last record."""
_SMALL: Final = len(SMALL_VARINTS)
_NULL: Final = b"\x01"
_NO_HEADERS: Final = b"\x00"


class BatchBuilder:
    """Collects records, then gives them one header. Owned by whoever made it; `build` may be called more than once.

    The first record's timestamp becomes the batch's base_timestamp, unless `delete_horizon_ms` takes that place. Under
    LogAppendTime the batch's max_timestamp is `log_append_time`; the records keep the timestamps they came with.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp",
        "_compression_level",
        "_compression_type",
        "_last_offset_delta",
        "_log_append_time",
        "_max_timestamp",
        "_partition_leader_epoch",
        "_producer_epoch",
        "_producer_id",
        "_records",
        "_records_count",
    )

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression_type: CompressionType = CompressionType.NONE,
        compression_level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int = NO_TIMESTAMP,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if delete_horizon_ms is not None and delete_horizon_ms < 0:
            raise ValueError(f"delete horizon {delete_horizon_ms} is before the epoch")
        self._base_offset = base_offset
        self._compression_type = compression_type
        self._compression_level = compression_level
        self._log_append_time = log_append_time
        self._partition_leader_epoch = partition_leader_epoch
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._attributes = (
            compression_type
            | (LOG_APPEND_TIME_FLAG if timestamp_type == TimestampType.LOG_APPEND_TIME else 0)
            | (TRANSACTIONAL_FLAG if is_transactional else 0)
            | (CONTROL_FLAG if is_control else 0)
            | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
        )
        self._base_timestamp = delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset_delta = -1
        self._records = bytearray()
        self._records_count = 0

    def __repr__(self) -> str:
        return (
            f"<BatchBuilder {self._records_count} records from offset {self._base_offset}, {self.estimated_size_bytes} bytes>"
        )

    def set_producer(self, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool) -> None:
        """Name the producer, which a client learns after the first records (Kafka: MemoryRecordsBuilder.setProducerState)."""
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._attributes = self._attributes & ~TRANSACTIONAL_FLAG | (TRANSACTIONAL_FLAG if is_transactional else 0)

    @property
    def estimated_size_bytes(self) -> int:
        """Of the batch if it were built now and not compressed."""
        return RECORD_BATCH_OVERHEAD + len(self._records)

    @property
    def records_count(self) -> int:
        return self._records_count

    def append(self, timestamp: int, key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> int:
        """Add a record at the next offset and return that offset."""
        offset_delta = self._last_offset_delta + 1
        self._append(offset_delta, timestamp, key, value, _encode_headers(headers) if headers else _NO_HEADERS)
        return self._base_offset + offset_delta

    def append_encoded(self, timestamp: int, key: Bytes | None, value: Bytes | None, encoded_headers: bytes) -> None:
        """`append` with what `encode_header_steps` has made."""
        self._append(self._last_offset_delta + 1, timestamp, key, value, encoded_headers)

    def append_at(self, offset: int, timestamp: int, key: Bytes | None, value: Bytes | None, headers: Headers = ()) -> None:
        """Add a record at `offset`, which must lie above the last one; what lies between stays a gap."""
        offset_delta = offset - self._base_offset
        if not self._last_offset_delta < offset_delta <= INT32_MAX:
            raise ValueError(
                f"offset {offset} does not follow {self._base_offset + self._last_offset_delta} "
                f"within {INT32_MAX} of the base offset {self._base_offset}"
            )
        self._append(offset_delta, timestamp, key, value, _encode_headers(headers) if headers else _NO_HEADERS)

    def build(self, *, last_offset: int | None = None) -> bytes:
        """Return the batch, or nothing (not even a header) when no record was appended.

        `last_offset` keeps the range of a batch whose last records compaction has removed.
        """
        if not self._records_count:
            return b""
        self._check_producer()
        last_offset_delta = self._last_offset_delta if last_offset is None else last_offset - self._base_offset
        if not self._last_offset_delta <= last_offset_delta <= INT32_MAX:
            raise ValueError(
                f"last offset {last_offset} lies below the last record's {self._base_offset + self._last_offset_delta}"
                f", or too far from the base offset {self._base_offset}"
            )
        log_append_time = self._attributes & LOG_APPEND_TIME_FLAG
        assert self._base_timestamp is not None
        records: Bytes = self._records
        if self._compression_type != CompressionType.NONE:
            records = compress(self._compression_type, records, self._compression_level)
        return assemble_batch(
            records,
            base_offset=self._base_offset,
            last_offset_delta=last_offset_delta,
            records_count=self._records_count,
            attributes=self._attributes,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._log_append_time if log_append_time else self._max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._base_sequence,
            partition_leader_epoch=self._partition_leader_epoch,
        )

    def _append(
        self, offset_delta: int, timestamp: int, key: Bytes | None, value: Bytes | None, encoded_headers: bytes
    ) -> None:
        if not NO_TIMESTAMP <= timestamp <= INT64_MAX:
            raise ValueError(f"timestamp {timestamp} is neither {NO_TIMESTAMP} nor between 0 and {INT64_MAX}")
        if self._attributes & CONTROL_FLAG and (key is None or len(key) < CONTROL_KEY_BYTES):
            raise ValueError(f"a control record's key has at least {CONTROL_KEY_BYTES} bytes: version and type")
        base_timestamp = self._base_timestamp
        if base_timestamp is None:
            base_timestamp = timestamp
        delta = timestamp - base_timestamp
        if delta > INT64_MAX:
            raise ValueError(f"timestamp {timestamp} lies more than 64 bits after the base timestamp {base_timestamp}")
        encoded_timestamp = SMALL_VARINTS[delta] if 0 <= delta < _SMALL else encode_varlong(delta)
        encoded_offset = SMALL_VARINTS[offset_delta] if offset_delta < _SMALL else encode_varint(offset_delta)
        if key is None:
            key, key_length = b"", _NULL
        else:
            length = len(key)
            key_length = SMALL_VARINTS[length] if length < _SMALL else encode_varint(length)
        if value is None:
            value, value_length = b"", _NULL
        else:
            length = len(value)
            value_length = SMALL_VARINTS[length] if length < _SMALL else encode_varint(length)
        body_bytes = (
            1  # attributes
            + len(encoded_timestamp)
            + len(encoded_offset)
            + len(key_length)
            + len(key)
            + len(value_length)
            + len(value)
            + len(encoded_headers)
        )
        if len(self._records) + body_bytes > _MAX_RECORDS_BYTES:
            raise ValueError(f"a record of {body_bytes} bytes does not fit after the {len(self._records)} bytes so far")
        self._records += b"".join(
            (
                SMALL_VARINTS[body_bytes] if body_bytes < _SMALL else encode_varint(body_bytes),
                b"\x00",
                encoded_timestamp,
                encoded_offset,
                key_length,
                key,
                value_length,
                value,
                encoded_headers,
            )
        )
        self._base_timestamp = base_timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._last_offset_delta = offset_delta
        self._records_count += 1

    def _check_producer(self) -> None:
        if self._producer_id == NO_PRODUCER_ID:
            if self._attributes & TRANSACTIONAL_FLAG:
                raise ValueError("a transactional batch needs a producer id")
            return
        if self._producer_epoch == NO_PRODUCER_EPOCH:
            raise ValueError(f"producer {self._producer_id} has no epoch")
        if self._base_sequence < 0 and not self._attributes & CONTROL_FLAG:
            raise ValueError(f"producer {self._producer_id} has base sequence {self._base_sequence}. It starts at 0")


def build_batch(records: Iterable[tuple[int, Bytes | None, Bytes | None, Headers]], **options: Any) -> bytes:
    """Build a batch of (timestamp, key, value, headers) at consecutive offsets; options as for BatchBuilder."""
    builder = BatchBuilder(**options)
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    return builder.build()


def encode_header_steps(headers: Headers) -> Steps[bytes]:
    """The headers of one record, however many."""
    parts = [encode_varint(len(headers))]
    for start in range(0, len(headers), STEPS_PER_PAUSE):
        parts.append(_encode_each(headers[start : start + STEPS_PER_PAUSE]))
        yield None
    yield b"".join(parts)


def _encode_headers(headers: Headers) -> bytes:
    return encode_varint(len(headers)) + _encode_each(headers)


def _encode_each(headers: Headers) -> bytes:
    parts: list[Bytes] = []
    for key, value in headers:
        if key is None:
            raise ValueError("a header key is null")
        encoded_key = key.encode()
        parts += (encode_varint(len(encoded_key)), encoded_key)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)
