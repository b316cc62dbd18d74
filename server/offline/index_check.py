"""The derived files of one segment held against its log: `.index`, `.timeindex`, `.txnindex`.

`IndexCheck` is shown the batches as the segment's check comes by them. A file is damaged when it is missing from a segment that
was closed, is no whole number of entries, was not cut to its entries, or says what the log does not (see below).
Lookups through an index that passes give what they would give through one that was rebuilt.

The entries of an `.index` or `.timeindex` file held against the batches of its log, both read once, in order.

An offset index entry is right when a batch starts at its position and, from there on and before the next entry's position, a
batch ends with its offset. (Kafka makes one entry for several batches that were appended together, so it need not be the same
batch; lookups are right all the same.) A time index entry is right when the largest timestamp so far becomes its timestamp in
the batch that ends with its offset. Files are read in pieces: an index of any size needs little memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self

from ...protocol.limits import INT32_MAX, KIB, MIB
from ...protocol.records.batch import BatchHeader
from ...protocol.types import NO_TIMESTAMP
from ..storage.directory.inventory import SegmentFiles
from ..storage.disk.filesystem import READ, FileSystem, read_file
from ..storage.disk.paths import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from ..storage.errors import CorruptIndexError, FileTooLargeError
from ..storage.indexes.index import AbstractIndex, OffsetIndex, TimeIndex
from ..storage.indexes.transaction_index import ENTRY_BYTES, AbortedTxn, decode_entries
from .findings import FaultTally, Observer

INDEX: Final = "index"
TIME_INDEX: Final = "time index"
TRANSACTION_INDEX: Final = "transaction index"

MAX_TRANSACTION_INDEX_BYTES: Final = 16 * MIB
_VERSION: Final = bytes(2)


class IndexCheck:
    """Both sparse indexes of a segment."""

    def __init__(self, offset_file: IndexFile | None, time_file: IndexFile | None) -> None:
        self._offset_file = offset_file
        self._time_file = time_file
        self.offsets = OffsetMatching(iter(offset_file or ()))
        self.times = TimeMatching(iter(time_file or ()))

    def visit(self, header: BatchHeader, position: int) -> None:
        """The next batch of the log."""
        if position >= self.offsets.due:
            self.offsets.visit(header, position)
        if header.max_timestamp > self.times.largest:
            self.times.visit(header)

    def report(self, reporter: Observer, segment: SegmentFiles, *, was_closed: bool, log_is_damaged: bool) -> None:
        """Report all faults, once all batches were shown. Entries for a damaged part of the log cannot be right: they are
        remarks, and a repair of the log rebuilds the indexes."""
        wrong_entries = reporter.remark if log_is_damaged else reporter.damage
        self.offsets.finish()
        self.times.finish()
        for check, suffix, file, matching in (
            (INDEX, INDEX_SUFFIX, self._offset_file, self.offsets),
            (TIME_INDEX, TIME_INDEX_SUFFIX, self._time_file, self.times),
        ):
            path = segment.path(suffix)
            if file is not None:
                _report_size(reporter, check, file, was_closed=was_closed)
                reporter.damage(check, path, matching.order.text)
                wrong_entries(check, path, matching.failures.text)
            elif was_closed and segment.log_bytes:
                reporter.damage(check, path, "the file is missing")
        closing = self._time_file is not None and was_closed and not self._time_file.zeros and not self.times.failures.count
        if closing:
            wrong_entries(TIME_INDEX, segment.path(TIME_INDEX_SUFFIX), self.times.closing_failure)


@contextlib.contextmanager
def open_indexes(fs: FileSystem, segment: SegmentFiles) -> Iterator[IndexCheck]:
    """The check of a segment's indexes, whose files are open inside of the block."""
    with contextlib.ExitStack() as stack:

        def opened(suffix: str, kind: type[AbstractIndex]) -> IndexFile | None:
            if suffix not in segment.sizes:
                return None
            return stack.enter_context(IndexFile(fs, segment.path(suffix), kind, segment.base_offset))

        yield IndexCheck(opened(INDEX_SUFFIX, OffsetIndex), opened(TIME_INDEX_SUFFIX, TimeIndex))


def _report_size(reporter: Observer, check: str, file: IndexFile, *, was_closed: bool) -> None:
    if file.remainder:
        reporter.damage(check, file.path, f"{file.size} bytes are not a multiple of {file.entry_size}-byte entries")
    if file.zeros:
        text = f"{file.entries} entries, then {file.zeros} of zeros: preallocated and not closed"
        (reporter.damage if was_closed else reporter.remark)(check, file.path, text)


class AbortedInLog(NamedTuple):
    """The transactions that ABORT markers of a segment have ended, according to all batches of the log.

    A recovery skips batches below the log start, so entries that it has written may hold less of them: a later begin of a
    transaction, or no transaction. `needed`: (producer, offset of the marker) of those that still have records.
    """

    transactions: list[AbortedTxn]
    needed: set[tuple[int, int]]
    log_start_offset: int

    def may_say(self, entry: AbortedTxn, told: AbortedTxn) -> bool:
        """Return whether an entry matches the log, or the rest of it above the log start."""
        start = self.log_start_offset
        return _is_or_later(entry.first_offset, told.first_offset, start) and _is_or_later(
            entry.last_stable_offset, told.last_stable_offset, start
        )


def _is_or_later(found: int, told: int, log_start_offset: int) -> bool:
    return found == told or told < min(found, log_start_offset)


def check_transaction_index(
    fs: FileSystem, segment: SegmentFiles, aborted: AbortedInLog | None, reporter: Observer, *, was_closed: bool
) -> None:
    """Hold `.txnindex` against the ABORT markers of its segment; None: the log cannot tell what they ended.

    Raises OSError.
    """
    path = segment.path(TRANSACTION_INDEX_SUFFIX)
    found: list[AbortedTxn] = []
    if TRANSACTION_INDEX_SUFFIX in segment.sizes:
        try:
            data = read_file(fs, path, max_bytes=MAX_TRANSACTION_INDEX_BYTES)
            found = read_transaction_entries(path, data)
        except (CorruptIndexError, ValueError) as exc:
            reporter.damage(TRANSACTION_INDEX, path, str(exc))
            return
    reporter.damage(TRANSACTION_INDEX, path, order_failure(found, segment.base_offset))
    if aborted is not None:
        told = {_marker(txn): txn for txn in aborted.transactions}
        strange = [txn for txn in found if _marker(txn) not in told or not aborted.may_say(txn, told[_marker(txn)])]
        reporter.damage(TRANSACTION_INDEX, path, _in_words("has entries that the log does not have", strange))
        right = {_marker(txn) for txn in found}.difference(map(_marker, strange))
        lacking = _in_words(
            "lacks entries that the log has", [told[marker] for marker in told if marker in aborted.needed - right]
        )
        # An entry is written behind its marker: whoever opens a log that was not closed makes it anew.
        (reporter.damage if was_closed else reporter.remark)(TRANSACTION_INDEX, path, lacking)


def read_transaction_entries(path: str, data: bytes) -> list[AbortedTxn]:
    """All entries. CorruptIndexError for anything but whole entries of version 0."""
    if len(data) % ENTRY_BYTES:
        raise CorruptIndexError(f"{len(data)} bytes are not a multiple of {ENTRY_BYTES}-byte entries")
    for slot in range(len(data) // ENTRY_BYTES):
        # Readers look at the first byte of the version alone; nobody ever wrote another second one.
        if data[slot * ENTRY_BYTES : slot * ENTRY_BYTES + 2] != _VERSION:
            raise CorruptIndexError(f"entry {slot} does not begin with version 0")
    return decode_entries(path, data)


def order_failure(found: list[AbortedTxn], base_offset: int) -> str | None:
    """None when the markers ascend from the base offset on."""
    last = base_offset - 1
    for slot, txn in enumerate(found):
        if txn.last_offset <= last or txn.first_offset > txn.last_offset:
            return f"entry {slot} of offsets {txn.first_offset} to {txn.last_offset} cannot follow offset {last}"
        last = txn.last_offset
    return None


def _marker(txn: AbortedTxn) -> tuple[int, int]:
    return txn.producer_id, txn.last_offset


def _in_words(words: str, transactions: list[AbortedTxn]) -> str | None:
    places = FaultTally()
    for txn in transactions:
        places.add(
            f"producer {txn.producer_id} aborted {txn.first_offset} to {txn.last_offset} "
            f"at last stable offset {txn.last_stable_offset}"
        )
    return f"{words}: {places.text}" if places.count else None


_PIECE_ENTRIES: Final = 4096
_TAIL_PIECE_BYTES: Final = 64 * KIB

Entry = tuple[int, int]
_END: Final[Entry] = (2**63, 2**63)
"""Stands behind the last entry: no log reaches it."""


class IndexFile:
    """An open index file, entry by entry; to be closed. Zeros at its end are space that was preallocated and not cut off."""

    def __init__(self, fs: FileSystem, path: str, kind: type[AbstractIndex], base_offset: int) -> None:
        self._fs = fs
        self.path = path
        self._fd = fs.open(path, READ)
        try:
            self.size = fs.size(self._fd)
            if self.size > INT32_MAX:
                raise FileTooLargeError(f"{path} has {self.size} bytes. An index has at most {INT32_MAX}. Move it away")
            self.entry_size = kind.entry_size
            self._index = kind(path, base_offset, max(self.size, self.entry_size))
            used = -(-self._used_bytes() // self.entry_size)
            if used == 0 and self.size == self.entry_size and kind is TimeIndex:
                used = 1  # one entry of zeros can be one: the record at the base offset with the timestamp 0
            self.entries = min(used, self.size // self.entry_size)
            self.zeros = self.size // self.entry_size - self.entries
            """Entries of zeros behind the used ones."""
            self.remainder = self.size % self.entry_size
        except BaseException:
            fs.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._fs.close(self._fd)

    def __iter__(self) -> Iterator[Entry]:
        """(key, value) of each used entry."""
        for first in range(0, self.entries, _PIECE_ENTRIES):
            count = min(_PIECE_ENTRIES, self.entries - first)
            data = self._fs.read(self._fd, count * self.entry_size, first * self.entry_size)
            for slot in range(len(data) // self.entry_size):
                yield self._index.entry_at(data, slot)

    def _used_bytes(self) -> int:
        stop = self.size
        while stop > 0:
            start = max(0, stop - _TAIL_PIECE_BYTES)
            used = len(self._fs.read(self._fd, stop - start, start).rstrip(b"\0"))
            if used:
                return start + used
            stop = start
        return 0


class OffsetMatching:
    """(offset, position) entries against batches. Owner: whoever shows it the batches."""

    __slots__ = ("_entries", "_entry", "_is_inside", "_next", "_slot", "due", "failures", "order")

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._slot = 0
        self._is_inside = False
        self.failures = FaultTally()
        self.order = FaultTally()
        self._next = next(entries, _END)
        self._entry = _END
        self._advance()
        self._slot = 0
        self.due = self._entry[1]
        """Position from which on batches must be shown."""

    def visit(self, header: BatchHeader, position: int) -> None:
        """The next batch of the log; one that starts before `due` need not be shown."""
        while self._entry is not _END:
            offset, indexed = self._entry
            if not self._is_inside:
                if position < indexed:
                    return
                if position > indexed:
                    self._fail(f"slot {self._slot} points to {indexed}, where no batch starts (the next one: {position})")
                    continue
                self._is_inside = True
            if header.last_offset < offset and position < self._next[1]:
                return
            if header.last_offset != offset:
                self._fail(f"slot {self._slot} has offset {offset}. No batch from {indexed} on ends with it")
                continue
            self._advance()
            return

    def finish(self) -> None:
        """All batches were shown."""
        while self._entry is not _END:
            offset, indexed = self._entry
            self._fail(f"slot {self._slot} has offset {offset} at {indexed}, after the end of the log")

    def _fail(self, text: str) -> None:
        self.failures.add(text)
        self._advance()

    def _advance(self) -> None:
        before, self._entry, self._is_inside = self._entry, self._next, False
        self._slot += 1
        if self._entry is _END:
            self.due = _END[1]
            return
        self._next = next(self._entries, _END)
        self.due = self._entry[1]
        if before is not _END and (self._entry[0] <= before[0] or self._entry[1] <= before[1]):
            (offset, position), (last, at) = self._entry, before
            self.order.add(f"slot {self._slot} has {offset} at {position} after {last} at {at}")


class TimeMatching:
    """(timestamp, offset) entries against the batches at which the largest timestamp so far grows."""

    __slots__ = ("_entries", "_entry", "_last", "_slot", "failures", "largest", "order")

    def __init__(self, entries: Iterator[Entry]) -> None:
        self._entries = entries
        self._slot = 0
        self.failures = FaultTally()
        self.order = FaultTally()
        self.largest = NO_TIMESTAMP
        self._last = NO_TIMESTAMP
        self._entry = next(entries, _END)

    def visit(self, header: BatchHeader, position: int = 0) -> None:
        """The next batch of the log; one that does not raise `largest` need not be shown. Where it stands does not matter here:
        `position` is for those who show batches to either kind of matching."""
        if header.max_timestamp <= self.largest:
            return
        self.largest = header.max_timestamp
        while self._entry[0] <= self.largest:
            timestamp, offset = self._entry
            if timestamp != self.largest or offset != header.last_offset:
                found = f"the largest timestamp becomes {self.largest} at offset {header.last_offset}"
                self.failures.add(f"slot {self._slot} has timestamp {timestamp} at offset {offset}. {found}")
            self._advance()

    def finish(self) -> None:
        """All batches were shown."""
        while self._entry is not _END:
            timestamp, offset = self._entry
            found = f"the log's largest is {self.largest}"
            self.failures.add(f"slot {self._slot} has timestamp {timestamp} at offset {offset}. {found}")
            self._advance()

    @property
    def closing_failure(self) -> str | None:
        """None when the last entry has the largest timestamp; asked when all is finished."""
        if self._last == self.largest:
            return None
        return f"the last entry has timestamp {self._last}, the largest of the log is {self.largest}"

    def _advance(self) -> None:
        before = self._entry
        self._last = before[0]
        self._slot += 1
        self._entry = next(self._entries, _END)
        if self._entry is not _END and (self._entry[0] <= before[0] or self._entry[1] < before[1]):
            (timestamp, offset), (last, at) = self._entry, before
            self.order.add(f"slot {self._slot} has {timestamp} at {offset} after {last} at {at}")
