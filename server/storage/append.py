"""Appending: check what a producer sent, then plan one write for many appends (Kafka: LogValidator, UnifiedLog.append).

`prepare_append` works on one producer's bytes, before the log is involved. `plan_append` is pure memory: it gives offsets and
stamps to as many prepared appends as fit the active segment and answers an `AppendPlan`; nothing has changed. The plan's
operations are executed, then `commit` moves the state, or `abort` answers how to undo what reached the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import attrs

from ...protocol.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RequestError,
)
from ...protocol.limits import MAX_DECOMPRESSED_BYTES
from ...protocol.records.batch import (
    BatchHeader,
    check_batch,
    end_txn_marker,
    iter_batches,
    parse_header,
    stamp,
    with_timestamp,
)
from ...protocol.records.builder import BatchBuilder
from ...protocol.records.record import iter_records, walk_records
from ...protocol.types import NO_TIMESTAMP, Bytes, TimestampType, TopicPartition
from ..config import LogConfig, RecordValidation
from .diskops import DiskOp, FileHandle, Sync, SyncDirectory, Truncate
from .log import Log
from .producer_cursor import AppendOrigin, ProducerCursor
from .producer_entry import EndTxnMarker, parse_end_txn_marker
from .segment import LogSegment, SegmentCursor

STAMPED_BYTES = 16
"""baseOffset, batchLength and partitionLeaderEpoch lie before the bytes that the CRC covers."""


class PreparedAppend(NamedTuple):
    """One producer's checked batches, ready for offsets."""

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


class AppendResult(NamedTuple):
    """Where an append went. `log_append_time` is -1 under CreateTime, but for a duplicate: then it is its largest timestamp."""

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int


def prepare_append(
    records: Bytes,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    one_batch: bool = False,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> PreparedAppend:
    """Check batches as they came and make them what the topic's configuration wants.

    Every batch is walked (unless record.validation=header): lengths, count, offset deltas 0..n-1, timestamps. A wrong
    `max_timestamp` is corrected together with the CRC; another codec than `compression.type` rebuilds the batch; all else is
    kept bit for bit. `one_batch`: Kafka's producers send exactly one. From a client, control batches and base offsets other
    than 0 are refused, and batches of several producers in one append. Raises CorruptRecordError, InvalidRecordError,
    InvalidTimestampError, RecordTooLargeError, UnsupportedCompressionTypeError; every message starts with the partition.
    """
    try:
        batches: list[tuple[BatchHeader, Bytes]] = []
        consumed = 0
        for header, batch in iter_batches(records):
            batches.append(_check_one(header, batch, config, now_ms, from_client=origin is AppendOrigin.CLIENT))
            consumed += len(batch)
        if consumed != len(records):
            raise CorruptRecordError(
                f"the last batch is incomplete: {len(records) - consumed} bytes are left behind {consumed}"
            )
        if not batches:
            raise InvalidRecordError("there is no record batch in the request")
        if one_batch and len(batches) > 1:
            raise InvalidRecordError(f"there are {len(batches)} record batches, exactly one per partition was expected")
    except RequestError as exc:
        raise type(exc)(f"{topic_partition}: {exc.message}", exc.code) from exc
    if len(batches) == 1:
        header, _ = batches[0]
        return PreparedAppend(
            (batches[0],), header.size_bytes, header.records_count, header.max_timestamp, origin, header.has_producer_id
        )
    producers = {(header.producer_id, header.producer_epoch) for header, _ in batches}
    if len(producers) > 1:
        raise InvalidRecordError(f"{topic_partition}: the append has batches of {len(producers)} producers; send them apart")
    return PreparedAppend(
        tuple(batches),
        sum(header.size_bytes for header, _ in batches),
        sum(header.last_offset_delta + 1 for header, _ in batches),
        max(header.max_timestamp for header, _ in batches),
        origin,
        batches[0][0].has_producer_id,
    )


def prepare_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    now_ms: int,
    ends_only: int | None = None,
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
    return PreparedAppend(((header, batch),), len(batch), 1, now_ms, AppendOrigin.COORDINATOR, True, marker, ends_only)


def _check_one(
    header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int, *, from_client: bool
) -> tuple[BatchHeader, Bytes]:
    if from_client and header.base_offset != 0:
        raise InvalidRecordError(f"the batch has base offset {header.base_offset}; producers send 0, the log gives offsets")
    if header.size_bytes > config.max_message_bytes:
        raise RecordTooLargeError(
            f"the batch has {header.size_bytes} bytes, above max.message.bytes={config.max_message_bytes}; "
            "send smaller batches or raise the topic's limit"
        )
    check_batch(batch, header)
    _check_counts(header, from_client=from_client)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME or header.max_timestamp == NO_TIMESTAMP:
            raise InvalidTimestampError("the batch declares LogAppendTime; only the log sets that")
        batch = memoryview(with_timestamp(batch, TimestampType.CREATE_TIME, header.max_timestamp))
        header = parse_header(batch)
    if config.record_validation is RecordValidation.HEADER and config.compression_type is None:
        _check_timestamps(header.max_timestamp, header.max_timestamp, config, now_ms)
        return header, batch
    walk = walk_records(batch, header, max_bytes=MAX_DECOMPRESSED_BYTES)
    if walk.has_null_key and "compact" in config.cleanup_policy:
        raise InvalidRecordError("a record has no key, and the topic is compacted: only keyed records can be kept")
    _check_timestamps(walk.min_timestamp, walk.max_timestamp, config, now_ms)
    target = config.compression_type
    if target is not None and target != header.compression_type and not header.is_control:
        return _recompress(header, batch, config)
    if walk.max_timestamp != header.max_timestamp:
        batch = memoryview(with_timestamp(batch, TimestampType.CREATE_TIME, walk.max_timestamp))
        header = parse_header(batch)
    return header, batch


def _check_counts(header: BatchHeader, *, from_client: bool) -> None:
    count, offsets = header.records_count, header.last_offset_delta + 1
    if offsets <= 0 or count <= 0 or offsets != count:
        raise InvalidRecordError(f"the batch says {count} records and {offsets} offsets; both must be equal and positive")
    if from_client and header.is_control:
        raise InvalidRecordError("the batch is a control batch; only the log writes those")
    if from_client and header.is_transactional and not header.has_producer_id:
        raise InvalidRecordError("the batch is transactional and names no producer")
    if from_client and header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecordError(
            f"producer {header.producer_id} sent base sequence {header.base_sequence}; it cannot be negative"
        )


def _check_timestamps(smallest: int, largest: int, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    if smallest < NO_TIMESTAMP:
        raise InvalidTimestampError(f"timestamp {smallest} lies before 1970; only -1, no timestamp, is negative")
    if smallest != NO_TIMESTAMP and now_ms - smallest > config.message_timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"timestamp {smallest} lies {now_ms - smallest} ms before the server's clock {now_ms}, more than "
            f"message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}"
        )
    if largest != NO_TIMESTAMP and largest - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"timestamp {largest} lies {largest - now_ms} ms after the server's clock {now_ms}, more than "
            f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms}"
        )


def _recompress(header: BatchHeader, batch: Bytes, config: LogConfig) -> tuple[BatchHeader, Bytes]:
    assert config.compression_type is not None
    builder = BatchBuilder(
        compression_type=config.compression_type,
        compression_level=config.compression_level(config.compression_type),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    for record in iter_records(batch, header):
        builder.append(record.timestamp, record.key, record.value, record.headers)
    rebuilt = memoryview(builder.build())
    if len(rebuilt) > config.max_message_bytes:
        raise RecordTooLargeError(
            f"the batch has {len(rebuilt)} bytes after conversion to compression.type, "
            f"above max.message.bytes={config.max_message_bytes}"
        )
    return parse_header(rebuilt), rebuilt


@attrs.frozen
class AppendPlan:
    """One write for several appends. `answers` are in the order of the appends; the first `taken` of them are answered.

    When `roll` says why, the next append needs a new segment first.
    """

    answers: list[AppendResult | RequestError]
    taken: int
    roll: str | None
    segment: LogSegment
    cursor: SegmentCursor
    producers: ProducerCursor
    log_end_offset: int
    operations: list[DiskOp]
    files: list[FileHandle]
    sync: bool
    names_created: int
    """How many of the log's names the sync covers."""
    snapshot: int | None
    """The producer snapshot that it covers."""

    @property
    def writes(self) -> bool:
        return bool(self.cursor.buffers)


def plan_append(log: Log, appends: Sequence[PreparedAppend], *, sync: bool) -> AppendPlan:
    """Offsets, stamps and index entries for the first appends that fit the active segment. Changes nothing.

    `sync`: the operations end with the bytes forced to the device. An append that its producer may not make now, or that is
    above segment.bytes, is answered with an error; the others are not affected. A duplicate is answered with the offsets that
    it got the first time, and does not roll (Kafka rolls before it looks).
    """
    segment = log.active
    cursor, producers = segment.cursor(), log.producers.cursor()
    next_offset, epoch, now_ms = log.log_end_offset, log.leader_epoch, log.now_ms()
    append_time = now_ms if log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else None
    answers: list[AppendResult | RequestError] = []
    roll: str | None = None
    for append in appends:
        if append.size > log.config.segment_bytes or append.has_producer:
            answer = _known_answer(log, producers, append)
            if answer is not None:
                answers.append(answer)
                continue
        last_offset = next_offset + append.records_count - 1
        max_timestamp = append.max_timestamp if append_time is None else append_time
        roll = segment.should_roll(
            cursor, size=append.size, largest_offset=last_offset, largest_timestamp=max_timestamp, now_ms=now_ms
        )
        if roll is not None:
            break
        _plan_batches(segment, cursor, producers, append, next_offset, epoch, append_time)
        answers.append(
            AppendResult(next_offset, last_offset, NO_TIMESTAMP if append_time is None else append_time, log.log_start_offset)
        )
        next_offset = last_offset + 1
    operations: list[DiskOp] = list(segment.writes_for(cursor))
    files = segment.files_for(cursor)
    if sync and cursor.buffers:
        _add_sync(log, segment, operations, files)
    return AppendPlan(
        answers,
        len(answers),
        roll,
        segment,
        cursor,
        producers,
        next_offset,
        operations,
        files,
        sync,
        log.names_created,
        log.unsynced_snapshot,
    )


def _known_answer(log: Log, producers: ProducerCursor, append: PreparedAppend) -> AppendResult | RequestError | None:
    """The answer to an append that is not stored: it is there already, or may not be. None when it may."""
    if append.has_producer:
        try:
            duplicate = _check_producer(log, producers, append)
        except RequestError as exc:
            return exc.as_answer()
        if duplicate is not None:
            return duplicate
    if append.size > log.config.segment_bytes:
        return RecordBatchTooLargeError(
            f"{log.topic_partition}: the append has {append.size} bytes, above segment.bytes={log.config.segment_bytes}"
        )
    return None


def _check_producer(log: Log, producers: ProducerCursor, append: PreparedAppend) -> AppendResult | None:
    """What a duplicate got the first time. Raises the RequestError for what its producer may not append."""
    topic_partition = log.topic_partition
    if append.marker is not None:
        producers.check_marker(topic_partition, append.marker)
        if append.ends_only is not None:
            producers.check_open(topic_partition, append.marker.producer_id, append.ends_only)
        return None
    if append.origin is not AppendOrigin.CLIENT:
        producers.check_epoch(topic_partition, append.batches[0][0])
        producers.check_room(topic_partition, append.batches[0][0].producer_id, log.max_producers)
        return None
    found = producers.admit(
        topic_partition, [header for header, _ in append.batches], joins_transaction=append.joins_transaction
    )
    if found is None:
        producers.check_room(topic_partition, append.batches[0][0].producer_id, log.max_producers)
        return None
    first, last = found
    # As Kafka does: the time of the stored batch, whoever chose it.
    return AppendResult(first.first_offset, last.last_offset, first.timestamp, log.log_start_offset)


def _add_sync(log: Log, segment: LogSegment, operations: list[DiskOp], files: list[FileHandle]) -> None:
    """Earlier segments go with their indexes, which recovery trusts below the recovery point (see Log.plan_flush)."""
    before = [other for other in log.unsynced(log.log_end_offset) if other is not segment]
    earlier = [file for other in before for file in other.files]
    files += earlier
    operations += [*log.sync_of_snapshot(), *(Sync(file) for file in [*earlier, segment.log])]
    if log.names_unsynced:
        operations.append(SyncDirectory(log.directory))


def _plan_batches(
    segment: LogSegment,
    cursor: SegmentCursor,
    producers: ProducerCursor,
    append: PreparedAppend,
    offset: int,
    epoch: int,
    append_time: int | None,
) -> None:
    """Stamp an append's batches and put each on the cursor: index entries are due per batch, as recovery has them."""
    for header, data in append.batches:
        if append_time is not None:
            data = with_timestamp(data, TimestampType.LOG_APPEND_TIME, append_time)
        last_offset = offset + header.last_offset_delta
        segment.plan_append(
            cursor,
            largest_offset=last_offset,
            largest_timestamp=header.max_timestamp if append_time is None else append_time,
            offset_of_max_timestamp=last_offset,
            buffers=[stamp(offset, header, epoch), memoryview(data)[STAMPED_BYTES:]],
            size=header.size_bytes,
        )
        if append.marker is not None:
            aborted = producers.end(append.marker, offset)
            if aborted is not None:
                segment.plan_aborted(cursor, aborted)
        elif append.has_producer:
            producers.add(header, offset, append_time)
        offset = last_offset + 1


def commit(log: Log, plan: AppendPlan) -> None:
    """The plan's bytes are written (and synced, if it said so): let the log have them."""
    assert plan.segment is log.active
    if plan.cursor.aborted and not plan.segment.transaction_index.entries:
        log.names_created += 1
    plan.segment.commit(plan.cursor)
    log.log_end_offset = plan.log_end_offset
    log.producers.commit(plan.producers, plan.log_end_offset)
    log.modified = True
    log.changed()
    if plan.sync and plan.writes:
        log.recovery_point = plan.log_end_offset
        log.producers.on_recovery_point(log.recovery_point)
        log.names_synced = max(log.names_synced, plan.names_created)
        log.snapshot_synced(plan.snapshot)


def abort(plan: AppendPlan) -> list[DiskOp]:
    """What takes back whatever part of the plan's bytes reached the log file. Index bytes behind the entries do not count.

    Synced: the appends are answered with an error, so they must not be there after a power cut either.
    """
    log = plan.segment.log
    return [Truncate(log, plan.segment.size), Sync(log)]
