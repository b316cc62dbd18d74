"""Committed reads of segment files (KIP-98): they skip aborted transactions and end before the last stable offset.

| question | answered from |
|---|---|
| last stable offset | the newest producer snapshot that can be read, and the batches behind it |
| aborted transactions | `.txnindex` of each segment, for the markers that lie in it |
| the same where a segment has no such file | the markers behind the transactional batches of a split (`MarkerSearch`) |

Most segments have no `.txnindex`, since commits leave no entry: a log without transactions costs nothing here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise
from typing import Final, cast

import attrs

from ...protocol.errors import RequestError
from ...protocol.limits import INT64_MAX
from ...protocol.records.batch import BatchHeader, check_batch
from ...protocol.records.control import ControlRecordType, control_record_type
from ...protocol.records.record import iter_records
from ...server.storage.disk.checkpoints import read_small
from ...server.storage.disk.filesystem import read_file
from ...server.storage.disk.paths import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, base_offset_of, segment_file
from ...server.storage.errors import CorruptIndexError, CorruptSnapshotError
from ...server.storage.indexes.transaction_index import ENTRY_BYTES, AbortedTxn, collect_aborted, decode_entries
from ...server.storage.producers.producer_snapshots import decode_snapshot, snapshot_path
from ...server.storage.producers.producer_state import ProducerState
from .segment_bytes import FILES, SegmentBytes
from .segment_damage import LOGGER, DamageCounts, ReadMode, SegmentPart, walk_headers
from .segment_index import MAX_INDEX_BYTES, index_path, read_offset_index
from .segment_log import PartitionLog, SegmentFile, position_at_or_below
from .splits import AbortedRange, LogRange, SegmentSplit

_MARKERS: Final = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


def last_stable_offset(log: PartitionLog) -> int:
    """Return the first offset of the earliest open transaction, else the end of the log. Raises OSError."""
    if log.last_stable_offset is not None:
        return log.last_stable_offset
    producers = _newest_snapshot(log)
    counts = DamageCounts(ReadMode.DROPMALFORMED)
    for segment in log.segments_within(producers.end_offset, log.end_offset):
        with SegmentBytes(segment.path, segment.size_bytes) as file:
            position, next_offset = 0, segment.base_offset
            if producers.end_offset > segment.base_offset:
                index = read_offset_index(segment.path, segment.base_offset, segment.size_bytes)
                position, next_offset = position_at_or_below(file, segment, index, producers.end_offset)
            for header, at in walk_headers(file, segment.part, position, next_offset, counts):
                if header.is_transactional and header.base_offset >= producers.end_offset:
                    _replay(producers, file, header, at)
    return min(producers.ongoing.values(), default=log.end_offset)


def _replay(producers: ProducerState, file: SegmentBytes, header: BatchHeader, position: int) -> None:
    """Take a batch in; one that would begin or end a transaction is looked at first, and passed over when it is damaged."""
    batch = memoryview(b"")
    try:
        if header.is_control or header.producer_id not in producers.ongoing:
            batch = file.batch_at(position, header)
            check_batch(batch, header)
        producers.replay(header, batch)
    except RequestError as exc:
        LOGGER.warning("%s: position %d: %s", file.path, position, exc.message)


def _newest_snapshot(log: PartitionLog) -> ProducerState:
    for offset in reversed(log.snapshot_offsets):
        path = snapshot_path(log.directory, offset)
        if log.log_start_offset < offset <= log.end_offset:
            try:
                entries = decode_snapshot(path, read_small(FILES, path))
            except (CorruptSnapshotError, FileNotFoundError, ValueError) as exc:
                LOGGER.warning("%s: using an older one", exc)
                continue
            return ProducerState(offset, {entry.producer_id: entry for entry in entries})
    return ProducerState(log.log_start_offset)


def committed_range(log: PartitionLog, low: int, high: int) -> LogRange:
    """Return the range of [low, high) that a committed reader sees. Raises OSError."""
    high = min(high, last_stable_offset(log))
    found: list[AbortedTxn] = []
    marked_offset = -1
    for segment in log.segments_within(low, INT64_MAX):
        entries = _entries(segment)
        if entries is None or segment.end_offset > log.trusted_offset:
            marked_offset = segment.base_offset
        if collect_aborted(entries or [], low, high, found):
            break
    aborted = tuple(
        AbortedRange(producer_id=txn.producer_id, first_offset=txn.first_offset, last_offset=txn.last_offset)
        for txn in sorted(found, key=lambda txn: txn.last_offset)
    )
    return LogRange(log=log, low=low, high=high, aborted=aborted, marked_offset=marked_offset)


def _entries(segment: SegmentFile) -> list[AbortedTxn] | None:
    """Aborted transactions in a segment's `.txnindex`; None when there is no such file that can be believed."""
    path = index_path(segment.path, TRANSACTION_INDEX_SUFFIX)
    try:
        data = read_file(FILES, path, max_bytes=MAX_INDEX_BYTES)
        entries = decode_entries(path, data)
    except (CorruptIndexError, FileNotFoundError, ValueError):
        return None
    lasts = [segment.base_offset - 1, *(txn.last_offset for txn in entries), segment.end_offset]
    is_sound = all(before < after for before, after in pairwise(lasts)) and len(data) % ENTRY_BYTES == 0
    return entries if is_sound and all(0 <= txn.first_offset < txn.last_offset for txn in entries) else None


@attrs.define(eq=False, repr=False)
class MarkerSearch:
    """A search for the aborted transactions with batches in a split, by the markers after them. Owner: the split's reader.

    It accepts the batches in order. A producer's next marker is among them, or the search continues up to the log's end.
    """

    split: SegmentSplit
    _markers: dict[int, list[tuple[int, bool]]] = attrs.field(factory=dict)
    """Of each producer id: (offset, is an abort), ascending."""
    _next_offset: int = 0
    """Markers below it are known."""
    _ahead: Iterator[tuple[BatchHeader, memoryview]] | None = None

    def aborted(self, batches: Iterable[tuple[BatchHeader, memoryview]], position: int, next_offset: int) -> list[AbortedRange]:
        """The transactions in `batches` that were aborted. `position` and `next_offset` are where the batches end."""
        offsets: dict[int, list[int]] = {}
        for header, batch in batches:
            if header.is_control:
                self._see(header, batch)
            elif header.is_transactional:
                offsets.setdefault(header.producer_id, []).append(header.base_offset)
        found: list[AbortedRange] = []
        for producer_id, of_producer in offsets.items():
            markers = self._markers_behind(producer_id, of_producer[-1], position, next_offset)
            first_before = {bisect_left(markers, (offset,)): offset for offset in reversed(of_producer)}
            found += [
                AbortedRange(producer_id=producer_id, first_offset=first_before[slot], last_offset=offset)
                for slot, (offset, is_abort) in enumerate(markers)
                if is_abort and slot in first_before
            ]
        return found

    def close(self) -> None:
        """Let go of the files that are being looked through."""
        if self._ahead is not None:
            cast(Generator[object], self._ahead).close()

    def _see(self, header: BatchHeader, batch: memoryview) -> None:
        if header.base_offset < self._next_offset:
            return
        self._next_offset = header.next_offset
        try:
            check_batch(batch, header)
            kinds = [control_record_type(record.key) for record in iter_records(batch, header)]
        except RequestError as exc:
            LOGGER.warning("%s: the control batch at offset %d: %s", self.split.path, header.base_offset, exc.message)
            return
        for kind in kinds:
            if kind in _MARKERS:
                is_abort = kind is ControlRecordType.ABORT
                self._markers.setdefault(header.producer_id, []).append((header.base_offset, is_abort))

    def _markers_behind(self, producer_id: int, offset: int, position: int, next_offset: int) -> list[tuple[int, bool]]:
        """The producer's known markers, one behind `offset` among them if there is one up to the end of the log."""
        markers = self._markers.setdefault(producer_id, [])
        while not markers or markers[-1][0] < offset:
            if self._ahead is None:
                self._ahead = _control_batches(self.split, position, next_offset)
            following = next(self._ahead, None)
            if following is None:
                break
            self._see(*following)
        return markers


def _control_batches(split: SegmentSplit, position: int, next_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """From a position of the split's segment to the end of the log, as the directory has it now."""
    counts = DamageCounts(ReadMode.DROPMALFORMED)
    directory, _, name = split.path.rpartition("/")
    own = base_offset_of(name)
    bases = [base_offset_of(name) for name in FILES.list_directory(directory) if name.endswith(LOG_SUFFIX)]
    later = sorted(base for base in bases if base is not None and own is not None and base > own)
    paths = [split.path, *(f"{directory}/{segment_file(base, LOG_SUFFIX)}" for base in later)]
    for path, end_offset in zip(paths, [*later, INT64_MAX], strict=True):
        size = FILES.file_size(path) or 0
        part = SegmentPart(path=path, end_byte=size, end_offset=end_offset, is_tail=end_offset == INT64_MAX)
        with SegmentBytes(path, size) as file:
            for header, at in walk_headers(file, part, position, next_offset, counts):
                if header.is_control:
                    yield header, file.batch_at(at, header)
        position, next_offset = 0, end_offset
