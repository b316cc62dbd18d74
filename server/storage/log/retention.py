"""Retention: deletes old segments, and records below an offset (Kafka: UnifiedLog.deleteOldSegments,
maybeIncrementLogStartOffset).

| why | when | which segments, from the oldest on |
|---|---|---|
| log start offset | always | the next segment's base offset is at or below the log start offset |
| `retention.bytes` | cleanup.policy has `delete` | as long as at least `retention.bytes` stay |
| `retention.ms` | cleanup.policy has `delete` | the largest timestamp (without any: the file's mtime) is older, strictly |

The age of records that were appended while the clock was not trusted counts from the time when it was trusted again (see
`segments/undated`).
A largest timestamp that only the time index knows is read from the batches first.

A segment goes only when all of it lies below the high watermark, and the first that stays ends the walk. `retention.ms` and
`retention.bytes` take nothing from `held_from` on, up to the bounds of the hold (see below). When all of them go,
the active one is forced to the device and rolled first, so an empty segment stays and the log end offset with it.

It takes two steps, with the log directory's log start checkpoint written between them: `expire_segments` raises the log start
offset, `take_out_below` renames the files. After a power cut any part of the renames can be there, also of later
segments and not of earlier ones; the checkpoint says that nothing below it counts. Unlinking comes later (see `Doomed`).

Where there is no room for the checkpoint, `let_go_below` takes the place of the second step: the segments are unlinked from the
oldest on, each of them on the device before the next one's turn, so a power cut leaves a log that starts somewhere further up
and never one with a hole.

Holds keep records from retention that a reader has not read yet.

A hold is the first offset that is still needed; it does not know the readers or their positions. It reaches from there to
the end of the log, in whole segments, and keeps them from `retention.ms` and `retention.bytes` up to its bounds:

| bound | a segment is past it |
|---|---|
| `retention.hold.max.bytes` | without it, at least that much would still be held |
| `retention.hold.max.ms` | its largest timestamp is certain and older, strictly; one without timestamps never is |

Past a bound `disk.full.policy` decides: `drop-oldest` lets retention have the segment, `refuse` keeps it, and appends are to be
refused until the hold has moved on. A hold never takes anything that retention would keep.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Sequence
from itertools import islice
from typing import Final

import attrs

from ....protocol.errors import OffsetOutOfRangeError
from ....protocol.limits import INT64_MAX
from ...config import DiskFullPolicy
from ..disk.diskops import ListDirectory, ModifiedMs, Procedure, RenameEach
from ..disk.filesystem import FileSystem
from ..disk.paths import CORRUPT_MARK, DELETED_SUFFIX, SNAPSHOT_SUFFIXES, base_offset_of
from ..errors import AppendFailedError, is_out_of_space
from ..producers.producer_snapshots import snapshot_paths
from ..segments.segment import LogSegment
from ..segments.undated import aged_timestamp
from .derived_files import Dropped
from .log import Doomed, Log

NOTHING_HELD: Final = INT64_MAX
"""In place of the first offset that is needed."""


@attrs.frozen
class Lost:
    """Offsets that went though they were held."""

    first_offset: int
    end_offset: int
    size_bytes: int
    """Of the segments that held them; where others were in the same segment, their share by offsets."""

    @property
    def records(self) -> int:
        """Offsets: with markers of transactions, and what compaction had taken."""
        return self.end_offset - self.first_offset


def count_without_hold(log: Log, segments: Sequence[LogSegment], held_from: int, now_ms: int, *, by_time: bool = True) -> int:
    """Return how many of the oldest of these segments no hold keeps from retention. The last segment is the active one."""
    count = count_read(log, segments, held_from)
    if log.config.disk_full_policy is DiskFullPolicy.DROP_OLDEST and count < len(segments):
        held_bytes = sum(segment.size for segment in segments[count:])
        while count < len(segments) and _is_past_bounds(log, segments, count, held_bytes, now_ms, by_time=by_time):
            held_bytes -= segments[count].size
            count += 1
    return count


def count_read(log: Log, segments: Sequence[LogSegment], held_from: int) -> int:
    """Return how many of the oldest segments are wholly below the first needed offset."""
    if held_from >= log.log_end_offset:
        return len(segments)
    bases = [segment.base_offset for segment in segments]
    return sum(end <= held_from for end in bases[1:])


def is_past_bounds(log: Log, held_from: int, now_ms: int, *, by_time: bool = True) -> bool:
    """Return whether the oldest segment is held, and past a bound of its hold."""
    segments = list(log.segments)
    return count_read(log, segments, held_from) == 0 and _is_past_bounds(
        log, segments, 0, log.size_in_bytes, now_ms, by_time=by_time
    )


def lost_between(log: Log, start: int, end: int) -> Lost | None:
    """Return the loss if these offsets were deleted, or None for no loss. Their segments still exist."""
    if start >= end:
        return None
    segments = list(log.segments)
    bases = [*(segment.base_offset for segment in segments), log.log_end_offset]
    size = 0
    for segment, base, stop in zip(segments, bases, bases[1:], strict=False):
        offsets = min(stop, end) - max(base, start)
        if offsets > 0:
            size += segment.size * offsets // (stop - base)
    return Lost(start, end, size)


def _is_past_bounds(
    log: Log, segments: Sequence[LogSegment], number: int, held_bytes: int, now_ms: int, *, by_time: bool
) -> bool:
    segment = segments[number]
    most_bytes, most_ms = log.config.retention_hold_max_bytes, log.config.retention_hold_max_ms
    if most_bytes >= 0 and held_bytes - segment.size >= most_bytes:
        return True
    is_known = segment.max_timestamp >= 0 and segment.is_max_timestamp_certain
    return by_time and is_known and 0 <= most_ms < now_ms - aged_timestamp(log.undated, segments, number)


DELETE: Final = "delete"
_Rank = tuple[bool, int, bool, int]
"""The smallest goes first."""


def may_expire(log: Log, now_ms: int, *, by_time: bool = True, held_from: int = NOTHING_HELD) -> bool:
    """Return whether `expire_segments` or `take_out_below` could find something: a cheap check that needs no disk."""
    first = log.segments.first
    if len(log.segments) > 1 and _end_of(log, first) <= log.log_start_offset:
        return True
    if not is_wanted(log, now_ms, by_time=by_time):
        return False
    return (
        held_from >= _end_of(log, first) or count_without_hold(log, list(log.segments), held_from, now_ms, by_time=by_time) > 0
    )


def is_wanted(log: Log, now_ms: int, *, by_time: bool = True) -> bool:
    """Return whether the oldest segment would expire by its age or the log's size, without any hold."""
    segments, config = log.segments, log.config
    first = segments.first
    if DELETE not in config.cleanup_policy or log.mirror_of or not _is_deletable(log, first):
        return False
    if config.retention_bytes >= 0 and log.size_in_bytes - first.size >= config.retention_bytes:
        return True
    if not by_time or config.retention_ms < 0 or now_ms - first.max_timestamp <= config.retention_ms:
        return False
    return not log.undated or now_ms - aged_timestamp(log.undated, list(islice(segments, 2)), 0) > config.retention_ms


def confirm_old(log: Log, now_ms: int) -> Procedure[None]:
    """Make the largest timestamps of the segments certain that `retention.ms` would take: headers of whole segments may be read
    for that, so it is done before the log's turn."""
    config = log.config
    if DELETE not in config.cleanup_policy or config.retention_ms < 0:
        return
    segments = list(log.segments)
    for number, segment in enumerate(segments):
        if not _is_deletable(log, segment) or now_ms - aged_timestamp(log.undated, segments, number) <= config.retention_ms:
            break
        yield from _confirm(log, segment)


def confirm_below(log: Log, offset: int) -> Procedure[bool]:
    """Make the largest timestamps of the segments below `offset` certain. Return whether one was another than it seemed."""
    is_other = False
    for segment in list(log.segments)[: _count_below(log, offset)]:
        is_other = (yield from _confirm(log, segment)) or is_other
    return is_other


def _confirm(log: Log, segment: LogSegment) -> Procedure[bool]:
    """No record goes because of what the time index alone says."""
    is_other = yield from segment.confirm_max_timestamp()
    if is_other:
        log.changed(segments=True)
    return is_other


def expire_segments(log: Log, now_ms: int, *, by_time: bool = True, held_from: int = NOTHING_HELD) -> Procedure[int]:
    """Raise the log start offset over the segments that retention lets go, and answer how many those are.

    The log start offset must be on the device before `take_out_below` is run. `by_time=False`: retention.ms is not
    looked at. The active segment stays where there is no space for one behind it.
    """
    expired = yield from _expired(log, now_ms, by_time=by_time, held_from=held_from)
    if len(expired) == len(log.segments):
        try:
            yield from flush_and_roll(log)
        except AppendFailedError:
            del expired[-1]
    if not expired:
        return 0
    yield from increment_log_start_offset(log, _end_of(log, expired[-1]), held_from=held_from)
    return len(expired)


def increment_log_start_offset(log: Log, offset: int, *, held_from: int = NOTHING_HELD) -> Procedure[bool]:
    """Make `offset` the first readable one; False when it is that already, or lies below. Of the log's files `derived.json`
    alone changes. What goes with it from `held_from` on is counted as dropped.

    Raises OffsetOutOfRangeError above the high watermark. The recovery point follows: what is not readable needs no recovery.
    """
    if offset > log.high_watermark:
        raise OffsetOutOfRangeError(
            f"{log.topic_partition}: the log start offset cannot be raised to {offset}, above the high watermark "
            f"{log.high_watermark}"
        )
    if offset <= log.log_start_offset:
        return False
    lost = lost_between(log, max(log.log_start_offset, held_from), offset)
    if lost is not None:
        before = log.derived.dropped
        log.derived.dropped = Dropped(
            before.records + lost.records, before.size_bytes + lost.size_bytes, lost.first_offset, lost.end_offset
        )
    log.log_start_offset = offset
    log.recovery_point = max(log.recovery_point, offset)
    log.leader_epochs.truncate_from_start(offset)
    log.producers.on_log_start(offset)
    log.changed()
    log.check_invariant()
    yield from log.write_derived()
    return True


def take_out_below(log: Log, offset: int, *, most: int) -> Procedure[int]:
    """Take the oldest segments that lie wholly below `offset` out, `most` at a time; answers how many.

    `offset` is a log start offset that is on the device; the log's may be above it by now. `leader-epoch-checkpoint` is not
    written for it: opening the log cuts it at the log start offset again.
    """
    assert offset <= log.log_start_offset
    below = _count_below(log, offset)
    count = min(most, below)
    if count:
        yield from log.take_out(list(islice(log.segments, count)))
    if 0 < below == count:
        yield from _take_out_side_files(log)  # once, at the end: it lists a directory of thousands of names
    return count


def let_go_below(log: Log, offset: int) -> Procedure[int]:
    """Take the segments that lie wholly below `offset` out of the log, to be unlinked at once and in order; answers how many.
    Nothing is written and nothing renamed: a full device has room for neither."""
    yield from ()
    assert offset <= log.log_start_offset
    gone = list(islice(log.segments, _count_below(log, offset)))
    for segment in gone:
        log.segments.remove(segment)
        files = segment.all_files
        paths = [*(file.path for file in files), *snapshot_paths(log.directory, segment.base_offset)]
        log.doomed.append(Doomed(log.now_ms(), files, paths, list(segment.indexes), is_renamed=False))
    log.changed(segments=True)
    return len(gone)


def _take_out_side_files(log: Log) -> Procedure[None]:
    """Delete the side files of corrupt data in segments that are gone: the records around it are not kept either. Delete also
    producer snapshots that a start wrote in the middle of such a segment."""
    first = log.segments.first.base_offset
    names: list[str] = yield ListDirectory(log.directory)
    left = [
        f"{log.directory}/{name}"
        for name in names
        if (CORRUPT_MARK in name or name.endswith(SNAPSHOT_SUFFIXES))
        and not name.endswith(DELETED_SUFFIX)
        and (base_offset_of(name) or 0) < first
    ]
    if left:
        renamed = yield RenameEach(left, DELETED_SUFFIX)
        log.doomed.append(Doomed(log.now_ms() + log.config.file_delete_delay_ms, [], renamed))


def unlink_doomed(fs: FileSystem, gone: Sequence[Doomed], *, durable: bool) -> None:
    """Unlink files that were taken out; those that are gone are fine. Blocks. What was renamed goes in any order, once the
    names are on the device; what was not segment by segment, the next one when the device has forgotten the one before."""
    for doomed in gone:
        for number, path in enumerate(doomed.paths):
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(path)
            if number == 0 and durable and not doomed.is_renamed:
                fs.sync_directory(path.rpartition("/")[0])


def oldest_first(logs: Sequence[Log], needed_bytes: int, held_from: Sequence[int] = ()) -> dict[int, int]:
    """Return the log start offsets to advance to so that `needed_bytes` become free, by the log's place in `logs`.

    `held_from`: the first needed offset of each log; without it nothing is held.

    Only inactive segments below the high watermark are candidates, in any log. Segments that all holders have read go first,
    then the order is by `disk.full.priority`. Within one priority, segments without a hold go before held ones. Among equals
    the segment with the smallest largest timestamp goes first; a segment without timestamps goes before it.
    """
    candidates: list[tuple[_Rank, int, int]] = []
    given_up: dict[int, int] = {}
    segments = [list(log.segments) for log in logs]
    read = [
        count_read(log, segments[owner], held_from[owner]) if held_from else len(segments[owner])
        for owner, log in enumerate(logs)
    ]

    def offer(owner: int, slot: int) -> None:
        if slot < len(segments[owner]) - 1 and _is_deletable(logs[owner], segments[owner][slot]):
            config, is_held = logs[owner].config, slot >= read[owner]
            is_handed_on = bool(config.retention_hold_groups) and not is_held
            aged = aged_timestamp(logs[owner].undated, segments[owner], slot)
            rank = (not is_handed_on, config.disk_full_priority, is_held, aged)
            heapq.heappush(candidates, (rank, owner, slot))

    for owner in range(len(segments)):
        offer(owner, 0)
    while candidates and needed_bytes > 0:
        _, owner, slot = heapq.heappop(candidates)
        segment = segments[owner][slot]
        given_up[owner] = _end_of(logs[owner], segment)
        needed_bytes -= segment.size
        offer(owner, slot + 1)
    return given_up


def _expired(log: Log, now_ms: int, *, by_time: bool, held_from: int) -> Procedure[list[LogSegment]]:
    segments = list(log.segments)
    below = count = _count_below(log, log.log_start_offset)
    if DELETE not in log.config.cleanup_policy or log.mirror_of:  # a mirror follows the log start of its source
        return segments[:count]
    count = _count_above_size(log, segments, count)
    if by_time and log.config.retention_ms >= 0:
        while count < len(segments) and _is_deletable(log, segments[count]):
            largest = aged_timestamp(log.undated, segments, count)
            if largest < 0:
                largest = yield ModifiedMs(segments[count].log.path)
            if now_ms - largest <= log.config.retention_ms:
                break
            if not (yield from _confirm(log, segments[count])):
                count += 1
    if count > below and held_from < _end_of(log, segments[count - 1]):
        for segment in segments[below:count] if log.config.retention_hold_max_ms >= 0 else ():
            yield from _confirm(log, segment)
        count = max(below, min(count, count_without_hold(log, segments, held_from, now_ms, by_time=by_time)))
    return segments[:count]


def _count_below(log: Log, offset: int) -> int:
    """Return how many segments end at or below `offset`, without the active one."""
    return max(0, len(log.segments) - 1 - len(log.segments.higher_segments(offset)))


def _count_above_size(log: Log, segments: list[LogSegment], count: int) -> int:
    limit = log.config.retention_bytes
    if limit < 0:
        return count
    excess = sum(segment.size for segment in segments[count:]) - limit
    while count < len(segments) and excess >= segments[count].size and _is_deletable(log, segments[count]):
        excess -= segments[count].size
        count += 1
    return count


def _end_of(log: Log, segment: LogSegment) -> int:
    """The offset behind the segment: the next one's base offset, or the log end offset."""
    following = log.segments.higher(segment.base_offset)
    return log.log_end_offset if following is None else following.base_offset


def _is_deletable(log: Log, segment: LogSegment) -> bool:
    """All of it is below the high watermark, and it is not the empty segment at the end, nor one that cannot be rolled."""
    is_last = segment is log.active
    return log.high_watermark >= _end_of(log, segment) and not (is_last and (log.waiting is not None or segment.size == 0))


def flush_and_roll(log: Log) -> Procedure[None]:
    """Acknowledged data of the active segment reaches the device before it is given up: were the power cut before the log
    start checkpoint is written, it would have to be there. Raises AppendFailedError where the device has no room for that: all
    is as it was."""
    try:
        if log.sync_metadata:
            plan = log.plan_flush()
            yield from (operation for operation in plan.operations)  # a tuple cannot be sent the answers
            log.commit_flush(plan)
        yield from log.roll()
    except OSError as exc:
        if not is_out_of_space(exc):
            raise
        raise AppendFailedError(f"{log.topic_partition}: its last segment cannot be closed yet: {exc}. Free space") from exc
