"""`prepare` for what most produce requests carry: one batch that is no long work, checked in one pass on the spot.

Every check is made that `prepare_steps` makes of such a batch. Where one fails, or the batch or the topic is any other than the
usual, nothing is said about it: `prepare_steps` then finds the same and has the words, in Kafka's order. So what is accepted
here is accepted there, with the same result.

Plain records that the server packs into one batch, with the topic's codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....protocol.errors import RecordTooLargeError
from ....protocol.limits import KIB
from ....protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    crc32c,
    parse_header,
)
from ....protocol.records.builder import BatchBuilder, encode_header_steps
from ....protocol.records.steps import STEPS_PER_PAUSE, BatchLimits
from ....protocol.records.unpacking import unpack_few
from ....protocol.records.walk import ALIKE_PER_STEP, NOTHING_WALKED, TRIED_EACH, walk_plain
from ....protocol.types import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, Bytes, CompressionType, TimestampType, TopicPartition
from ...config import LogConfig, RecordValidation
from ..disk.diskops import Compute, Procedure
from ..producers.producer_cursor import AppendOrigin
from ..segments.least_timestamps import NOT_KNOWN
from .prepare import PACKED_AT_ONCE_BYTES, PreparedAppend, prepare_steps

MOST_CODEC: Final = max(CompressionType)
MOST_BYTES: Final = 128 * KIB
"""Larger batches are worth the few microseconds that steps cost."""
MOST_RECORDS: Final = STEPS_PER_PAUSE
"""That are read one by one, 20 to 150 us. More of them have to be alike."""

SMALL_BYTES: Final = 16 * KIB
BYTES_PER_STEP: Final = 64
"""Of a small batch, which takes 2 to 100 us, and up to 300 where it unpacks to eight times its size."""
COPIED_PER_STEP: Final = 2 * KIB
"""Of a larger one, to be read twice and copied once, beside its records."""


def steps_of(records: Bytes) -> int:
    """Return the most steps that `prepare_one` needs for a batch above SMALL_BYTES. It leaves batches that need more to
    `prepare_steps`."""
    count = int.from_bytes(records[RECORD_BATCH_OVERHEAD - 4 : RECORD_BATCH_OVERHEAD])
    return len(records) // COPIED_PER_STEP + _most_steps(count)


def _most_steps(count: int) -> int:
    return MOST_RECORDS if count <= MOST_RECORDS else MOST_RECORDS + count // ALIKE_PER_STEP


def prepare_one(records: Bytes, config: LogConfig, now_ms: int, limits: BatchLimits) -> PreparedAppend | None:
    """Return the result of `prepare_steps` for a client's batch, or None where the caller has to use `prepare_steps`."""
    size = len(records)
    if not RECORD_BATCH_OVERHEAD < size <= MOST_BYTES or size > config.max_message_bytes:
        return None
    header = parse_header(records)
    base_offset, batch_length, _, magic, crc, attributes, last_offset_delta, base, largest, producer_id, _, sequence, count = (
        header
    )
    if magic != MAGIC or LOG_OVERHEAD + batch_length != size or base_offset:
        return None
    if not 0 < count <= limits.records or last_offset_delta + 1 != count:
        return None
    has_producer, codec = producer_id > NO_PRODUCER_ID, attributes & COMPRESSION_MASK
    flags = attributes - codec
    if codec > MOST_CODEC or ((sequence < 0 or flags & ~TRANSACTIONAL_FLAG) if has_producer else flags):
        return None
    batch = records if records.__class__ is memoryview else memoryview(records)
    if crc32c(batch[ATTRIBUTES_POSITION:]) != crc:
        return None
    target = config.compression_type
    if target is not None and target != codec:
        return None
    smallest, least = largest, NOT_KNOWN
    if target is not None or config.record_validation is not RecordValidation.HEADER:
        content = batch[RECORD_BATCH_OVERHEAD:]
        data = unpack_few(header.compression_type, content, limits.unpacked_bytes) if codec else content.tobytes()
        if data is None:
            return None
        # Of many records none is begun with that is not alike.
        missed, steps = (TRIED_EACH, MOST_RECORDS) if count <= MOST_RECORDS else (count, _most_steps(count))
        position, walked, least_delta, most, has_null_key, _ = walk_plain(
            data, count, NO_TIMESTAMP - base, NOTHING_WALKED, steps, missed
        )
        if walked != count or position != len(data) or base + most != largest:
            return None
        if has_null_key and "compact" in config.cleanup_policy:
            return None
        smallest = least = base + least_delta
    if smallest < 0 or largest < 0:
        return None
    if config.message_timestamp_type is not TimestampType.LOG_APPEND_TIME and (
        now_ms - smallest > config.message_timestamp_before_max_ms or largest - now_ms > config.message_timestamp_after_max_ms
    ):
        return None
    # What PreparedAppend(...) makes, without its Python-level call.
    return tuple.__new__(
        PreparedAppend,
        (((header, batch),), size, count, largest, AppendOrigin.CLIENT, has_producer, None, None, False, least, NO_OFFSET),
    )


PlainRecord = tuple[int | None, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""(timestamp in ms or None for now, key, value, headers)."""

STEPS_PER_RECORD = 4
FEW_HEADERS = 16


def prepare_records(
    records: Sequence[PlainRecord],
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    limits: BatchLimits,
) -> Procedure[PreparedAppend]:
    """Pack and check them as what a client has packed. Raises what `prepare_steps` raises, ValueError for a record that
    cannot be packed."""
    codec = config.compression_type or CompressionType.NONE
    most_bytes = config.max_message_bytes if codec is CompressionType.NONE else limits.unpacked_bytes
    builder = BatchBuilder(compression_type=codec, compression_level=config.compression_level(codec))
    unsaid = 0
    for index, (timestamp, key, value, headers) in enumerate(records):
        limits.check_headers(len(headers), index)
        stamp = now_ms if timestamp is None else timestamp
        if len(headers) <= FEW_HEADERS:
            builder.append(stamp, key, value, headers)
        else:
            for encoded in encode_header_steps(headers):
                if encoded is None:
                    yield None
                else:
                    builder.append_encoded(stamp, key, value, encoded)
        if builder.estimated_size_bytes > most_bytes:
            raise RecordTooLargeError(
                f"{topic_partition}: {index + 1} of {len(records)} records take {builder.estimated_size_bytes} bytes, at most "
                f"{most_bytes} are allowed; send fewer at a time"
            )
        unsaid += STEPS_PER_RECORD + len(headers)
        if unsaid > STEPS_PER_PAUSE:
            unsaid = 0
            yield None
    is_small = builder.estimated_size_bytes <= PACKED_AT_ONCE_BYTES or codec is CompressionType.NONE
    batch = builder.build() if is_small else (yield Compute(builder.build, ()))
    prepared = prepare_one(batch, config, now_ms, limits)
    if prepared is not None:
        return prepared
    return (yield from prepare_steps(batch, topic_partition, config, now_ms=now_ms, limits=limits))
