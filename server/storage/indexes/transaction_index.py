"""Aborted transactions of a segment, `.txnindex` (KIP-98; Kafka: TransactionIndex, AbortedTxn).

| position | bytes | field |
|---:|---:|---|
| 0 | 2 | version, 0; Kafka looks at its first byte only |
| 2 | 8 | producer_id |
| 10 | 8 | first_offset of the transaction, which may lie in an earlier segment |
| 18 | 8 | last_offset: of the ABORT marker, which lies in this segment |
| 26 | 8 | last_stable_offset when the marker was written, this transaction not counted |

Entries follow each other in the order of their markers; there is no header and no file before the first entry. Commits leave no
entry. Readers keep the number of entries that were there when they looked: those never change.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from ....protocol.types import Bytes
from ..disk.diskops import FileHandle, FileSize, Procedure, Read, Sync, Truncate, Unlink
from ..errors import CorruptIndexError, SnapshotExpiredError

ENTRY_BYTES: Final = 34
LAST_ENTRIES: Final = 64
"""Read at first for a range of offsets: a reader at the end of a log needs no more, however long the index is."""
GROWTH: Final = 8
"""How many times as many are read next, where these begin too late."""
_ENTRY: Final = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """An entry of the transaction index. Offsets are inclusive, except `last_stable_offset`, which is an end."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(txn: AbortedTxn) -> bytes:
    return _ENTRY.pack(0, *txn)


def decode_entries(path: str, data: Bytes) -> list[AbortedTxn]:
    """All whole entries. Raises CorruptIndexError for a version above 0, as Kafka reads it."""
    return list(_iter_entries(path, data))


def _iter_entries(path: str, data: Bytes) -> Iterator[AbortedTxn]:
    for slot in range(len(data) // ENTRY_BYTES):
        version, *fields = _ENTRY.unpack_from(data, slot * ENTRY_BYTES)
        if version >> 8:
            raise CorruptIndexError(f"{path}: entry {slot} has version {version}, 0 is known")
        yield AbortedTxn(*fields)


class TransactionIndex:
    """A `.txnindex` file. Owner: the log's actor; readers use `file` and their own number of entries."""

    __slots__ = ("base_offset", "entries", "file", "last_offset")

    def __init__(self, path: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.file = FileHandle(path=path, writable=True, create_bytes=0)
        self.entries = 0
        self.last_offset: int | None = None
        """Of the last entry, None when that is not known: the next one is not checked then."""

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def size_in_bytes(self) -> int:
        return self.entries * ENTRY_BYTES

    def check_next(self, last_offset: int | None, txn: AbortedTxn) -> None:
        """Raises ValueError unless the marker lies behind the last entry's."""
        if last_offset is not None and txn.last_offset <= last_offset:
            raise ValueError(
                f"{self.path}: the marker at offset {txn.last_offset} is not after the last entry's at {last_offset}"
            )

    def take(self, entries: int, last_offset: int | None) -> None:
        """These many entries are in the file now. From the first one on the file is never made anew."""
        self.entries = entries
        self.last_offset = last_offset
        self.file.create_bytes = 0 if entries == 0 else None

    def load(self) -> Procedure[None]:
        """Take over what is in the file. Raises CorruptIndexError, also for a partial entry: an index is trimmed when its
        segment is closed, so the file was cut, and what is missing would mean that nothing was aborted."""
        size = yield FileSize(self.path)
        if not size:
            self.take(0, None)
            return
        if size % ENTRY_BYTES:
            raise CorruptIndexError(f"{self.path} has {size} bytes, not a multiple of an entry's {ENTRY_BYTES}")
        self.take(size // ENTRY_BYTES, None)
        last_offset = -1
        for txn in (yield from self.read_entries(self.entries)):
            if txn.last_offset < self.base_offset or txn.last_offset <= last_offset:
                raise CorruptIndexError(
                    f"{self.path}: the marker at offset {txn.last_offset} is before the base offset {self.base_offset} or "
                    f"not after the one at {last_offset}"
                )
            if txn.first_offset >= txn.last_offset:
                raise CorruptIndexError(
                    f"{self.path}: a transaction that starts at offset {txn.first_offset} cannot end with the marker at "
                    f"{txn.last_offset}"
                )
            last_offset = txn.last_offset
        self.last_offset = last_offset if self.entries else None

    def read_entries(self, entries: int) -> Procedure[list[AbortedTxn]]:
        """The first `entries` of them. Raises SnapshotExpiredError when the file has fewer: what is missing would mean that
        nothing was aborted."""
        return decode_entries(self.path, (yield from self._read(0, entries)))

    def read_reaching(self, offset: int, entries: int) -> Procedure[Iterator[AbortedTxn]]:
        """Those of the first `entries` whose marker is at `offset` or behind it, and maybe some before them, decoded as they
        are asked for. Raises SnapshotExpiredError."""
        count = min(entries, LAST_ENTRIES)
        while True:
            data = yield from self._read(entries - count, entries)
            if count == entries or next(_iter_entries(self.path, data)).last_offset < offset:
                return _iter_entries(self.path, data)
            count = min(entries, count * GROWTH)

    def _read(self, first: int, stop: int) -> Procedure[Bytes]:
        """The entries [first, stop)."""
        if first == stop:
            return b""
        start, size = first * ENTRY_BYTES, (stop - first) * ENTRY_BYTES
        data: Bytes = yield Read(self.file, start, size)
        if len(data) < size:
            raise SnapshotExpiredError(f"{self.path} has {start + len(data)} bytes, expected {start + size}")
        return data

    def trim(self) -> Procedure[None]:
        """Cut off what a failed append left behind the entries: a length is read as a number of entries later."""
        size = yield FileSize(self.path)
        if not size or size == self.size_in_bytes:
            return
        yield from self._cut()
        if not self.entries:
            yield Unlink(self.path)

    def content_check(self) -> Callable[[Bytes], None]:
        """A check that raises CorruptIndexError for bytes other than the entries there are now."""
        return functools.partial(self._check_content, self.entries, self.last_offset)

    def _check_content(self, entries: int, last_offset: int | None, content: Bytes) -> None:
        ends = [txn.last_offset for txn in decode_entries(self.path, content)]
        if (
            len(ends) != entries
            or any(two <= one for one, two in itertools.pairwise(ends))
            or last_offset not in (None, *ends[-1:])
        ):
            raise CorruptIndexError(
                f"{self.path}: its last markers are {ends[-3:]}, but {entries} up to {last_offset} were written"
            )

    def truncate_to(self, offset: int) -> Procedure[None]:
        """Drop the entries of markers at or behind `offset`."""
        kept = [txn for txn in (yield from self.read_entries(self.entries)) if txn.last_offset < offset]
        if len(kept) < self.entries:
            self.entries = len(kept)
            self.last_offset = kept[-1].last_offset if kept else None
            yield from self._cut()

    def _cut(self) -> Procedure[None]:
        """On the device before anything else: entries that came back would hide what is stored at their offsets next."""
        yield Truncate(self.file, self.size_in_bytes)
        yield Sync(self.file)


def collect_aborted(entries: Iterable[AbortedTxn], fetch_offset: int, upper_bound: int, found: list[AbortedTxn]) -> bool:
    """Add to `found` what matters to a reader of the offsets [fetch_offset, upper_bound).

    Answers whether later segments cannot add to it: a transaction that began after an entry's last stable offset cannot reach
    below it.
    """
    for txn in entries:
        if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
            found.append(txn)
        if txn.last_stable_offset >= upper_bound:
            return True
    return False
