"""Reading the segments of a job in pieces of a bounded size, and writing a `.cleaned` segment: log, both indexes, transaction
index.

Everything is forced to the device before it is used. Index entries are due as in a live segment, because that is what it
becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import MIB
from ....protocol.records.batch import LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD, BatchHeader, parse_header
from ....protocol.types import Bytes
from ..disk.diskops import FileHandle, Open, drive, execute
from ..disk.filesystem import READ, FileSystem
from ..disk.path_ops import CreateFile, SyncDirectory
from ..disk.paths import CLEANED_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from ..errors import FileGoneError
from ..indexes.file_records import not_a_batch
from ..indexes.transaction_index import AbortedTxn, TransactionIndex, collect_aborted
from ..segments.segment import LogSegment
from .job import CleaningJob, SourceSegment

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
        for file in self.segment.files_for(self._cursor):
            if file.fd is None:
                file.fd = Open(file).run(self._fs)
        execute(self._fs, self.segment.writes_for(self._cursor))
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

Spend = Callable[[int], None]
"""Told of every read and write: where a round is slowed down, or ended."""


def read_batches(
    fs: FileSystem, job: CleaningJob, segment: SourceSegment, spend: Spend, *, position: int = 0
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a segment. A view is good as long as it is kept. Raises CorruptRecordError where no batch is."""
    path = f"{job.directory}/{segment_file(segment.base_offset, LOG_SUFFIX)}"
    try:
        fd = fs.open(path, READ)
    except FileNotFoundError as exc:
        raise FileGoneError(f"{path} is gone") from exc
    try:
        wanted = READ_BYTES
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
                    f"{path} ends inside the batch at position {position} of {segment.size}; see `triolog verify`"
                )
            wanted = max(READ_BYTES, needed)
    finally:
        fs.close(fd)


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
