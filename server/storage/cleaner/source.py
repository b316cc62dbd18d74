"""Reading the segments of a job: batches in the order of the log, in pieces of a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import MIB
from ....protocol.records.batch import LOG_OVERHEAD, MAGIC, RECORD_BATCH_OVERHEAD, BatchHeader, parse_header
from ..disk.diskops import FileHandle, drive
from ..disk.filesystem import READ, FileSystem
from ..disk.paths import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file
from ..errors import FileGoneError
from ..indexes.file_records import not_a_batch
from ..indexes.transaction_index import AbortedTxn, TransactionIndex, collect_aborted
from .job import CleaningJob, SourceSegment

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
