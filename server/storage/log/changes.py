"""Changes of a log besides appends and retention: truncation, configuration, leader epochs, accepted gaps (Kafka:
UnifiedLog.truncateTo, truncateFullyAndStartAt).

Truncation removes whole batches but sets the log end offset exactly: `truncate_to(5)` with a batch 4..6 leaves a log that ends
at 5 and holds records below 4. The gap is normal; reading and recovery step over it.

A truncation is on the device before the log continues: what it removed must not return between, or after, newer records.
Producer snapshots after it are deleted first: the log may grow past their offsets again, with other batches.
"""

from __future__ import annotations

from ...config import LogConfig
from ..disk.diskops import Procedure, SyncDirectory, Truncate, WriteFile
from ..producers.producer_snapshots import delete_snapshot, list_snapshots, producers_at
from ..producers.producer_state import ProducerState
from .gaps import FILE_NAME as GAPS_FILE
from .gaps import OffsetGap, accepted, encode_gaps, gap_at, gaps_within
from .log import Log


def truncate_to(log: Log, offset: int) -> Procedure[bool]:
    """Make `offset` the log end offset; False when the log ends there or before: then only leader epochs that begin behind its
    end are forgotten, as in Kafka.

    Raises ValueError for a negative offset. The high watermark and the recovery point follow the end down.
    """
    if offset < 0:
        raise ValueError(f"{log.topic_partition}: cannot truncate to offset {offset}")
    if offset >= log.log_end_offset:
        if log.leader_epochs.go_on_from(log.log_end_offset):
            log.changed()
            yield from log.write_leader_epochs()
        return False
    if log.segments.first.base_offset > offset:
        yield from truncate_fully_and_start_at(log, offset)
        return True
    log.truncations += 1
    log.modified = True
    snapshots = yield from _delete_snapshots(log, offset)
    yield from log.take_out(log.segments.higher_segments(offset))
    yield from log.active.truncate_to(offset, log.now_ms())
    if log.sync_metadata:
        yield from (each for each in log.active.sync_of(log.active.log, min(log.recovery_point, offset)))
        yield SyncDirectory(log.directory)
    log.log_end_offset = offset
    log.recovery_point = min(log.recovery_point, offset)
    log.log_start_offset = min(log.log_start_offset, offset)
    if log.leader_epochs.go_on_from(offset):
        yield from log.write_leader_epochs()
    yield from log.write_derived(durable=True, must=True)
    yield from _cut_gaps(log, offset)
    log.changed(segments=True)
    views = [segment.view() for segment in log.segments]
    before, log.producers = (
        log.producers,
        (yield from producers_at(log.directory, snapshots, views, log.log_start_offset, offset)),
    )
    log.producers.take_over_unsynced(before)
    if log.high_watermark >= offset:
        log.high_watermark_to_end()
    else:
        log.producers.on_high_watermark(log.high_watermark)
    log.check_invariant()
    return True


def _cut_gaps(log: Log, end_offset: int) -> Procedure[None]:
    """Offsets from the new end on will be given out again."""
    kept = gaps_within(log.gaps, 0, end_offset)
    if kept != log.gaps:
        log.gaps = kept
        yield WriteFile(f"{log.directory}/{GAPS_FILE}", encode_gaps(kept), durable=log.sync_metadata)


def _delete_snapshots(log: Log, above: int) -> Procedure[list[int]]:
    """Delete the producer snapshots of offsets greater than `above`; answers the offsets of those that stay."""
    offsets = yield from list_snapshots(log.directory)
    for offset in offsets:
        if offset > above:
            yield from delete_snapshot(log.directory, offset)
    return [offset for offset in offsets if offset <= above]


def truncate_fully_and_start_at(log: Log, offset: int, log_start_offset: int | None = None) -> Procedure[None]:
    """Drop every segment and go on with an empty one at `offset`.

    In memory that is one step, before the disk is touched: readers come by between two operations, and after one that failed.
    """
    log.truncations += 1
    log.modified = True
    yield from _delete_snapshots(log, -1)
    segment = log.new_segment(offset)
    log.log_end_offset = offset
    log.log_start_offset = offset if log_start_offset is None else log_start_offset
    log.recovery_point = min(log.recovery_point, offset)
    log.producers = ProducerState(offset)
    log.set_high_watermark(offset, offset, 0)
    yield from log.take_out(list(log.segments), successor=segment)
    log.check_invariant()
    yield from log.create_files(segment)
    if log.sync_metadata:
        yield SyncDirectory(log.directory)
        log.names_synced = log.names_created
    epoch = log.leader_epoch
    log.leader_epochs.clear()
    log.leader_epochs.assign(epoch, offset)
    yield from log.write_leader_epochs()
    yield from log.write_derived(durable=True, must=True)
    yield from _cut_gaps(log, 0)
    log.changed(segments=True)


def reconfigure(log: Log, *, config: LogConfig) -> Procedure[None]:
    """From here on the log follows `config`.

    A changed `durability` forces what was written before to the device, so that it holds for all of the log. Without
    `preallocate` nobody would cut the active segment's preallocated rest off later, so that is done here.
    """
    before = log.config
    if before.preallocate and not config.preallocate:
        yield Truncate(log.active.log, log.active.size)
    log.config = config
    for segment in log.segments:
        segment.config = config
    log.changed()
    if config.durability != before.durability and log.sync_metadata:
        plan = log.plan_flush()
        yield from plan.operations
        log.commit_flush(plan)


def raise_leader_epoch(log: Log, above: int | None = None) -> Procedure[int]:
    """Begin the epoch after the latest one. Batches that are appended from now on carry it. The log changes when the file does.

    `above`: begin the epoch after this one and that of the last batch. An epoch without a batch does not count then.
    """
    latest = log.leader_epoch if above is None else max(above, log.leader_epochs.epoch_for_offset(log.log_end_offset - 1) or 0)
    epoch = latest + 1
    log.leader_epochs.assign(epoch, log.log_end_offset)
    yield from log.write_leader_epochs()
    log.changed()
    return epoch


def accept_gap(log: Log, *, start_offset: int) -> Procedure[OffsetGap | OSError]:
    """Accept the gap that starts there and answer it, or why it could not be written. It counts when it is on the device; a
    second time changes nothing. Raises InvalidRequestError where no gap starts there."""
    gaps = accepted(log.gaps, start_offset, log.now_ms())
    if gaps != log.gaps:
        try:
            yield WriteFile(f"{log.directory}/{GAPS_FILE}", encode_gaps(gaps), durable=log.sync_metadata)
        except OSError as exc:
            return exc
        log.gaps = gaps
        log.changed()
    found = gap_at(gaps, start_offset)
    assert found is not None
    return found
