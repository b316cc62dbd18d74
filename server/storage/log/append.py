"""Appending: one write for many appends that were prepared (Kafka: UnifiedLog.append).

`plan_append` is pure memory: it gives offsets and stamps to as many prepared appends as fit the active segment and answers an
`AppendPlan`; nothing has changed. The plan's operations are executed, then `commit_append` moves the state, or
`abort_append` answers how to
undo what reached the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....protocol.errors import ExpectedOffsetError, OutOfOrderSequenceError, RecordBatchTooLargeError, RequestError
from ....protocol.records.batch import LOG_OVERHEAD, STAMP, with_timestamp
from ....protocol.types import NO_OFFSET, NO_TIMESTAMP, AppendResult, TimestampType
from ..disk.diskops import DiskOp, FileHandle, Sync, SyncDirectory, Truncate
from ..producers.producer_cursor import AppendOrigin, ProducerCursor, StoredBatches
from ..producers.producer_state import KEYED_SHARE
from ..segments.segment import LogSegment, SegmentCursor
from .gaps import gaps_within
from .log import Log
from .mirrored import check_may_append, plan_mirrored
from .prepare import PreparedAppend

STAMPED_BYTES = STAMP.size
"""baseOffset, batchLength and partitionLeaderEpoch lie before the bytes that the CRC covers."""


class AppendPlan(NamedTuple):
    """A single write for several appends. `answers` are in the order of the appends and cover the first `taken` of them.

    If `roll` gives a reason, the next append needs a new segment first.
    """

    answers: list[AppendResult | RequestError]
    roll: str | None
    segment: LogSegment
    cursor: SegmentCursor
    producers: ProducerCursor | None
    """None: no batch has a producer."""
    log_end_offset: int
    operations: list[DiskOp]
    files: list[FileHandle]
    sync: bool
    names_created: int
    """How many of the log's names the sync covers."""
    snapshot: int | None
    """The producer snapshot that it covers."""

    @property
    def taken(self) -> int:
        return len(self.answers)

    @property
    def writes(self) -> bool:
        return bool(self.cursor.buffers)


def plan_append(log: Log, appends: Sequence[PreparedAppend], *, sync: bool) -> AppendPlan:
    """Offsets, stamps and index entries for the first appends that fit the active segment. Changes nothing.

    `sync`: the operations end with the bytes forced to the device. An append that its producer may not make now, that is above
    segment.bytes, or that expects the log to end elsewhere, is answered with an error; the others are not affected. A duplicate
    is answered with the offsets that it got the first time, and does not roll (Kafka rolls before it looks).
    """
    segment, config, log_start_offset = log.segments.active, log.config, log.log_start_offset
    cursor = segment.cursor()
    producers: ProducerCursor | None = None
    next_offset, epoch, mirrors = log.log_end_offset, log.leader_epochs.latest_epoch or 0, log.mirror_of != ""
    stamps, first_timestamp = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME, cursor.rolling_based_timestamp
    stamps = stamps and not mirrors
    # The clock is needed for stamps, and for the age of a segment whose first batch says nothing of it.
    now_ms = log.now_ms() if stamps or first_timestamp is None or first_timestamp < 0 else NO_TIMESTAMP
    append_time = now_ms if stamps else None
    told_time = NO_TIMESTAMP if append_time is None else append_time
    answers: list[AppendResult | RequestError] = []
    roll: str | None = None
    for append in appends:
        base_offset = next_offset
        if append.size > config.segment_bytes or append.has_producer or append.expected_offset != NO_OFFSET or mirrors:
            producers = producers or log.producers.cursor()
            known = _known_answer(log, producers, append, next_offset)
            if isinstance(known, Rest):
                append, base_offset = known.append, known.base_offset(next_offset)
            elif known is not None:
                answers.append(known)
                continue
            if mirrors:
                base_offset = next_offset = append.batches[0][0].base_offset
        last_offset = next_offset + append.records_count - 1
        max_timestamp = append.max_timestamp if append_time is None else append_time
        roll = segment.should_roll(
            cursor, size=append.size, largest_offset=last_offset, largest_timestamp=max_timestamp, now_ms=now_ms
        )
        if roll is not None:
            break
        if mirrors:
            assert producers is not None
            plan_mirrored(segment, cursor, producers, append.batches)
        else:
            _plan_batches(segment, cursor, producers, append, next_offset, epoch, append_time, log.is_black_hole)
        # What AppendResult(...) makes, without its Python-level call.
        answers.append(tuple.__new__(AppendResult, (base_offset, last_offset, told_time, log_start_offset)))
        next_offset = last_offset + 1
    operations, files = segment.writes_for(cursor)
    if sync and cursor.buffers:
        _add_sync(log, segment, operations, files)
    # What AppendPlan(...) makes, without its Python-level call.
    return tuple.__new__(
        AppendPlan,
        (
            answers,
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
        ),
    )


class Rest(NamedTuple):
    """The tail of an append whose first batches are stored already, at `first_offset` to `last_offset`. It is still to be
    written."""

    append: PreparedAppend
    first_offset: int
    last_offset: int

    def base_offset(self, next_offset: int) -> int:
        """Base offset of the whole append if its tail is written at `next_offset`; NO_OFFSET when other records came
        between."""
        return self.first_offset if self.last_offset + 1 == next_offset else NO_OFFSET


def _known_answer(
    log: Log, producers: ProducerCursor, append: PreparedAppend, next_offset: int
) -> AppendResult | RequestError | Rest | None:
    """None: write it; Rest: write its tail; otherwise the answer to give, because it is stored already or must not be."""
    rest: Rest | None = None
    is_mirrored = append.origin is AppendOrigin.REPLICATION
    if (is_mirrored or log.mirror_of) and (refusal := check_may_append(log, append)) is not None:
        return refusal
    if append.has_producer:
        try:
            stored = _check_producer(log, producers, append)
        except RequestError as exc:
            return exc.as_answer()
        if stored is not None and stored.how_many == len(append.batches):
            # As Kafka does: the time of the stored batch, whoever chose it.
            return AppendResult(
                stored.first.first_offset, stored.last.last_offset, stored.first.timestamp, log.log_start_offset
            )
        if stored is not None:
            append = append.without_first(stored.how_many)
            rest = Rest(append, stored.first.first_offset, stored.last.last_offset)
    if append.expected_offset != NO_OFFSET:
        expected_offset = append.expected_offset if rest is None else rest.last_offset + 1
        if next_offset != expected_offset:
            return ExpectedOffsetError(
                f"{log.topic_partition}: the log ends at offset {next_offset}, expected_offset is "
                f"{append.expected_offset}. Nothing was appended. Read the new records and decide again",
                next_offset,
            )
    if append.size > log.config.segment_bytes and not log.mirror_of:
        return RecordBatchTooLargeError(
            f"{log.topic_partition}: the append has {append.size} bytes, above segment.bytes={log.config.segment_bytes}"
        )
    return rest


def _check_producer(log: Log, producers: ProducerCursor, append: PreparedAppend) -> StoredBatches | None:
    """Return the first batches of the append that are already stored, or None. Raises RequestError if the producer may not make
    the append."""
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
    batches = append.batches
    headers = [header for header, _ in batches] if len(batches) > 1 else batches[0][:1]
    stored = producers.admit(topic_partition, headers, joins_transaction=append.joins_transaction)
    if stored is not None and log.gaps:
        _check_whole(log, stored)
    if stored is None:
        producers.check_room(topic_partition, append.batches[0][0].producer_id, log.max_producers)
    return stored


def _check_whole(log: Log, stored: StoredBatches) -> None:
    """Raises OutOfOrderSequenceError where damage has taken batches out between those that are stored: a power cut may leave of
    an append what was behind them."""
    lost = gaps_within(log.gaps, stored.first.first_offset, stored.last.last_offset + 1)
    if lost:
        raise OutOfOrderSequenceError(
            f"{log.topic_partition}: of batches stored at offsets {stored.first.first_offset} to "
            f"{stored.last.last_offset}, {lost[0]} was lost to corruption. Send the records again as another "
            "producer"
        )


def _add_sync(log: Log, segment: LogSegment, operations: list[DiskOp], files: list[FileHandle]) -> None:
    """Earlier segments go with their indexes, which recovery trusts below the recovery point (see Log.plan_flush)."""
    operations += log.sync_of_snapshot()
    for other in log.unsynced(log.log_end_offset):
        if other is not segment:
            for file in other.files:
                files.append(file)
                operations += other.sync_of(file, log.recovery_point)
    *again, sync = segment.sync_of(segment.log, log.recovery_point)
    operations[:0] = again  # in front of the new bytes: what lies behind the committed ones is not kept
    operations.append(sync)
    if log.names_unsynced:
        operations.append(SyncDirectory(log.directory))


def _plan_batches(
    segment: LogSegment,
    cursor: SegmentCursor,
    producers: ProducerCursor | None,
    append: PreparedAppend,
    offset: int,
    epoch: int,
    append_time: int | None,
    is_black_hole: bool,
) -> None:
    """Stamp an append's batches and put each on the cursor: index entries are due per batch, as recovery has them. A black hole
    keeps no bytes, only what its producers have sent."""
    for header, data in append.batches:
        if append_time is not None:
            data = memoryview(with_timestamp(data, TimestampType.LOG_APPEND_TIME, append_time))
        last_offset = offset + header.last_offset_delta
        if not is_black_hole:
            segment.plan_append(
                cursor,
                largest_offset=last_offset,
                largest_timestamp=header.max_timestamp if append_time is None else append_time,
                offset_of_max_timestamp=last_offset,
                least_timestamp=append.least_timestamp if append_time is None else append_time,
                buffers=(STAMP.pack(offset, header.batch_length, epoch), data[STAMPED_BYTES:]),
                size=LOG_OVERHEAD + header.batch_length,
            )
        if append.has_producer:
            assert producers is not None
            if append.marker is None:
                producers.add(header, offset, append_time)
            elif (aborted := producers.end(append.marker, offset)) is not None and not is_black_hole:
                segment.plan_aborted(cursor, aborted)
        offset = last_offset + 1


def commit_append(log: Log, plan: AppendPlan, *, readable: bool = False) -> None:
    """The plan's bytes are written (and synced, if it said so): let the log have them. `readable`: the high watermark moves to
    their end, because nothing else has to happen to them first."""
    segment, cursor, producers = plan.segment, plan.cursor, log.producers
    assert segment is log.segments.active
    if cursor.aborted and not segment.transaction_index.entries:
        log.names_created += 1
    segment.commit(cursor)
    log.log_end_offset = plan.log_end_offset
    if plan.producers is None:
        producers.end_offset = plan.log_end_offset
    else:
        producers.commit(plan.producers, plan.log_end_offset, log.max_producers // KEYED_SHARE)
    log.modified = True
    log.known_snapshot = None
    if readable:  # what `high_watermark_to_end` does, without its calls
        log.high_watermark = plan.log_end_offset
        log.high_watermark_segment, log.high_watermark_position = segment.base_offset, segment.size
        if producers.unreplicated:
            producers.on_high_watermark(plan.log_end_offset)
        if not log.sync_metadata:
            producers.on_recovery_point(plan.log_end_offset)
    if plan.sync and plan.writes:
        log.recovery_point = plan.log_end_offset
        log.producers.on_recovery_point(log.recovery_point)
        log.names_synced = max(log.names_synced, plan.names_created)
        log.snapshot_synced(plan.snapshot)


def abort_append(plan: AppendPlan) -> list[DiskOp]:
    """Operations that remove whatever part of the plan's bytes reached the log file. Index bytes behind the entries do no harm.

    The cut is synced, because appends that are answered with an error must not be there after a power cut either. After a
    failed sync that is left to the next one.
    """
    log = plan.segment.log
    cut = Truncate(log, plan.segment.size)
    return [cut, Sync(log)] if log.failed_sync is None else [cut]
