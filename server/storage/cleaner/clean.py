"""Runs a round of cleaning: builds the map of the dirty part, then copies the kept records of every segment (Kafka:
Cleaner.doClean).

The round blocks and needs nothing but a file system and a job, so it runs in a child process beside a server, or on the spot in
tools. It changes no file of the log: it yields a `CleanedGroup` for each group of segments, and goes on when the caller has put
the `.cleaned` files in their place (`swap.replace_segments`), or not.

Also groups neighbouring segments that become one when they are cleaned (Kafka: Cleaner.groupSegmentsBySize).

Reading the segments of a job in pieces of a bounded size, and writing a `.cleaned` segment: log, both indexes, transaction
index.

Everything is forced to the device before it is used. Index entries are due as in a live segment, because that is what it
becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import attrs

from ....protocol.errors import CorruptRecordError, TriologError
from ....protocol.limits import INT32_MAX, KIB, MIB
from ....protocol.records.batch import LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD, BatchHeader, check_batch, parse_header
from ....protocol.records.unpacking import records_data
from ....protocol.types import Bytes
from ..child_process import Throttle
from ..disk.diskops import CreateFile, FileHandle, Open, SyncDirectory, drive, execute
from ..disk.filesystem import FileSystem, opened
from ..disk.paths import CLEANED_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from ..indexes.file_records import not_a_batch
from ..indexes.transaction_index import AbortedTxn, TransactionIndex, collect_aborted
from ..segments.segment import LogSegment
from .batch_filter import ENTRY_BYTES, BatchFilter, CleanedTransactions, OffsetMap, RetentionRules, record_spans
from .job import CleanedGroup, CleanedState, CleaningJob, CleaningResult, SourceSegment

Round = Generator[CleanedGroup, None, CleaningResult]
Spend = Callable[[int], None]
"""Told of every read and write: where a round is slowed down, or ended."""


LEAST_MAP_BYTES: Final = 64 * KIB


class CleaningError(TriologError):
    """A round that cannot be done with this memory or these files."""


def unwatched(size: int) -> None:
    """A `keep_on` of a round that nobody gives up."""


def clean(fs: FileSystem, job: CleaningJob, *, keep_on: Spend = unwatched) -> Round:
    """Clean the log that the job names. `keep_on` is called with every number of bytes read or written; it may raise.

    Raises CorruptRecordError or InvalidRecordError for damage, FileNotFoundError when a segment was deleted meanwhile,
    CleaningError when the map does not hold one batch, OSError.
    """
    return (yield from _Round(fs, job, keep_on, Throttle(job.max_bytes_per_second)).run())


@attrs.define(eq=False, repr=False)
class _Round:
    """Counters and the map of one round."""

    fs: FileSystem
    job: CleaningJob
    keep_on: Spend
    throttle: Throttle
    bytes_read: int = 0
    bytes_written: int = 0
    offsets: OffsetMap = attrs.field(init=False)
    transactions: CleanedTransactions = attrs.field(factory=CleanedTransactions)
    filter: BatchFilter = attrs.field(init=False)

    def run(self) -> Round:
        job = self.job
        newest_dirty: dict[int, int] = {}
        self.offsets = build_offset_map(self.fs, job, self._read, newest_dirty)
        rules = RetentionRules(
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            end_offset=job.end_offset,
            last_records=dict(job.last_records),
            newest_dirty=newest_dirty,
            compression_levels=dict(job.compression_levels),
            max_decompressed_bytes=job.max_decompressed_bytes,
        )
        self.filter = BatchFilter(rules, self.offsets, self.transactions)
        next_dirty_offset = self.offsets.latest_offset + 1
        in_range = [segment for segment in job.segments if segment.base_offset < min(next_dirty_offset, job.end_offset)]
        limits = {"max_bytes": job.segment_bytes, "max_index_bytes": job.segment_index_bytes}
        for group in group_segments(in_range, job.end_offset, **limits):
            yield self._clean_group(group)
        return CleaningResult(
            next_dirty_offset, self.bytes_read, self.bytes_written, self.offsets.entries, self.filter.keyless_records
        )

    def _clean_group(self, group: list[SourceSegment]) -> CleanedGroup:
        """Nothing is written as long as a group of one segment stays as it is: most of an old log does, round after round."""
        read_before = self.bytes_read
        changed = len(group) > 1
        with CleanedSegment(self.fs, self.job, group[0].base_offset, self._written) as cleaned:
            for segment in group:
                start = segment.base_offset
                self.transactions.add_aborted(read_aborted(self.fs, self.job, start, self.job.ends[start]))
                position = 0
                for header, batch in read_batches(self.fs, self.job, segment, self._read):
                    filtered = self.filter.filter(header, batch)
                    if filtered.data is not batch and not changed:
                        changed = True
                        self._copy(segment._replace(size=position), cleaned)
                    if changed and filtered.data:
                        cleaned.append(header, filtered.data, filtered.max_timestamp)
                    position += header.size_bytes
            aborted = self.transactions.take_cleaned_index()
            if not changed and len(aborted) != group[0].aborted_transactions:
                changed = True
                self._copy(group[0], cleaned)
            if changed:
                last = f"{self.job.directory}/{segment_file(group[-1].base_offset, LOG_SUFFIX)}"
                cleaned.finish(aborted, self.fs.modified_ms(last))
            else:
                cleaned.discard()
        base_offsets = [segment.base_offset for segment in group]
        state = CleanedState.of(cleaned.segment) if changed else None
        return CleanedGroup(base_offsets, state, self.bytes_read - read_before)

    def _copy(self, segment: SourceSegment, cleaned: CleanedSegment) -> None:
        """Batches of the only segment that were found to stay as they are."""
        for header, batch in read_batches(self.fs, self.job, segment, self._read):
            cleaned.append(header, batch, header.max_timestamp)

    def _read(self, size: int) -> None:
        self.bytes_read += size
        self._spend(size)

    def _written(self, size: int) -> None:
        self.bytes_written += size
        self._spend(size)

    def _spend(self, size: int) -> None:
        self.keep_on(size)
        self.throttle.spend(size, lambda: self.keep_on(0))


def build_offset_map(fs: FileSystem, job: CleaningJob, spend: Spend, newest: dict[int, int] | None = None) -> OffsetMap:
    """The last offset of every key in the dirty part, or in as much of it as the map holds.

    `latest_offset` of the map says how far it goes: to the last batch that went in whole, or to the end of the last segment.
    `newest` gets the last offset of the newest batch there of each of the job's `producers_to_find`.
    """
    # No part of a log has more keys than offsets: a short dirty part gets a small map.
    enough = int((job.end_offset - job.first_dirty_offset) / job.map_load_factor + 8) * ENTRY_BYTES
    offsets = OffsetMap(min(job.map_bytes, max(enough, LEAST_MAP_BYTES)), job.map_load_factor)
    offsets.latest_offset = job.first_dirty_offset - 1
    transactions = CleanedTransactions()
    for segment in job.segments:
        end_offset = job.ends[segment.base_offset]
        if segment.base_offset >= job.end_offset or end_offset <= job.first_dirty_offset:
            continue
        transactions.add_aborted(read_aborted(fs, job, segment.base_offset, end_offset))
        if not _map_segment(fs, job, segment, offsets, transactions, {} if newest is None else newest, spend):
            break
        offsets.latest_offset = end_offset - 1
    return offsets


def _map_segment(
    fs: FileSystem,
    job: CleaningJob,
    segment: SourceSegment,
    offsets: OffsetMap,
    transactions: CleanedTransactions,
    newest: dict[int, int],
    spend: Spend,
) -> bool:
    """Put the segment's keys into the map; False when it is full. Batches below the dirty part only move transactions on."""
    start = job.first_dirty_offset
    for header, batch in read_batches(fs, job, segment, spend):
        check_batch(batch, header)
        if header.producer_id in job.producers_to_find and not header.is_control:
            newest[header.producer_id] = header.last_offset
        if header.is_control:
            transactions.on_control_batch(header, batch)
        elif not transactions.on_data_batch(header) and header.last_offset >= start:
            base_offset = header.base_offset
            keyed = {
                span.key: base_offset + span.offset_delta
                for span in record_spans(records_data(batch, header, job.max_decompressed_bytes), header)
                if span.key is not None and base_offset + span.offset_delta >= start
            }
            if not offsets.has_room(len(keyed)):
                if not offsets.entries:
                    raise CleaningError(
                        f"{job.topic_partition}: the offset map of {job.map_bytes} bytes holds {offsets.max_entries} keys, "
                        f"fewer than the batch at offset {base_offset} has. Raise cleaner_dedupe_buffer_bytes"
                    )
                return False
            offsets.put_all(keyed.items())
        offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
    return True


def group_segments(
    segments: Sequence[SourceSegment], end_offset: int, *, max_bytes: int, max_index_bytes: int
) -> list[list[SourceSegment]]:
    """Consecutive groups whose logs together have at most `max_bytes`, and whose indexes at most `max_index_bytes` each.

    No offset of a group lies more than 32 bits above its first base offset; where a segment ends is told by the next one's
    base offset, or `end_offset` for the last. Empty segments go with any group.
    """
    groups: list[list[SourceSegment]] = []
    totals = (0, 0, 0)
    for slot, segment in enumerate(segments):
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else end_offset
        grown = (totals[0] + segment.size, totals[1] + segment.index_bytes, totals[2] + segment.time_index_bytes)
        fits = grown[0] <= max_bytes and grown[1] <= max_index_bytes and grown[2] <= max_index_bytes
        if groups and fits and (not segment.size or following - 1 - groups[-1][0].base_offset <= INT32_MAX):
            groups[-1].append(segment)
            totals = grown
        else:
            groups.append([segment])
            totals = (segment.size, segment.index_bytes, segment.time_index_bytes)
    return groups


WRITE_BYTES: Final = MIB
"""Collected before they are written."""
SYNC_BYTES: Final = 8 * MIB
"""Forced to the device whenever so many are not: whoever syncs an append meanwhile can have to wait for what is on its way
(ext4, data=ordered), so that is to be a piece and not a segment. Two runs of 400 MiB beside a loop of small appends on a busy
machine: p99 of its fdatasync 164 and 73 ms with one sync at the end, 68 and 22 ms with pieces (2026-11-21)."""


class CleanedSegment:
    """A segment under construction. Owner: the round. Leaving the block closes its files, complete or not."""

    def __init__(self, fs: FileSystem, job: CleaningJob, base_offset: int, spend: Spend) -> None:
        self._fs = fs
        self._job = job
        self._spend = spend
        self.segment = LogSegment.at(job.directory, base_offset, job.config(), created_ms=job.now_ms)
        self._all_files = self.segment.all_files
        for file in self._all_files:
            file.path += CLEANED_SUFFIX
        self._cursor = self.segment.cursor()
        self._pending = 0
        self._unsynced = 0

    def __enter__(self) -> Self:
        remove_cleaned(self._fs, [file.path for file in self._all_files])
        self.segment.log.fd = CreateFile(self.segment.log.path).run(self._fs)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for file in self._all_files:
            if file.fd is not None:
                fd, file.fd = file.fd, None
                self._fs.close(fd)

    def append(self, header: BatchHeader, data: Bytes, max_timestamp: int) -> None:
        """A batch at the offsets of `header`, with its bytes as they are now. Raises SegmentOffsetOverflowError."""
        self.segment.plan_append(
            self._cursor,
            largest_offset=header.last_offset,
            largest_timestamp=max_timestamp,
            offset_of_max_timestamp=header.last_offset,
            buffers=[data],
            size=len(data),
        )
        self._pending += len(data)
        if self._pending >= WRITE_BYTES:
            self._write()

    def finish(self, aborted: Sequence[AbortedTxn], modified_ms: int) -> None:
        """Write what is left and the transactions whose markers stay, trim, and force all of it to the device.

        The log is as old as the newest one that it replaces: where records have no timestamps, retention goes by that.
        """
        for txn in aborted:
            self.segment.plan_aborted(self._cursor, txn)
        self._write()
        drive(self._fs, self.segment.become_inactive())
        self._fs.set_modified_ms(self.segment.log.path, modified_ms)
        if self._job.durable:
            drive(self._fs, self.segment.sync())
            SyncDirectory(self._job.directory).run(self._fs)

    def discard(self) -> None:
        """Delete what was written."""
        self.__exit__(None, None, None)
        remove_cleaned(self._fs, [file.path for file in self._all_files])

    def _write(self) -> None:
        writes, files = self.segment.writes_for(self._cursor)
        for file in files:
            if file.fd is None:
                file.fd = Open(file).run(self._fs)
        execute(self._fs, writes)
        self.segment.commit(self._cursor)
        self._cursor = self.segment.cursor()
        self._spend(self._pending)
        self._unsynced += self._pending
        self._pending = 0
        if self._job.durable and self._unsynced >= SYNC_BYTES:
            assert self.segment.log.fd is not None
            self._fs.sync(self.segment.log.fd)
            self._unsynced = 0


def remove_cleaned(fs: FileSystem, paths: Sequence[str]) -> None:
    """Delete leftovers of a round that did not end."""
    for path in paths:
        if fs.file_size(path) is not None:
            fs.unlink(path)


READ_BYTES: Final = MIB
"""Read at once. A larger batch is read whole: the limit on a batch's size may have been another when it was appended."""


def read_batches(
    fs: FileSystem, job: CleaningJob, segment: SourceSegment, spend: Spend
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a segment. A view is good as long as it is kept. Raises CorruptRecordError where no batch
    is, OSError."""
    path = f"{job.directory}/{segment_file(segment.base_offset, LOG_SUFFIX)}"
    with opened(fs, path) as fd:
        position, wanted = 0, READ_BYTES
        while (remaining := segment.size - position) > 0:
            view = memoryview(fs.read(fd, min(wanted, remaining), position))
            spend(len(view))
            at, needed = 0, RECORD_BATCH_OVERHEAD
            while len(view) - at >= RECORD_BATCH_OVERHEAD:
                header = parse_header(view, at)
                size = header.batch_length + LOG_OVERHEAD
                if size < RECORD_BATCH_OVERHEAD or header.magic != MAGIC:
                    raise not_a_batch(path, position + at, header)
                if at + size > len(view):
                    needed = size
                    break
                yield header, view[at : at + size]
                at += size
            position += at
            if len(view) < min(wanted, remaining) or 0 < remaining - at < needed:
                raise CorruptRecordError(
                    f"{path} ends inside the batch at position {position} of {segment.size}. See `triolog verify`"
                )
            wanted = max(READ_BYTES, needed)


def read_aborted(fs: FileSystem, job: CleaningJob, start: int, stop: int) -> list[AbortedTxn]:
    """Aborted transactions with records in the offsets [start, stop) of a segment; their markers may lie in any later one."""
    found: list[AbortedTxn] = []
    for segment in job.segments_with_aborts:
        if segment.base_offset < start:
            continue
        path = f"{job.directory}/{segment_file(segment.base_offset, TRANSACTION_INDEX_SUFFIX)}"
        index = TransactionIndex(path, segment.base_offset)
        index.file = FileHandle(path=path)
        if collect_aborted(drive(fs, index.read_entries(segment.aborted_transactions)), start, stop, found):
            break
    return found
