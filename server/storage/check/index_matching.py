"""The entries of an `.index` or `.timeindex` file held against the batches of its log, both read once, in order.

An offset index entry is right when a batch starts at its position and, from there on and before the next entry's position, a
batch ends with its offset. (Kafka makes one entry for several batches that were appended together, so it need not be the same
batch; lookups are right all the same.) A time index entry is right when the largest timestamp so far becomes its timestamp in
the batch that ends with its offset. Files are read in pieces: an index of any size needs little memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from ....protocol.limits import INT32_MAX, KIB
from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_TIMESTAMP
from ..disk.filesystem import READ, FileSystem
from ..errors import FileTooLargeError
from ..indexes.index import AbstractIndex
from ..indexes.offset_and_time import TimeIndex
from .findings import FaultTally

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
                raise FileTooLargeError(f"{path} has {self.size} bytes; an index has at most {INT32_MAX}; move it away")
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
                self._fail(f"slot {self._slot} has offset {offset}; no batch from {indexed} on ends with it")
                continue
            self._advance()
            return

    def finish(self) -> None:
        """All batches were shown."""
        while self._entry is not _END:
            offset, indexed = self._entry
            self._fail(f"slot {self._slot} has offset {offset} at {indexed}, behind what the log holds")

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
            self.order.add(f"slot {self._slot} has {offset} at {position} behind {last} at {at}")


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
                self.failures.add(f"slot {self._slot} has timestamp {timestamp} at offset {offset}; {found}")
            self._advance()

    def finish(self) -> None:
        """All batches were shown."""
        while self._entry is not _END:
            timestamp, offset = self._entry
            found = f"the log's largest is {self.largest}"
            self.failures.add(f"slot {self._slot} has timestamp {timestamp} at offset {offset}; {found}")
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
            self.order.add(f"slot {self._slot} has {timestamp} at {offset} behind {last} at {at}")
