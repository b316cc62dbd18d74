"""`prepare` for what most produce requests carry: one batch that is no long work, checked in one pass on the spot.

Every check is made that `prepare_steps` makes of such a batch. Where one fails, or the batch or the topic is any other than the
usual, nothing is said about it: `prepare_steps` then finds the same and has the words, in Kafka's order. So what is accepted
here is accepted there, with the same result.
"""

from __future__ import annotations

from typing import Final

from ....protocol.limits import KIB
from ....protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    parse_header,
)
from ....protocol.records.crc32c import crc32c
from ....protocol.records.steps import STEPS_PER_PAUSE, BatchLimits
from ....protocol.records.unpacking import unpack_few
from ....protocol.records.walk import ALIKE_PER_STEP, NOTHING_WALKED, TRIED_EACH, walk_plain
from ....protocol.types import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, Bytes, CompressionType, TimestampType
from ...config import LogConfig, RecordValidation
from ..producers.producer_cursor import AppendOrigin
from ..segments.least_timestamps import NOT_KNOWN
from .prepare import PreparedAppend

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
    """What `prepare_one` takes at most for a batch above SMALL_BYTES: what would take longer it leaves to `prepare_steps`."""
    count = int.from_bytes(records[RECORD_BATCH_OVERHEAD - 4 : RECORD_BATCH_OVERHEAD])
    return len(records) // COPIED_PER_STEP + _most_steps(count)


def _most_steps(count: int) -> int:
    return MOST_RECORDS if count <= MOST_RECORDS else MOST_RECORDS + count // ALIKE_PER_STEP


def prepare_one(records: Bytes, config: LogConfig, now_ms: int, limits: BatchLimits) -> PreparedAppend | None:
    """What `prepare_steps` answers for a client's batch, or None: ask it."""
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
