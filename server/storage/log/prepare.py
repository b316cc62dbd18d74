"""Checks a producer's batches before a log is involved, and adapts them to the topic's configuration (Kafka: LogValidator).

`prepare_one` is for what most produce requests carry: one batch that is no long work, checked in one pass on the spot. It makes
every check that `prepare_steps` makes of such a batch. Where one fails, or the batch or the topic is any other than the usual,
it says nothing: `prepare_steps` then finds the same and has the words, in Kafka's order. So what is accepted by the one is
accepted by the other, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ....protocol.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError, RequestError
from ....protocol.limits import KIB
from ....protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    assemble_batch,
    crc32c,
    end_txn_marker,
    iter_batches,
    parse_header,
    with_timestamp,
)
from ....protocol.records.builder import BatchBuilder, encode_header_steps
from ....protocol.records.compression import compress
from ....protocol.records.steps import STEPS_PER_PAUSE, UNLIMITED, BatchLimits
from ....protocol.records.unpacking import unpack_few
from ....protocol.records.varint import decode_varint, decode_varlong
from ....protocol.records.walk import ALIKE_PER_STEP, NOTHING_WALKED, TRIED_EACH, RecordsWalk, walk_plain, walk_steps
from ....protocol.types import NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, Bytes, CompressionType, TimestampType, TopicPartition
from ...config import LogConfig, RecordValidation
from ..disk.diskops import Compute, Procedure, compute
from ..producers.producer_cursor import AppendOrigin, EndTxnMarker, parse_end_txn_marker
from ..segments.segment_view import NOT_KNOWN, NOTHING, checked, dropped, unpacked, unpacked_small

BATCHES_PER_PAUSE: Final = 16
PACKED_AT_ONCE_BYTES: Final = 16 * KIB
"""Compressed on the spot: 0.5 ms with the slowest codec at its default level."""
MAX_RECORD_ERRORS: Final = 1000
"""Of one batch. A batch of a megabyte may have a hundred thousand records, and each error is a hundred bytes."""
SHOWN: Final = 3
"""Refused records that the message names, as Kafka's does."""


class PreparedAppend(NamedTuple):
    """The checked batches of one producer, ready for offsets."""

    batches: tuple[tuple[BatchHeader, Bytes], ...]
    size: int
    records_count: int
    max_timestamp: int
    origin: AppendOrigin = AppendOrigin.CLIENT
    has_producer: bool = False
    """Whether a batch carries a producer id; most checks are for those."""
    marker: EndTxnMarker | None = None
    """The end of a transaction, which is the only batch then."""
    ends_only: int | None = None
    """First offset of the transaction that the marker may end, None for whichever is open."""
    joins_transaction: bool = False
    """Whether the batch lets its partition join the producer's transaction (KIP-890)."""
    least_timestamp: int = NOT_KNOWN
    """No record that has a timestamp has a smaller one."""
    expected_offset: int = NO_OFFSET
    """Where the log must end, or the append is refused; NO_OFFSET: anywhere."""

    @classmethod
    def of(cls, batches: tuple[tuple[BatchHeader, Bytes], ...], **more: Any) -> PreparedAppend:
        """An append of these batches, at least one. `more`: what they do not say themselves."""
        return cls(
            batches,
            sum(header.size_bytes for header, _ in batches),
            sum(header.last_offset_delta + 1 for header, _ in batches),
            max(header.max_timestamp for header, _ in batches),
            has_producer=batches[0][0].has_producer_id,
            **more,
        )

    def without_first(self, count: int) -> PreparedAppend:
        """The same without its first batches; at least one is left."""
        rest = PreparedAppend.of(self.batches[count:])
        return PreparedAppend._make((*rest[:4], *self[4:]))


def prepare_append(records: Bytes, topic_partition: TopicPartition, config: LogConfig, **options: Any) -> PreparedAppend:
    """`prepare_steps`, all of it on the spot: for batches of the server's own, tools and tests."""
    return compute(prepare_steps(records, topic_partition, config, **options))


def prepare_steps(
    records: Bytes,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    one_batch: bool = False,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    limits: BatchLimits = UNLIMITED,
) -> Procedure[PreparedAppend]:
    """Check batches as they came and make them what the topic's configuration wants.

    Every batch is walked (unless record.validation=header): lengths, count, offset deltas 0..n-1, timestamps. A wrong
    `max_timestamp` is corrected together with the CRC; another codec than `compression.type` rebuilds the batch; all else is
    kept bit for bit. `one_batch`: Kafka's producers send exactly one. From a client, control batches and base offsets other
    than 0 are refused, and batches of several producers in one append. Raises CorruptRecordError, InvalidRecordError,
    InvalidTimestampError, RecordTooLargeError, UnsupportedCompressionTypeError; every message starts with the partition.
    """
    try:
        batches: list[tuple[BatchHeader, Bytes]] = []
        consumed, least = 0, NOTHING
        for header, batch in iter_batches(records):
            kept_header, kept, smallest = yield from _check_one(
                header, batch, config, now_ms, from_client=origin is AppendOrigin.CLIENT, limits=limits
            )
            batches.append((kept_header, kept))
            least = min(least, smallest)
            consumed += len(batch)
            if not len(batches) % BATCHES_PER_PAUSE:
                limits.check_batches(len(batches))
                yield None
        if consumed != len(records):
            raise CorruptRecordError(f"the last batch is incomplete: {len(records) - consumed} bytes are left after {consumed}")
        if len(batches) > 1:
            limits.check_batches(len(batches))
        if not batches:
            raise InvalidRecordError("the request has no record batch")
        if one_batch and len(batches) > 1:
            raise InvalidRecordError(f"the request has {len(batches)} record batches, expected exactly one per partition")
    except RequestError as exc:
        error = type(exc)(f"{topic_partition}: {exc.message}", exc.code)
        error.record_errors = exc.record_errors
        raise error from exc
    producers = {(header.producer_id, header.producer_epoch) for header, _ in batches}
    if len(producers) > 1:
        raise InvalidRecordError(
            f"{topic_partition}: the append has batches of {len(producers)} producers. Send them separately"
        )
    return PreparedAppend.of(tuple(batches), origin=origin, least_timestamp=least)


def prepare_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    now_ms: int,
    ends_only: int | None = None,
    transaction_version: int = 0,
) -> PreparedAppend:
    """The control batch that ends a producer's transaction on a partition, ready for an offset.

    With `ends_only` it is refused (InvalidTxnStateError) unless the transaction that is open then starts at that offset.
    """
    batch = memoryview(
        end_txn_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            timestamp=now_ms,
            coordinator_epoch=coordinator_epoch,
        )
    )
    header = parse_header(batch)
    marker = parse_end_txn_marker(header, batch)
    assert marker is not None
    marker = marker._replace(transaction_version=transaction_version)
    return PreparedAppend.of(
        ((header, batch),), origin=AppendOrigin.COORDINATOR, marker=marker, ends_only=ends_only, least_timestamp=NOTHING
    )


def _check_one(
    header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int, *, from_client: bool, limits: BatchLimits
) -> Procedure[tuple[BatchHeader, Bytes, int]]:
    """The batch as it is to be stored, and the least timestamp of its records, as far as that is known."""
    if from_client and header.base_offset != 0:
        raise InvalidRecordError(f"the batch has base offset {header.base_offset}. Producers send 0, the log assigns offsets")
    size = len(batch)
    if size > config.max_message_bytes:
        raise RecordTooLargeError(
            f"the batch has {size} bytes, above max.message.bytes={config.max_message_bytes}. Send smaller "
            "batches or raise the topic's limit"
        )
    yield from checked(batch, header)
    _check_counts(header, from_client=from_client)
    if header.records_count > limits.records:
        limits.check_records(header)
    if header.attributes & LOG_APPEND_TIME_FLAG:
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME or header.max_timestamp == NO_TIMESTAMP:
            raise InvalidTimestampError("the batch declares LogAppendTime. Only the log sets that")
        batch = memoryview(with_timestamp(batch, TimestampType.CREATE_TIME, header.max_timestamp))
        header = parse_header(batch)
    if config.record_validation is RecordValidation.HEADER and config.compression_type is None:
        _check_timestamps(header.max_timestamp, header.max_timestamp, config, now_ms)
        return header, batch, NOT_KNOWN
    data = unpacked_small(batch, header, limits.unpacked_bytes)
    if data is None:
        data = yield from unpacked(batch, header, limits.unpacked_bytes)
    try:
        for walk in walk_steps(data, header, limits):
            if walk is None:
                yield None
        assert walk is not None
        try:
            _check_records(walk, config, now_ms)
        except RequestError as exc:
            raise (yield from _refused_records(data, header, config, now_ms)) from exc
        target = config.compression_type
        if target is not None and target != header.compression_type and not header.is_control:
            batch = yield from _recompressed(data, header, walk.max_timestamp, config, target)
            header = parse_header(batch)
        elif walk.max_timestamp != header.max_timestamp:
            batch = memoryview(with_timestamp(batch, TimestampType.CREATE_TIME, walk.max_timestamp))
            header = parse_header(batch)
    except RequestError:
        yield from dropped(data)
        raise
    if data.__class__ is not bytes:
        yield from dropped(data)
    return header, batch, NOTHING if walk.min_timestamp == NO_TIMESTAMP else walk.min_timestamp


def _check_counts(header: BatchHeader, *, from_client: bool) -> None:
    count, offsets = header.records_count, header.last_offset_delta + 1
    if offsets <= 0 or count <= 0 or offsets != count:
        raise InvalidRecordError(f"the batch has {count} records and {offsets} offsets. Both must be equal and positive")
    if not from_client:
        return
    if header.attributes & CONTROL_FLAG:
        raise InvalidRecordError("the batch is a control batch. Only the log writes those")
    if header.attributes & TRANSACTIONAL_FLAG and not header.has_producer_id:
        raise InvalidRecordError("the batch is transactional but names no producer")
    if header.base_sequence < 0 and header.has_producer_id:
        raise InvalidRecordError(
            f"producer {header.producer_id} sent base sequence {header.base_sequence}. It cannot be negative"
        )


def _check_records(walk: RecordsWalk, config: LogConfig, now_ms: int) -> None:
    """Raises InvalidRecordError or InvalidTimestampError if the log refuses a record: `_refused_records` finds out which."""
    _check_key(config, has_key=not walk.has_null_key)
    _check_timestamps(walk.min_timestamp, walk.max_timestamp, config, now_ms)


def _check_timestamps(smallest: int, largest: int, config: LogConfig, now_ms: int) -> None:
    """Raises InvalidTimestampError."""
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    if smallest < NO_TIMESTAMP:
        raise InvalidTimestampError(f"timestamp {smallest} is before 1970. Only -1, no timestamp, may be negative")
    if smallest != NO_TIMESTAMP and now_ms - smallest > config.message_timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"timestamp {smallest} is {now_ms - smallest} ms before the server's clock {now_ms}, more than "
            f"message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}"
        )
    if largest != NO_TIMESTAMP and largest - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {largest} is {largest - now_ms} ms after the server's clock {now_ms}, more than "
            f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms}"
        )


def _check_key(config: LogConfig, *, has_key: bool) -> None:
    if not has_key and "compact" in config.cleanup_policy:
        raise InvalidRecordError("a record has no key, but the topic is compacted: it accepts only records with a key")


def _refused_records(data: bytes, header: BatchHeader, config: LogConfig, now_ms: int) -> Procedure[RequestError]:
    """The error of a batch that `_check_records` refuses: that of its first refused record, with `record_errors`, so that a
    producer can send the others again (KIP-467). The batch has passed `walk_steps`: its lengths and counts are right."""
    errors: list[tuple[int, RequestError]] = []
    position = 0
    for index in range(header.records_count):
        if not (index + 1) % STEPS_PER_PAUSE:
            yield None
        length, start = decode_varint(data, position)
        position = start + length
        delta, after = decode_varlong(data, start + 1)
        _, after = decode_varint(data, after)
        key_length, _ = decode_varint(data, after)
        timestamp = header.base_timestamp + delta
        try:
            _check_key(config, has_key=key_length >= 0)
            _check_timestamps(timestamp, timestamp, config, now_ms)
        except (InvalidRecordError, InvalidTimestampError) as exc:
            errors.append((index, exc.as_answer()))
            if len(errors) == MAX_RECORD_ERRORS:
                break
    first = errors[0][1]
    shown = ", ".join(str(index) for index, _ in errors[:SHOWN]) + (", .." if len(errors) > SHOWN else "")
    count = f"{len(errors)} or more" if len(errors) == MAX_RECORD_ERRORS else str(len(errors))
    error = type(first)(f"{first.message}. {count} of {header.records_count} records are refused: {shown}", first.code)
    error.record_errors = tuple((index, each.message) for index, each in errors)
    return error


def _recompressed(
    data: bytes, header: BatchHeader, max_timestamp: int, config: LogConfig, target: CompressionType
) -> Procedure[memoryview]:
    """The batch with the same records under another codec."""
    level = config.compression_level(target)
    most_bytes = config.max_message_bytes - RECORD_BATCH_OVERHEAD
    pack = partial(compress, target, data, level, max_bytes=most_bytes)
    try:
        records = pack() if len(data) <= PACKED_AT_ONCE_BYTES else (yield Compute(pack, ()))
    except RecordTooLargeError as exc:
        raise RecordTooLargeError(
            f"the batch is above max.message.bytes={config.max_message_bytes} after conversion to "
            f"compression.type={target.name.lower()}: {exc.message}"
        ) from exc
    return memoryview(
        assemble_batch(
            records,
            base_offset=header.base_offset,
            last_offset_delta=header.last_offset_delta,
            records_count=header.records_count,
            attributes=header.attributes & TRANSACTIONAL_FLAG | target,
            base_timestamp=header.base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    )


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
    # What parse_header(...) makes, without its Python-level call.
    header: BatchHeader = tuple.__new__(BatchHeader, HEADER.unpack_from(records))
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
        end = size - RECORD_BATCH_OVERHEAD
        if not codec:
            data = content.tobytes()
        elif (unpacked_data := unpack_few(header.compression_type, content, limits.unpacked_bytes)) is None:
            return None
        else:
            data, end = unpacked_data, len(unpacked_data)
        # Of many records none is begun with that is not alike.
        missed, steps = (TRIED_EACH, MOST_RECORDS) if count <= MOST_RECORDS else (count, _most_steps(count))
        position, walked, least_delta, most, has_null_key, _ = walk_plain(
            data, count, NO_TIMESTAMP - base, NOTHING_WALKED, steps, missed
        )
        if walked != count or position != end or base + most != largest:
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
    producer: tuple[int, int] | None = None,
) -> Procedure[PreparedAppend]:
    """Pack and check them as what a client has packed. `producer`: the id of an idempotent producer, and the sequence of the
    first record. Raises what `prepare_steps` raises, ValueError for a record that cannot be packed."""
    codec = config.compression_type or CompressionType.NONE
    most_bytes = config.max_message_bytes if codec is CompressionType.NONE else limits.unpacked_bytes
    builder = BatchBuilder(compression_type=codec, compression_level=config.compression_level(codec))
    if producer is not None:
        builder.set_producer(producer[0], 0, producer[1], is_transactional=False)
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
                f"{topic_partition}: {index + 1} of {len(records)} records take {builder.estimated_size_bytes} bytes, "
                f"at most {most_bytes} are allowed. Send fewer at a time"
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
