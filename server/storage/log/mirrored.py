"""Appends of a mirror: batches of another server's log, kept byte for byte with their offsets and leader epochs (Kafka:
UnifiedLog.appendAsFollower).

*Invariants*
- A log with `mirror_of` accepts such appends only, and another log none of them (`check_may_append`). Both are decided in the
  log's turn, so a promotion has no append before and after it from the wrong side.
- Offsets ascend. A hole between two batches is that of the source: compaction has emptied it.
- The log's newest epoch is that of the appended batch: `begin_leader_epoch` comes first.
"""

from __future__ import annotations

from ....protocol.errors import CorruptRecordError, ErrorCode, RequestError
from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import BatchHeader, iter_batches
from ....protocol.types import Bytes, TopicPartition
from ...config import LogConfig
from ..disk.diskops import Procedure
from ..producers.producer_cursor import AppendOrigin, ProducerCursor, parse_end_txn_marker
from ..segments.segment import LogSegment, SegmentCursor
from ..segments.segment_view import checked
from .log import Log
from .prepare import BATCHES_PER_PAUSE, PreparedAppend


def mirror_error(topic: object, source: str) -> RequestError:
    """Return the error for a change of a mirror by a client."""
    return RequestError(
        f"{topic} is a mirror of {source} and read-only. Write to {source}, or run `triolog promote` here to end the mirroring",
        ErrorCode.POLICY_VIOLATION,
    )


def prepare_mirrored(
    records: Bytes, topic_partition: TopicPartition, config: LogConfig, *, end_offset: int
) -> Procedure[list[PreparedAppend]]:
    """Check the batches that a source returned for `end_offset`, where the log ends, and divide them into appends of one leader
    epoch that fit a segment. An incomplete batch at the end is left out, and so are batches that the log has already.

    Raises CorruptRecordError for a wrong CRC, and for offsets that do not ascend.
    """
    appends: list[PreparedAppend] = []
    group: list[tuple[BatchHeader, Bytes]] = []
    size, group_start, next_offset, count = 0, end_offset, end_offset, 0
    for header, batch in iter_batches(records):
        count += 1
        if not count % BATCHES_PER_PAUSE:
            yield None
        if header.next_offset <= end_offset:
            continue  # the source returns the whole batch that holds an offset
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            raise CorruptRecordError(
                f"{topic_partition}: the source returned offsets {header.base_offset} to {header.last_offset} for a log that "
                f"ends at {next_offset}"
            )
        yield from checked(batch, header)
        is_other = group and header.partition_leader_epoch != group[0][0].partition_leader_epoch
        if group and (is_other or size + len(batch) > config.segment_bytes):
            appends.append(_mirrored(group, size, group_start))
            group, size, group_start = [], 0, next_offset
        group.append((header, batch))
        size += len(batch)
        next_offset = header.next_offset
    if group:
        appends.append(_mirrored(group, size, group_start))
    return appends


def _mirrored(group: list[tuple[BatchHeader, Bytes]], size: int, log_end_offset: int) -> PreparedAppend:
    """`records_count` is that of offsets here, those of holes included."""
    return PreparedAppend(
        tuple(group),
        size,
        group[-1][0].next_offset - group[0][0].base_offset,
        max(header.max_timestamp for header, _ in group),
        AppendOrigin.REPLICATION,
        expected_offset=log_end_offset,
    )


def check_may_append(log: Log, append: PreparedAppend) -> RequestError | None:
    """Return why the append has to be refused, None where it is of the kind that the log accepts."""
    if append.origin is not AppendOrigin.REPLICATION:
        return mirror_error(log.topic_partition, log.mirror_of) if log.mirror_of else None
    if not log.mirror_of:
        return RequestError(f"{log.topic_partition} is not a mirror any more", ErrorCode.FENCED_LEADER_EPOCH)
    header = append.batches[0][0]
    if header.partition_leader_epoch != log.leader_epoch:
        return RequestError(
            f"{log.topic_partition}: the batch is of leader epoch {header.partition_leader_epoch}, the log is in "
            f"{log.leader_epoch}",
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        )
    if append.batches[-1][0].last_offset - log.log_end_offset > INT32_MAX:
        return RequestError(
            f"{log.topic_partition}: no records between offsets {log.log_end_offset} and {header.base_offset}, more than a "
            "segment can span",
            ErrorCode.POLICY_VIOLATION,
        )
    return None


def plan_mirrored(
    segment: LogSegment, cursor: SegmentCursor, producers: ProducerCursor, batches: tuple[tuple[BatchHeader, Bytes], ...]
) -> None:
    """Put batches on the cursor as they are. Producers are taken over, nothing of them is refused."""
    for header, data in batches:
        segment.plan_append(
            cursor,
            largest_offset=header.last_offset,
            largest_timestamp=header.max_timestamp,
            offset_of_max_timestamp=header.last_offset,
            buffers=(data,),
            size=header.size_bytes,
        )
        if header.producer_id < 0:
            continue
        if not header.is_control:
            producers.add(header, header.base_offset)
        elif (marker := parse_end_txn_marker(header, data)) is not None and (
            aborted := producers.end(marker, header.last_offset)
        ) is not None:
            segment.plan_aborted(cursor, aborted)


def begin_leader_epoch(log: Log, epoch: int, start_offset: int) -> Procedure[None]:
    """Begin the epoch of the batch at `start_offset`, the next to be appended, unless the log is in it. Epochs that no batch
    has are forgotten: a truncation and a start keep the latest. Raises FENCED_LEADER_EPOCH where a batch has a later one."""
    epochs = log.leader_epochs
    if epochs.latest_epoch == epoch:
        return
    newest = epochs.epoch_for_offset(log.log_end_offset - 1)
    if newest is not None and newest > epoch and log.log_end_offset > log.log_start_offset:
        raise RequestError(
            f"{log.topic_partition}: the source is in leader epoch {epoch}, the records here end in epoch {newest}",
            ErrorCode.FENCED_LEADER_EPOCH,
        )
    epochs.truncate_from_end(log.log_end_offset)
    if epochs.latest_epoch is not None and epochs.latest_epoch > epoch:
        epochs.clear()
    epochs.assign(epoch, start_offset)
    yield from log.write_leader_epochs()
    log.changed()


def become_mirror(log: Log, source: str) -> Procedure[None]:
    """Let the log be a mirror of `source` from this turn on; with an empty name let it be one no more."""
    log.mirror_of = source
    yield from ()
