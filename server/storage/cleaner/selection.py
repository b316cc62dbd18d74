"""Decides whether a log needs cleaning, and selects the range to clean (Kafka: LogCleanerManager, LogToClean).

```
| clean head        | dirty, cleanable                  | not cleanable                                        |
first segment       first dirty offset                  end offset
```
Not cleanable is the active segment; everything from the last stable offset on, because what is undecided or not replicated may
still go; everything younger than min.compaction.lag.ms; and, other than in Kafka, everything above the recovery point, and from
a transaction on whose marker lies above it: an old value on the device must not be dropped for a new one that a power cut could
take back. Whole segments are cleaned, so the end is rounded down to a segment's base offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import attrs

from ....protocol.limits import INT64_MAX
from ....protocol.types import NO_OFFSET, CompressionType
from ..disk.diskops import Procedure
from ..log.log import Log
from ..segments.segment import LogSegment
from ..segments.undated import aged_timestamp
from .batch_filter import LastRecord
from .job import CleaningJob, SourceSegment


class CleanableOffsets(NamedTuple):
    """The dirty offsets [first_dirty_offset, first_uncleanable_offset) of a log, before rounding to segments.

    `is_reset`: the checkpoint did not lie in the log.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    is_reset: bool


@attrs.frozen(kw_only=True)
class LogToClean:
    """The part of a log that can be cleaned. Offsets as in a job."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    needs_compaction_now: bool = False
    """Some dirty record is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        if self.needs_compaction_now and self.cleanable_bytes > 0:
            return True
        return self.dirty_ratio > min_cleanable_dirty_ratio


def cleanable_offsets(log: Log, checkpoint: int | None, now_ms: int) -> CleanableOffsets:
    """From the checkpoint (None: never cleaned) to the first offset that must stay as it is."""
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    is_reset = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    bounds = [log.last_stable_offset, log.active.base_offset]
    if log.sync_metadata:
        bounds.append(log.recovery_point)
        if log.producers.first_unsynced_offset is not None:
            bounds.append(log.producers.first_unsynced_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        segments = [*inactive_from(log, first_dirty), log.active]
        young = (each for number, each in enumerate(segments[:-1]) if _is_young(log, segments, number, now_ms))
        bounds += [segment.base_offset for segment in young][:1]
    return CleanableOffsets(first_dirty, max(first_dirty, min(bounds)), is_reset)


def _is_young(log: Log, segments: Sequence[LogSegment], number: int, now_ms: int) -> bool:
    return aged_timestamp(log.undated, segments, number) > now_ms - log.config.min_compaction_lag_ms


def inactive_from(log: Log, offset: int) -> list[LogSegment]:
    """The inactive segments that hold `offset` or lie behind it."""
    active = log.active.base_offset
    return [] if offset > active else log.segments.values(offset, active)


def log_to_clean(log: Log, offsets: CleanableOffsets, *, needs_compaction_now: bool = False) -> LogToClean:
    """Sizes of the parts, the end rounded down to a segment."""
    uncleanable = inactive_from(log, offsets.first_uncleanable_offset)
    end_offset = uncleanable[0].base_offset if uncleanable else log.active.base_offset
    first_dirty = offsets.first_dirty_offset
    dirty = log.segments.values(min(first_dirty, end_offset), end_offset)
    clean = [segment for segment in log.segments if segment.base_offset < first_dirty and segment is not log.active]
    return LogToClean(
        first_dirty_offset=first_dirty,
        end_offset=end_offset,
        clean_bytes=sum(segment.size for segment in clean),
        cleanable_bytes=sum(segment.size for segment in dirty),
        needs_compaction_now=needs_compaction_now,
    )


def is_past_compaction_lag(log: Log, first_dirty_offset: int, now_ms: int) -> Procedure[bool]:
    """Return whether the first batch of a dirty inactive segment is older than max.compaction.lag.ms."""
    if log.config.max_compaction_lag_ms == INT64_MAX:
        return False
    for view in [segment.view() for segment in inactive_from(log, first_dirty_offset)]:
        first = yield from view.bytes_from(0).find_batch(lambda header: True)
        if first is not None and 0 < first.header.max_timestamp < now_ms - log.config.max_compaction_lag_ms:
            return True
    return False


def choose(log: Log, checkpoint: int | None, now_ms: int) -> Procedure[LogToClean]:
    """Select the part of the log that can be cleaned now; `is_due` says whether it should be. Reads at most one header per
    dirty segment, and all headers of a segment whose largest timestamp only the time index knows."""
    first_dirty = cleanable_offsets(log, checkpoint, now_ms).first_dirty_offset
    if log.config.min_compaction_lag_ms > 0:
        segments = [*inactive_from(log, first_dirty), log.active]
        for number, segment in enumerate(segments[:-1]):
            if _is_young(log, segments, number, now_ms):
                break
            if (yield from segment.confirm_max_timestamp()):
                log.changed(segments=True)
    is_past_lag = yield from is_past_compaction_lag(log, first_dirty, now_ms)
    return log_to_clean(log, cleanable_offsets(log, checkpoint, now_ms), needs_compaction_now=is_past_lag)


def plan_round(log: Log, chosen: LogToClean, now_ms: int, *, map_bytes: int, max_bytes_per_second: int = 0) -> CleaningJob:
    """The round for what was chosen, as a job. `now_ms`: NO_TIMESTAMP where the clock is not trusted."""
    config = log.config
    levels = ((codec, config.compression_level(codec)) for codec in CompressionType)
    return CleaningJob(
        topic_partition=log.topic_partition,
        directory=log.directory,
        segments=tuple(source_segment(segment) for segment in log.segments),
        first_dirty_offset=chosen.first_dirty_offset,
        end_offset=chosen.end_offset,
        last_records=tuple(last_records(log)),
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        compression_levels=tuple((codec, level) for codec, level in levels if level is not None),
        max_decompressed_bytes=log.snapshot().max_decompressed_bytes,
        map_bytes=map_bytes,
        max_bytes_per_second=max_bytes_per_second,
        durable=log.sync_metadata,
    )


def last_records(log: Log) -> Iterator[tuple[int, LastRecord]]:
    """Yield the last batch of each producer, and its last batch below the recovery point."""
    recovery_point = log.recovery_point if log.sync_metadata else INT64_MAX
    unsynced = log.producers.unsynced_producers
    for producer_id, entry in log.producers.entries.items():
        if not entry.batches:
            yield producer_id, LastRecord(entry.epoch, None, None if producer_id in unsynced else NO_OFFSET)
        elif entry.last_data_offset < recovery_point:
            yield producer_id, LastRecord(entry.epoch, entry.last_data_offset)
        else:
            synced = [batch.last_offset for batch in entry.batches if batch.last_offset < recovery_point]
            yield producer_id, LastRecord(entry.epoch, entry.last_data_offset, synced[-1] if synced else None)


def source_segment(segment: LogSegment) -> SourceSegment:
    return SourceSegment(
        segment.base_offset,
        segment.size,
        segment.offset_index.size_in_bytes,
        segment.time_index.size_in_bytes,
        segment.transaction_index.entries,
    )
