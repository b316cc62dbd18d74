"""What a produce may hold, in Kafka's order of complaints, before its log looks at the records."""

from __future__ import annotations

import struct
from typing import Final

from ....protocol.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    RequestError,
    UnsupportedCompressionTypeError,
)
from ....protocol.kafka.messages.records import ProducePartition, ProduceRequest
from ....protocol.records.batch import (
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    parse_header,
)
from ....protocol.types import Bytes, CompressionType, TopicPartition
from .door import Call

ACKS: Final = (-1, 0, 1)
FIRST_WITH_ZSTD: Final = 7
ZSTD: Final = CompressionType.ZSTD.value
MAGIC_POSITION: Final = 16
_FRAMING: Final = struct.Struct(">8xi4xb4xh")
"""Of a batch: its length, magic and attributes."""
LEAST_SIZE: Final = LOG_OVERHEAD + 14
"""Of what Kafka's reader takes for a batch, of whatever format: that is a record of version 0 without anything in it."""


def checked_records(call: Call, request: ProduceRequest, topic_partition: TopicPartition, asked: ProducePartition) -> Bytes:
    """What is to be appended. Raises the RequestError that is the partition's answer."""
    records = asked.records
    if not records or request.acks not in ACKS or not is_one_batch(call, records):
        _check_odd(call, request, topic_partition, records or b"")
    if request.transactional_id is not None:
        call.check_partition(topic_partition)  # before it joins
    return records or b""


def is_one_batch(call: Call, records: Bytes) -> bool:
    """Whether all is well with the framing of the records: most of the time, and then nothing else is asked."""
    if len(records) < RECORD_BATCH_OVERHEAD:
        return False
    size, magic, attributes = _FRAMING.unpack_from(records)
    return (
        magic == MAGIC
        and len(records) == LOG_OVERHEAD + size
        and (attributes & COMPRESSION_MASK != ZSTD or call.version >= FIRST_WITH_ZSTD)
    )


def _check_odd(call: Call, request: ProduceRequest, topic_partition: TopicPartition, records: Bytes) -> None:
    """Say what is wrong with it, in Kafka's order, if anything is: raises RequestError."""
    _check_readable(topic_partition, records)
    try:
        if not records:
            raise InvalidRecordError(f"{topic_partition}: there are no records in the request")
        _check_format(call, topic_partition, records)
        if request.acks not in ACKS:
            raise RequestError(
                f"{topic_partition}: acks={request.acks}, expected one of {ACKS}", ErrorCode.INVALID_REQUIRED_ACKS
            )
    except RequestError:
        call.check_partition(topic_partition)  # Kafka says first that there is none
        raise


def _check_readable(topic_partition: TopicPartition, records: Bytes) -> None:
    """Raises CorruptRecordError for what Kafka cannot read at all; it says so even for a missing partition."""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] > MAGIC:
        raise CorruptRecordError(f"{topic_partition}: the records have magic {records[MAGIC_POSITION]}, expected {MAGIC}")
    if len(records) >= LOG_OVERHEAD and (size := _first_size(records)) < LEAST_SIZE:
        raise CorruptRecordError(f"{topic_partition}: a batch of {size} bytes, expected at least {LEAST_SIZE}")


def _check_format(call: Call, topic_partition: TopicPartition, records: Bytes) -> None:
    """Kafka calls older formats than that of the batches invalid, not damaged. The codec counts that the client chose."""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < MAGIC:
        raise InvalidRecordError(f"{topic_partition}: the records have magic {records[MAGIC_POSITION]}, expected {MAGIC}")
    size = _first_size(records)
    if len(records) < LOG_OVERHEAD or len(records) < size:
        raise InvalidRecordError(f"{topic_partition}: there is no whole batch in {len(records)} bytes")
    has_header = len(records) >= RECORD_BATCH_OVERHEAD
    if call.version < FIRST_WITH_ZSTD and has_header and parse_header(records).attributes & COMPRESSION_MASK == ZSTD:
        raise UnsupportedCompressionTypeError(f"{topic_partition}: zstd needs Produce v{FIRST_WITH_ZSTD}")
    if size < RECORD_BATCH_OVERHEAD:
        raise CorruptRecordError(f"{topic_partition}: a batch of {size} bytes has less than a batch's header")
    if len(records) >= size + LOG_OVERHEAD and len(records) - size >= _first_size(records[size:]):
        raise InvalidRecordError(f"{topic_partition}: a produce has one record batch for a partition, there is more behind it")


def _first_size(records: Bytes) -> int:
    """Bytes of the first batch, as its header says."""
    return LOG_OVERHEAD + int.from_bytes(records[LOG_OVERHEAD - 4 : LOG_OVERHEAD], "big", signed=True)
