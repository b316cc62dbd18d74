"""The records in a stopped partition's files, in order, without an index: what `export` hands out.

A damaged batch is left out and told of; the rest is read on. With `committed` only what a read-committed consumer sees comes:
no record of an aborted transaction, and nothing from the first offset of a transaction on that is still open (the last stable
offset). Which those are is found out from the log itself, in a pass over its batches before.

Memory: one batch decompressed, one entry for each aborted transaction, the producers of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

import attrs

from ...protocol.limits import INT64_MAX, MAX_DECOMPRESSED_BYTES
from ...protocol.records.batch import BatchHeader, parse_header
from ...protocol.records.record import iter_records
from ...protocol.types import Record
from ..storage.directory.inventory import PartitionFiles, SegmentFiles
from ..storage.disk.filesystem import FileSystem, read_at
from ..storage.disk.paths import LOG_SUFFIX
from ..storage.producers.producer_state import ProducerState
from ..storage.recovery.salvage import Damage, GoodBatch, scan_batches

Damaged = Callable[[str, Damage], None]
"""Is told of a file and what is damaged in it."""


@attrs.frozen(kw_only=True)
class RecordRange:
    """A range of records: offsets [from_offset, to_offset) and timestamps [from_ms, to_ms)."""

    from_offset: int = 0
    to_offset: int = INT64_MAX
    from_ms: int | None = None
    to_ms: int | None = None
    committed: bool = False

    def holds(self, record: Record) -> bool:
        if not self.from_offset <= record.offset < self.to_offset:
            return False
        if self.from_ms is not None and record.timestamp < self.from_ms:
            return False
        return self.to_ms is None or record.timestamp < self.to_ms


@attrs.define(eq=False, repr=False)
class DecidedTransactions:
    """The aborted transactions of a log, and the offset up to which all transactions are decided."""

    _firsts: dict[int, list[int]] = attrs.field(factory=dict)
    _lasts: dict[int, list[int]] = attrs.field(factory=dict)
    last_stable_offset: int = INT64_MAX

    def add_aborted(self, producer_id: int, first_offset: int, last_offset: int) -> None:
        """The next one of its producer."""
        self._firsts.setdefault(producer_id, []).append(first_offset)
        self._lasts.setdefault(producer_id, []).append(last_offset)

    def is_aborted(self, header: BatchHeader) -> bool:
        firsts = self._firsts.get(header.producer_id)
        if firsts is None or not header.is_transactional:
            return False
        slot = bisect_right(firsts, header.base_offset) - 1
        return slot >= 0 and header.base_offset <= self._lasts[header.producer_id][slot]


def find_transactions(fs: FileSystem, files: PartitionFiles, advance: Callable[[int], None]) -> DecidedTransactions:
    """Read all batches. `advance` is told how many bytes of log are done. Raises OSError."""
    found = DecidedTransactions()
    producers = ProducerState(files.segments[0].base_offset if files.segments else 0)
    for segment, end_offset in files.with_ends():
        for item in _batches(fs, segment, end_offset, lambda path, damage: None):
            header = item.header
            if header.is_transactional:
                aborted = producers.replay(header, item.batch if header.is_control else b"")
                if aborted is not None:
                    found.add_aborted(aborted.producer_id, aborted.first_offset, aborted.last_offset)
        advance(segment.log_bytes)
    found.last_stable_offset = min(producers.ongoing.values(), default=INT64_MAX)
    return found


def stored_batches(
    fs: FileSystem,
    files: PartitionFiles,
    wanted: RecordRange,
    transactions: DecidedTransactions,
    *,
    damaged: Damaged,
    advance: Callable[[int], None],
) -> Iterator[list[Record]]:
    """The wanted data records of each batch that has some. Raises OSError, and RequestError for a batch whose CRC is right and
    whose records cannot be read."""
    end = min(wanted.to_offset, transactions.last_stable_offset) if wanted.committed else wanted.to_offset
    for segment, end_offset in files.with_ends():
        if segment.base_offset >= end:
            return
        if end_offset is not None and end_offset <= wanted.from_offset:
            advance(segment.log_bytes)
            continue
        done = 0
        for item in _batches(fs, segment, end_offset, damaged):
            header = item.header
            if header.base_offset >= end:
                break
            advance(item.position - done)
            done = item.position
            if _may_hold(header, wanted) and not (wanted.committed and transactions.is_aborted(header)):
                records = iter_records(item.batch, header, max_bytes=MAX_DECOMPRESSED_BYTES)
                found = [record for record in records if record.offset < end and wanted.holds(record)]
                if found:
                    yield found
        advance(segment.log_bytes - done)


def _may_hold(header: BatchHeader, wanted: RecordRange) -> bool:
    if header.is_control or header.last_offset < wanted.from_offset or not header.records_count:
        return False
    return wanted.from_ms is None or header.max_timestamp >= wanted.from_ms


def _batches(fs: FileSystem, segment: SegmentFiles, end_offset: int | None, damaged: Damaged) -> Iterator[GoodBatch]:
    """Good batches, and those whose stamp can be restored."""
    path = segment.path(LOG_SUFFIX)
    torn_from = 0 if end_offset is None else INT64_MAX
    for item in scan_batches(fs, path, base_offset=segment.base_offset, end_offset=end_offset, torn_from=torn_from):
        if isinstance(item, GoodBatch):
            yield item
            continue
        damaged(path, item)
        if item.stamp is not None:
            yield restored(fs, path, item.position, item.size, item.stamp)


def restored(fs: FileSystem, path: str, position: int, size: int, stamp: bytes) -> GoodBatch:
    """A batch whose first bytes alone are damaged, with the right ones in their place. Raises OSError."""
    batch = memoryview(stamp + read_at(fs, path, position + len(stamp), size - len(stamp)))
    return GoodBatch(parse_header(batch), position, batch)
