"""A segment: a `.log` of record batches with its offset, time and transaction index (Kafka: LogSegment).

`LogSegment` is the state, changed by the log's owner only. What a reader holds of it is a `SegmentView` (see `segment_view`).
Appending happens on a `SegmentCursor`, a scratch copy of what an append changes, so
that a plan can be made for many appends at once and thrown away if the disk refuses it.

The map of a log's segments by base offset, with floor lookup (Kafka: LogSegments). Owner: the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import attrs

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import INT32_MAX, MAX_SEGMENT_BYTES
from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_TIMESTAMP, Bytes
from ...config import LogConfig
from ..disk.diskops import DiskOp, FileHandle, Procedure, Sync, Truncate, Write, WriteBatchesAgain, WriteIndexAgain
from ..disk.paths import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from ..disk.write_again import SHARED_BYTES
from ..errors import InvalidOffsetError, SegmentOffsetOverflowError
from ..indexes.file_records import FileSlice
from ..indexes.index import AbstractIndex, IndexTail, OffsetIndex, TimeIndex
from ..indexes.transaction_index import AbortedTxn, TransactionIndex, encode_entry
from .segment_view import NOT_KNOWN, NOTHING, LeastTimestamps, SegmentView


@attrs.define(eq=False, repr=False)
class SegmentCursor:
    """A scratch copy of the fields of a segment that an append changes, with the bytes due on disk."""

    size: int
    bytes_since_last_index_entry: int
    max_timestamp: int
    offset_of_max_timestamp: int
    rolling_based_timestamp: int | None
    offset_tail: IndexTail
    time_tail: IndexTail
    most_offset_entries: int
    most_time_entries: int
    """But for the closing one."""
    roll_after_ms: int
    least_timestamp: int
    """Of what was appended since the last index entry."""
    least_timestamps: tuple[tuple[int, int], ...] = ()
    """(end offset, least timestamp) up to each index entry."""
    buffers: list[Bytes] = attrs.field(factory=list)
    offset_entries: bytes = b""
    time_entries: bytes = b""
    aborted: tuple[AbortedTxn, ...] = ()


@attrs.define(eq=False, repr=False)
class LogSegment:
    """Files and counters of one segment. Owner: the log's actor."""

    base_offset: int
    config: LogConfig
    log: FileHandle
    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex
    created_ms: int
    size: int = 0
    roll_jitter_ms: int = 0
    bytes_since_last_index_entry: int = 0
    rolling_based_timestamp: int | None = None
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    is_max_timestamp_certain: bool = True
    """Whether it comes from the batches, or two files agree on it. False: only the time index says so."""
    least_timestamps: LeastTimestamps = attrs.field(factory=LeastTimestamps)

    @classmethod
    def at(cls, directory: str, base_offset: int, config: LogConfig, *, created_ms: int, jitter_ms: int = 0) -> LogSegment:
        """The segment with that base offset in a directory; its files need not exist yet."""

        def path(suffix: str) -> str:
            return f"{directory}/{segment_file(base_offset, suffix)}"

        return cls(
            base_offset=base_offset,
            config=config,
            log=FileHandle(path=path(LOG_SUFFIX), writable=True),
            offset_index=OffsetIndex(path(INDEX_SUFFIX), base_offset, config.segment_index_bytes),
            time_index=TimeIndex(path(TIME_INDEX_SUFFIX), base_offset, config.segment_index_bytes),
            transaction_index=TransactionIndex(path(TRANSACTION_INDEX_SUFFIX), base_offset),
            created_ms=created_ms,
            roll_jitter_ms=jitter_ms,
            offset_of_max_timestamp=base_offset,
        )

    @property
    def indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Those that are looked up in a map."""
        return self.offset_index, self.time_index

    @property
    def files(self) -> list[FileHandle]:
        """The log, and the files of the indexes that are there once the segment is inactive."""
        files = [self.log, *(index.file for index in self.indexes if not index.is_distrusted)]
        if self.transaction_index.entries:
            files.append(self.transaction_index.file)
        return files

    @property
    def all_files(self) -> list[FileHandle]:
        """The log and every index, whether its file is there or not."""
        return [self.log, self.offset_index.file, self.time_index.file, self.transaction_index.file]

    def view(self) -> SegmentView:
        return SegmentView(
            self.base_offset,
            self.log,
            self.size,
            self.max_timestamp,
            self.offset_index,
            self.offset_index.tail.entries,
            self.time_index,
            self.time_index.tail.entries,
            self.transaction_index,
            self.transaction_index.entries,
            self.least_timestamps,
        )

    @property
    def records(self) -> FileSlice:
        return FileSlice(self.log, 0, self.size)

    def cursor(self) -> SegmentCursor:
        offset_index, time_index, config = self.offset_index, self.time_index, self.config
        # What `max_entries` and `max_segment_ms` answer, without their calls.
        most_offset_entries = (offset_index.file.create_bytes or 0) // offset_index.entry_size
        most_time_entries = (time_index.file.create_bytes or 0) // time_index.entry_size - 1
        segment_ms = config.max_segment_ms if "compact" in config.cleanup_policy else config.segment_ms
        return SegmentCursor(
            self.size,
            self.bytes_since_last_index_entry,
            self.max_timestamp,
            self.offset_of_max_timestamp,
            self.rolling_based_timestamp,
            offset_index.tail,
            time_index.tail,
            most_offset_entries,
            most_time_entries,
            segment_ms - self.roll_jitter_ms,
            self.least_timestamps.since,
        )

    def plan_append(
        self,
        cursor: SegmentCursor,
        *,
        largest_offset: int,
        largest_timestamp: int,
        offset_of_max_timestamp: int,
        buffers: Sequence[Bytes],
        size: int,
        least_timestamp: int = NOT_KNOWN,
    ) -> None:
        """Put one batch on the cursor: at most one entry per index, for what earlier ones have accumulated.

        The offset entry pairs the *last* offset of the batch with the position where it *starts*; the time entry already
        counts its largest timestamp. An index that an append of many batches has filled gets no more: it is sparse anyway,
        and the next append rolls. Raises SegmentOffsetOverflowError before anything is changed.
        """
        if not 0 <= largest_offset - self.base_offset <= INT32_MAX:
            raise SegmentOffsetOverflowError(
                f"{self.log.path}: offset {largest_offset} is not 0 to {INT32_MAX} above the base offset"
            )
        if cursor.size + size > MAX_SEGMENT_BYTES:
            raise ValueError(f"{self.log.path}: {cursor.size} + {size} bytes are above {MAX_SEGMENT_BYTES}")
        if cursor.size == 0:
            cursor.rolling_based_timestamp = largest_timestamp
        if largest_timestamp > cursor.max_timestamp:
            cursor.max_timestamp, cursor.offset_of_max_timestamp = largest_timestamp, offset_of_max_timestamp
        if least_timestamp < cursor.least_timestamp:
            cursor.least_timestamp = least_timestamp
        if (
            cursor.bytes_since_last_index_entry > self.config.index_interval_bytes
            and cursor.offset_tail.entries < cursor.most_offset_entries
            and cursor.time_tail.entries < cursor.most_time_entries
        ):
            self._plan_entries(cursor, largest_offset)
            cursor.least_timestamps += ((largest_offset + 1, cursor.least_timestamp),)
            cursor.least_timestamp = NOTHING
            cursor.bytes_since_last_index_entry = 0
        cursor.bytes_since_last_index_entry += size
        cursor.buffers += buffers
        cursor.size += size

    def _plan_entries(self, cursor: SegmentCursor, largest_offset: int) -> None:
        """An index that cannot accept its entry stays without it: it is derived, and no reason to refuse the batch."""
        try:
            cursor.offset_tail, entry = self.offset_index.entry_after(cursor.offset_tail, largest_offset, cursor.size)
            cursor.offset_entries += entry
        except (InvalidOffsetError, ValueError) as exc:
            self.offset_index.distrust(str(exc))
        try:
            cursor.time_tail, entry = self.time_index.entry_after(
                cursor.time_tail, cursor.max_timestamp, cursor.offset_of_max_timestamp
            )
            cursor.time_entries += entry
        except (InvalidOffsetError, ValueError) as exc:
            self.time_index.distrust(str(exc))

    def plan_aborted(self, cursor: SegmentCursor, txn: AbortedTxn) -> None:
        """Put an aborted transaction, whose marker is on the cursor, into the transaction index."""
        last = cursor.aborted[-1].last_offset if cursor.aborted else self.transaction_index.last_offset
        self.transaction_index.check_next(last, txn)
        cursor.aborted += (txn,)

    def writes_for(self, cursor: SegmentCursor) -> tuple[list[DiskOp], list[FileHandle]]:
        """The writes, and the files that must be open before they run: the log, and indexes. Log first: an index never points
        behind the log's end."""
        # What Write(...) makes, without its Python-level call.
        writes: list[DiskOp] = [tuple.__new__(Write, (self.log, self.size, cursor.buffers))] if cursor.buffers else []
        files = [self.log]
        if cursor.offset_entries:
            writes.append(Write(self.offset_index.file, self.offset_index.size_in_bytes, [cursor.offset_entries]))
            files.append(self.offset_index.file)
        if cursor.time_entries:
            writes.append(Write(self.time_index.file, self.time_index.size_in_bytes, [cursor.time_entries]))
            files.append(self.time_index.file)
        if cursor.aborted:
            entries = [encode_entry(txn) for txn in cursor.aborted]
            writes.append(Write(self.transaction_index.file, self.transaction_index.size_in_bytes, entries))
            files.append(self.transaction_index.file)
        return writes, files

    def commit(self, cursor: SegmentCursor) -> None:
        """Take over what was written."""
        self.size = cursor.size
        self.bytes_since_last_index_entry = cursor.bytes_since_last_index_entry
        self.max_timestamp = cursor.max_timestamp
        self.offset_of_max_timestamp = cursor.offset_of_max_timestamp
        self.rolling_based_timestamp = cursor.rolling_based_timestamp
        self.offset_index.tail = cursor.offset_tail
        self.time_index.tail = cursor.time_tail
        self.least_timestamps.since = cursor.least_timestamp
        if cursor.least_timestamps:
            self.least_timestamps.add(cursor.least_timestamps)
        if cursor.aborted:
            entries = self.transaction_index.entries + len(cursor.aborted)
            self.transaction_index.take(entries, cursor.aborted[-1].last_offset)

    def should_roll(
        self, cursor: SegmentCursor, *, size: int, largest_offset: int, largest_timestamp: int, now_ms: int
    ) -> str | None:
        """Why an append of `size` bytes needs a new segment, None when it does not. All comparisons are strict."""
        config = self.config
        if cursor.size > config.segment_bytes - size and cursor.size:  # a source may have stored a larger batch
            return f"size: {cursor.size} + {size} bytes are above segment.bytes={config.segment_bytes}"
        if cursor.size > 0:
            # Between the segment's first timestamp and the append's; without timestamps, since it was created.
            first = cursor.rolling_based_timestamp
            waited_ms = now_ms - self.created_ms if first is None or first < 0 else largest_timestamp - first
            if waited_ms > cursor.roll_after_ms:
                return f"time: {waited_ms} ms are above segment.ms={config.max_segment_ms} - {self.roll_jitter_ms} ms of jitter"
        if cursor.offset_tail.entries >= cursor.most_offset_entries:
            return f"the offset index has all of its {cursor.most_offset_entries} entries"
        if cursor.time_tail.entries >= cursor.most_time_entries:
            return f"the time index has all of its {cursor.most_time_entries} entries"
        if not 0 <= largest_offset - self.base_offset <= INT32_MAX:
            return f"offset {largest_offset} does not fit in 32 bits above {self.base_offset}"
        return None

    def become_inactive(self) -> Procedure[None]:
        """Write the closing time index entry and cut the preallocated rest off all files."""
        if self.max_timestamp > self.time_index.tail.key:
            try:
                closing = self.time_index.entry_after(
                    self.time_index.tail, self.max_timestamp, self.offset_of_max_timestamp, skip_full_check=True
                )
                yield from self.time_index.write_tail(*closing)
            except InvalidOffsetError as exc:
                self.time_index.distrust(str(exc))
        yield from self.offset_index.trim()
        yield from self.time_index.trim()
        yield from self.transaction_index.trim()
        if self.config.preallocate:
            yield Truncate(self.log, self.size)

    def sync(self, recovery_point: int = 0) -> Procedure[None]:
        """Force the log and its indexes to the device."""
        for file in self.files:
            yield from (operation for operation in self.sync_of(file, recovery_point))

    def sync_of(self, file: FileHandle, recovery_point: int) -> list[DiskOp]:
        """Return the operations that sync one of the segment's files. After a failed sync, data above the recovery point is
        written again first."""
        if file.failed_sync is None:
            return [Sync(file)]
        if file is self.log:
            return [WriteBatchesAgain(file, self._position_before(recovery_point), self.size, recovery_point), Sync(file)]
        index: AbstractIndex | TransactionIndex = self.transaction_index
        for mapped in self.indexes:
            if mapped.file is file:
                mapped.buffer, index = None, mapped  # the kernel does not forget a page that is mapped
        return [WriteIndexAgain(file, index.size_in_bytes, index.content_check()), Sync(file)]

    def _position_before(self, offset: int) -> int:
        """Return the start of a batch that shares no page with the offset, as far as the index in memory shows."""
        index, buffer = self.offset_index, self.offset_index.buffer
        if buffer is None or len(buffer) < index.size_in_bytes:
            return 0
        position = index.lookup_in(buffer, index.entries, offset)[2]
        slot, _ = index.search(buffer, index.entries, position - SHARED_BYTES, by_value=True)
        return 0 if slot < 0 else index.entry_at(buffer, slot)[1]

    def truncate_to(self, offset: int, now_ms: int) -> Procedure[int]:
        """Cut the batch that holds `offset` and all behind it off; answers the bytes removed.

        Whole batches go: records of that batch below `offset` too. The caller takes a gap up to `offset` as normal.
        """
        found = yield from self.view().translate_offset(offset)
        yield from self.offset_index.truncate_to(offset)
        yield from self.time_index.truncate_to(offset)
        yield from self.transaction_index.truncate_to(offset)
        self.least_timestamps = self.least_timestamps.before(offset)
        self.offset_index.grow()
        self.time_index.grow()
        removed = 0
        if found is not None:
            yield Truncate(self.log, found.position)
            removed, self.size = self.size - found.position, found.position
        if self.size == 0:
            self.created_ms, self.rolling_based_timestamp = now_ms, None
        self.bytes_since_last_index_entry = 0
        if self.offset_index.entries and self.offset_index.tail.value >= self.size:
            yield from self.offset_index.replace(self.offset_index.empty_tail(), b"")
        yield from self.load_max_timestamp()
        return removed

    def load_max_timestamp(self) -> Procedure[None]:
        """Largest timestamp from the time index's last entry and the batches behind it."""
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last_entry
        _, _, position = yield from self.view().position_of(self.offset_of_max_timestamp)

        def see(header: BatchHeader, _: int) -> None:
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.offset_of_max_timestamp = header.max_timestamp, header.last_offset

        yield from self.view().bytes_from(position).visit_headers(see)

    def confirm_max_timestamp(self) -> Procedure[bool]:
        """Read the largest timestamp from the headers of all batches, unless it is certain. Return whether a batch has a larger
        one: then the time index is not used any more.

        It reads what lies between the headers, so it may take long; appends may go on meanwhile. Damage ends the search.
        """
        if self.is_max_timestamp_certain:
            return False
        largest, offset = NO_TIMESTAMP, self.base_offset

        def see(header: BatchHeader, _: int) -> None:
            nonlocal largest, offset
            if header.max_timestamp > largest:
                largest, offset = header.max_timestamp, header.last_offset

        with suppress(CorruptRecordError):
            yield from self.records.visit_headers(see)
        self.is_max_timestamp_certain = True
        if largest <= self.max_timestamp:
            return False
        self.time_index.distrust(f"it says that the largest timestamp is {self.max_timestamp}, the batches say {largest}")
        self.max_timestamp, self.offset_of_max_timestamp = largest, offset
        return True

    def load_rolling_based_timestamp(self) -> Procedure[None]:
        """The largest timestamp of the first batch on disk."""
        first = yield from self.records.find_batch(lambda header: True)
        self.rolling_based_timestamp = None if first is None else first.header.max_timestamp

    def read_next_offset(self) -> Procedure[int]:
        """The offset behind the last whole batch; the base offset when there is none."""
        _, _, position = yield from self.view().entry_of(self.offset_index.last_offset)
        next_offset, _ = yield from self.view().bytes_from(position).find_end(self.base_offset)
        return next_offset


class LogSegments:
    """Segments in ascending base offset; the last one is the active one."""

    __slots__ = ("_bases", "_segments", "active")

    active: LogSegment
    """The last one, while there is any."""

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._bases: list[int] = []
        self._segments: list[LogSegment] = []
        for segment in segments:
            self.add(segment)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __contains__(self, base_offset: int) -> bool:
        slot = bisect_left(self._bases, base_offset)
        return slot < len(self._bases) and self._bases[slot] == base_offset

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Put a segment in; answers the one of the same base offset that it replaced."""
        slot = bisect_left(self._bases, segment.base_offset)
        if slot < len(self._bases) and self._bases[slot] == segment.base_offset:
            replaced, self._segments[slot] = self._segments[slot], segment
            self.active = self._segments[-1]
            return replaced
        self._bases.insert(slot, segment.base_offset)
        self._segments.insert(slot, segment)
        self.active = self._segments[-1]
        return None

    def remove(self, segment: LogSegment) -> None:
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment
        del self._bases[slot], self._segments[slot]
        if self._segments:
            self.active = self._segments[-1]

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the greatest base offset <= `offset`."""
        slot = bisect_right(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment with the least base offset > `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def higher_segments(self, offset: int) -> list[LogSegment]:
        """All segments with a base offset > `offset`, ascending."""
        return self._segments[bisect_right(self._bases, offset) :]

    def values(self, start: int, stop: int) -> list[LogSegment]:
        """The segments that overlap the offsets [start, stop): from the floor of `start` (or the first) on.

        Raises ValueError when `start` is above `stop`.
        """
        if start > stop:
            raise ValueError(f"the offsets [{start}, {stop}) are reversed")
        if start == stop:
            return []
        low = max(0, bisect_right(self._bases, start) - 1)
        return self._segments[low : bisect_left(self._bases, stop)]

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)
