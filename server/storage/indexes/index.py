"""The common base of the offset index and the time index: sparse preallocated files of fixed-size entries (Kafka:
AbstractIndex).

A file holds entries one after the other, with no header and no checksum. It is preallocated sparse to `segment.index.bytes`
rounded down to whole entries, appended to with `pwrite`, looked up by binary search in a read-only map, and trimmed to its
entries on roll and close. An *existing* file counts as full: entries = length / entry size. So the zeros of a preallocated
file would be read as entries, and a file that was not trimmed is rebuilt from the log, whose derivative it is.

A map shows what is written to the file later, so a reader needs two things only: the map and the number of entries that
were there when it looked. Entries below that number never change: truncation puts a new file in the old one's place.

What a search finds is only as good as the entries before it, and no batch says whether those are right. So the content is
compared with the checksum that was noted when the segment was closed (`derived.json`), before the first lookup. An index that
fails is *distrusted*: its map is replaced by entries that no lookup finds, and the segment is looked through.

The offset index: where in the log to start looking for an offset (Kafka: OffsetIndex; file suffix `.index`).

| byte | field | meaning |
|---|---|---|
| 0 | i32 big-endian relative offset | *last* offset of a batch, minus the segment's base offset |
| 4 | i32 big-endian position | where in the `.log` that batch *starts* |

Sparse: one entry for at least every `index.interval.bytes` of log; the first batch of a segment never has one. A reader
goes to the position of the greatest entry <= its offset and walks batches from there, the first of which may lie below it.

The time index: from which offset on a timestamp can occur (Kafka: TimeIndex; file suffix `.timeindex`).

| byte | field | meaning |
|---|---|---|
| 0 | i64 big-endian timestamp, ms | the largest timestamp in the segment up to here |
| 8 | i32 big-endian relative offset | *last* offset of the first batch that carries it, minus the base offset |

Every record with a larger timestamp has that offset or a larger one. Timestamps increase strictly, offsets never decrease.
The last slot is reserved: roll and close put the segment's largest timestamp there.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from struct import Struct
from typing import ClassVar, Final, NamedTuple, Self

from ....protocol.limits import INT32_MAX, INT64_MAX, KIB
from ....protocol.records.batch import crc32c
from ....protocol.types import NO_TIMESTAMP, Bytes
from ..disk.diskops import Close, Compute, FileHandle, FileSize, Map, Procedure, Read, Truncate, Write, WriteFile
from ..errors import CorruptIndexError, InvalidOffsetError, SegmentOffsetOverflowError

LOGGER: Final = logging.getLogger(__name__)

WARM_BYTES: Final = 8192
"""Lookups cluster near the tail. A search confined to the last 8 KiB touches at most three 4 KiB pages, always the same
ones, which therefore stay in memory; a plain binary search walks cold pages whenever the index grows (Kafka: KAFKA-6432)."""


CHECKED_AT_ONCE_BYTES: Final = 64 * KIB
"""The checksum of so many is computed on the spot."""


class IndexTail(NamedTuple):
    """The number of entries, and the last entry (or its substitute in an empty index)."""

    entries: int
    key: int
    value: int


class KnownContent(NamedTuple):
    """Size and CRC-32C of an index file when its segment was closed."""

    size_bytes: int
    crc: int


class AbstractIndex:
    """An index file. Owner: the log's actor; readers use `path`, `buffer` and their own number of entries.

    A subclass defines the layout of an entry: `lookup` compares the KEY and returns the VALUE.
    """

    entry_size: ClassVar[int]
    key_struct: ClassVar[Struct]
    value_struct: ClassVar[Struct]
    value_position: ClassVar[int]
    """Where in an entry the VALUE starts."""
    behind_all: ClassVar[bytes]
    """An entry that no lookup finds, because all that is looked up lies before it."""

    __slots__ = (
        "base_offset",
        "buffer",
        "file",
        "is_distrusted",
        "is_doubted",
        "known_content",
        "max_index_bytes",
        "tail",
        "used",
    )

    def __init__(self, path: str, base_offset: int, max_index_bytes: int) -> None:
        size = max_index_bytes // self.entry_size * self.entry_size
        if size == 0:
            raise ValueError(f"segment.index.bytes={max_index_bytes} is below one entry of {self.entry_size} bytes")
        self.base_offset = base_offset
        self.max_index_bytes = size
        self.file = FileHandle(path=path, writable=True, create_bytes=size)
        self.tail = self.empty_tail()
        self.buffer: Bytes | None = None
        self.used = False
        self.is_doubted = False
        self.is_distrusted = False
        """Whether lookups do without the file: it is not what was written, or cannot accept an entry. The next clean stop
        deletes it, and the start after that rebuilds it."""
        self.known_content: KnownContent | None = None
        """What the file must begin with, until it was compared: before the first lookup."""

    def empty_tail(self) -> IndexTail:
        raise NotImplementedError

    def entry_at(self, buffer: Bytes, slot: int) -> tuple[int, int]:
        """The (absolute) pair in a slot that is known to exist."""
        raise NotImplementedError

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base offset when there is none."""
        raise NotImplementedError

    @property
    def entries(self) -> int:
        return self.tail.entries

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the entries, not of the file."""
        return self.tail.entries * self.entry_size

    @property
    def max_entries(self) -> int:
        return (self.file.create_bytes or 0) // self.entry_size

    def relative_offset(self, offset: int) -> int:
        relative = offset - self.base_offset
        if not 0 <= relative <= INT32_MAX:
            raise SegmentOffsetOverflowError(
                f"{self.path}: offset {offset} is {relative} above the base offset {self.base_offset}. 0 to "
                f"{INT32_MAX} can be stored"
            )
        return relative

    def doubt(self) -> None:
        """An entry leads to where it cannot: say so, once."""
        if not self.is_doubted:
            LOGGER.warning(
                "%s is damaged: an entry does not point to a matching batch. The segment is read without it, which "
                "is slower. Stop the server and run `triolog reindex` on the directory.",
                self.path,
            )
        self.is_doubted = True

    def distrust(self, why: str) -> None:
        """Do without the file from now on: lookups look through the segment from its start."""
        if not self.is_distrusted:
            LOGGER.warning(
                "%s is damaged: %s. The segment is read without it, which is slower. To rebuild the index, restart the server.",
                self.path,
                why,
            )
        self.is_distrusted = self.is_doubted = True
        self.buffer = None

    def search(self, buffer: Bytes, entries: int, target: int, *, by_value: bool = False) -> tuple[int, int]:
        """(lower, upper) slots: the greatest entry <= `target`, and the least entry >= `target`; -1 where there is none.

        Warm section first. An entry equal to the target answers itself for both, except slot 0, which is never probed:
        the upper slot is then 1, or -1 in an index of one entry (as Kafka's).
        """
        if entries == 0:
            return -1, -1
        size = self.entry_size
        at = self.value_position if by_value else 0
        unpack = (self.value_struct if by_value else self.key_struct).unpack_from
        first_hot = entries - 1 - WARM_BYTES // size
        if first_hot < 0:
            first_hot = 0
        if unpack(buffer, first_hot * size + at)[0] < target:
            low, high = first_hot, entries - 1
        elif unpack(buffer, at)[0] > target:
            return -1, 0
        else:
            low, high = 0, first_hot
        while low < high:
            middle = (low + high + 1) >> 1
            found = unpack(buffer, middle * size + at)[0]
            if found > target:
                high = middle - 1
            elif found < target:
                low = middle
            else:
                return middle, middle
        return low, (-1 if low == entries - 1 else low + 1)

    def shown(self, entries: int) -> Bytes | None:
        """Return the result of `mapped` where that needs no operation, else None."""
        self.used = True
        buffer = self.buffer
        return None if buffer is None or len(buffer) < entries * self.entry_size else buffer

    def mapped(self, entries: int) -> Procedure[Bytes]:
        """A map that shows at least `entries` (> 0) entries."""
        buffer = self.shown(entries)
        if buffer is None:
            file = self.file
            if not self.is_distrusted:
                buffer = yield Map(self, entries * self.entry_size)
                yield from self.compare(buffer)
            if self.is_distrusted:
                buffer = self.behind_all * entries
            if self.file is file and not file.is_released:
                # Otherwise the file was replaced or deleted meanwhile: what it gets from now on does not show in this map.
                self.buffer = buffer
        assert buffer is not None
        return buffer

    def compare(self, buffer: Bytes) -> Procedure[None]:
        """Compare the file's content with what is known of it, once. The index is distrusted if it is another one."""
        known = self.known_content
        if known is None:
            return
        crc = yield from checksum(memoryview(buffer)[: known.size_bytes])
        if crc == known.crc:
            self.known_content = None
        elif known is self.known_content:
            self.distrust(f"its first {known.size_bytes} bytes have CRC {crc:#010x}, {known.crc:#010x} was written")

    def entry(self, slot: int) -> Procedure[tuple[int, int]]:
        """The pair in `slot`. Raises ValueError outside of 0 to entries - 1."""
        if not 0 <= slot < self.tail.entries:
            raise ValueError(f"{self.path}: slot {slot} requested, the index has {self.tail.entries} entries")
        return self.entry_at((yield from self.mapped(self.tail.entries)), slot)

    @classmethod
    def load(cls, path: str, base_offset: int, max_index_bytes: int) -> Procedure[Self | None]:
        """The index in an existing file, which is taken to be full; None when there is no file.

        Raises CorruptIndexError when it contradicts itself (see `check_sanity`).
        """
        size = yield FileSize(path)
        if size is None:
            return None
        index = cls(path, base_offset, max_index_bytes)
        if size % cls.entry_size:
            raise CorruptIndexError(f"{path}: {size} bytes are not a whole number of {cls.entry_size}-byte entries")
        index.file.create_bytes = size
        entries = size // cls.entry_size
        if entries:
            reader = FileHandle(path=path)
            first = last = index.entry_at((yield Read(reader, 0, cls.entry_size)), 0)
            if entries > 1:
                last = index.entry_at((yield Read(reader, size - cls.entry_size, cls.entry_size)), 0)
            index.tail = IndexTail(entries, *last)
            index.check_sanity(first)
        return index

    def check_sanity(self, first: tuple[int, int]) -> None:
        """Raises CorruptIndexError when the last entry cannot follow the first one or lies below the base offset.

        It is the first one, or has a larger KEY. One that is the first again is what the zeros of a file look like that was not
        trimmed.
        """
        entries, key, value = self.tail
        follows = (key > first[0] or (entries == 1 and key == first[0])) and value >= first[1]
        if not follows or self.last_offset < self.base_offset:
            raise CorruptIndexError(
                f"{self.path}: the last entry {self.tail[1:]} cannot follow the first one {first} "
                f"in a segment that starts at {self.base_offset}"
            )

    def write_tail(self, tail: IndexTail, entries: bytes) -> Procedure[None]:
        """Append encoded entries that lead to `tail`, as `entry_after` answers them."""
        if entries:
            yield Write(self.file, self.size_in_bytes, [entries])
            self.tail = tail

    def trim(self) -> Procedure[None]:
        """Cut the preallocated rest off, so that the file's length says how many entries it has."""
        if self.file.create_bytes != self.size_in_bytes:
            yield Truncate(self.file, self.size_in_bytes)
            self.file.create_bytes = self.size_in_bytes

    def grow(self) -> None:
        """Let the file have its full size again from the next time it is opened for writing."""
        self.file.create_bytes = max(self.max_index_bytes, self.size_in_bytes)

    def content_check(self) -> Callable[[Bytes], None]:
        """A check that raises CorruptIndexError for bytes other than the entries there are now. A file only grows, so older
        bytes end in zeros, which neither follow an entry nor are the last one."""
        return functools.partial(self._check_content, self.tail)

    def _check_content(self, tail: IndexTail, content: Bytes) -> None:
        entries = len(content) // self.entry_size
        before = None
        for slot in range(entries):
            entry = self.entry_at(content, slot)
            if before is not None and (entry[0] <= before[0] or entry[1] < before[1]):
                raise CorruptIndexError(f"{self.path}: entry {slot} is {entry}, which cannot follow {before}")
            before = entry
        if entries != tail.entries or (before is not None and before != tail[1:]):
            raise CorruptIndexError(
                f"{self.path}: {entries} entries end with {before}, but {tail.entries} with {tail[1:]} were written"
            )

    def truncate_to(self, offset: int) -> Procedure[None]:
        """Drop every entry whose offset is >= `offset`, by putting a shorter file in place; readers keep the old one."""
        kept, tail = 0, self.empty_tail()
        content = b""
        if self.tail.entries:
            buffer = yield from self.mapped(self.tail.entries)
            kept = 0 if self.is_distrusted else self._slots_below(buffer, offset)
            content = bytes(buffer[: kept * self.entry_size])
            if kept:
                tail = IndexTail(kept, *self.entry_at(content, kept - 1))
        if kept == self.tail.entries:
            return
        yield from self.replace(tail, content)

    def replace(self, tail: IndexTail, content: bytes) -> Procedure[None]:
        """Put a new file with these entries in place of the old one; maps of the old one stay as they are."""
        yield WriteFile(self.path, content, durable=False)
        old, self.file = self.file, FileHandle(path=self.path, writable=True, create_bytes=len(content))
        if old.fd is not None:
            fd, old.fd = old.fd, None
            yield Close(fd)
        self.tail = tail
        self._is_new()

    def _is_new(self) -> None:
        self.buffer = self.known_content = None
        self.is_distrusted = self.is_doubted = False

    def take_empty_file(self) -> None:
        """The file is there and has no bytes."""
        self.tail = self.empty_tail()
        self._is_new()
        self.file.create_bytes = 0

    def _slots_below(self, buffer: Bytes, offset: int) -> int:
        raise NotImplementedError


def checksum(content: Bytes) -> Procedure[int]:
    """CRC-32C of an index, as an operation where it is large."""
    if len(content) <= CHECKED_AT_ONCE_BYTES:
        return crc32c(content)
    crc: int = yield Compute(crc32c, (content,))
    return crc


OFFSET_ENTRY: Final = Struct(">ii")
_INT32: Final = Struct(">i")


class OffsetIndex(AbstractIndex):
    """KEY is the offset, VALUE the position. Offsets increase strictly."""

    entry_size = OFFSET_ENTRY.size
    key_struct = _INT32
    value_struct = _INT32
    value_position = 4
    behind_all = OFFSET_ENTRY.pack(INT32_MAX, INT32_MAX)
    __slots__ = ()

    def empty_tail(self) -> IndexTail:
        return IndexTail(0, self.base_offset, 0)

    @property
    def last_offset(self) -> int:
        return self.tail.key

    def entry_at(self, buffer: Bytes, slot: int) -> tuple[int, int]:
        relative, position = OFFSET_ENTRY.unpack_from(buffer, slot * 8)
        return self.base_offset + relative, position

    def entry_after(self, tail: IndexTail, offset: int, position: int) -> tuple[IndexTail, bytes]:
        """Return the new tail and the entry's bytes for (offset, position) appended to `tail`. Changes nothing.

        Raises ValueError when the index is full, InvalidOffsetError when `offset` is not above the last one,
        SegmentOffsetOverflowError when it does not fit. The first entry may carry the base offset itself.
        """
        if tail.entries >= self.max_entries:
            raise ValueError(f"{self.path} is full: it has all of its {self.max_entries} entries. Roll the segment")
        if tail.entries and offset <= tail.key:
            raise InvalidOffsetError(f"{self.path}: offset {offset} is not above the last one, {tail.key}")
        return IndexTail(tail.entries + 1, offset, position), OFFSET_ENTRY.pack(self.relative_offset(offset), position)

    def lookup_in(self, buffer: Bytes, entries: int, offset: int) -> tuple[int, int, int]:
        """(slot, offset, position) of the greatest entry <= `offset`; (-1, base offset, 0) when there is none."""
        slot, _ = self.search(buffer, entries, offset - self.base_offset)
        if slot < 0:
            return -1, self.base_offset, 0
        relative, position = OFFSET_ENTRY.unpack_from(buffer, slot * 8)
        return slot, self.base_offset + relative, position

    def _slots_below(self, buffer: Bytes, offset: int) -> int:
        lower, _ = self.search(buffer, self.tail.entries, offset - self.base_offset)
        if lower < 0:
            return 0
        return lower if self.entry_at(buffer, lower)[0] == offset else lower + 1


TIME_ENTRY: Final = Struct(">qi")


class TimeIndex(AbstractIndex):
    """KEY is the timestamp, VALUE the offset."""

    entry_size = TIME_ENTRY.size
    key_struct = Struct(">q")
    value_struct = Struct(">i")
    value_position = 8
    behind_all = TIME_ENTRY.pack(INT64_MAX, 0)
    __slots__ = ()

    def empty_tail(self) -> IndexTail:
        return IndexTail(0, NO_TIMESTAMP, self.base_offset)

    @property
    def last_offset(self) -> int:
        return self.tail.value

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) when there is none."""
        return self.tail.key, self.tail.value

    def entry_at(self, buffer: Bytes, slot: int) -> tuple[int, int]:
        timestamp, relative = TIME_ENTRY.unpack_from(buffer, slot * 12)
        return timestamp, self.base_offset + relative

    def entry_after(
        self, tail: IndexTail, timestamp: int, offset: int, *, skip_full_check: bool = False
    ) -> tuple[IndexTail, bytes]:
        """Return the new tail and the bytes of an entry that says something new, or the same tail and no bytes.

        A timestamp that is not above the last one is ignored; -1 into an empty index too.
        Raises ValueError when only the reserved slot is left (unless `skip_full_check`) or the timestamp went back,
        InvalidOffsetError when the offset went back, SegmentOffsetOverflowError when it does not fit.
        """
        if not skip_full_check and tail.entries >= self.max_entries - 1:
            raise ValueError(
                f"{self.path} is full: {tail.entries} of {self.max_entries} entries are used, the last is reserved. "
                "Roll the segment"
            )
        if tail.entries and offset < tail.value:
            raise InvalidOffsetError(f"{self.path}: offset {offset} is below the last one, {tail.value}")
        if tail.entries and timestamp < tail.key:
            raise ValueError(f"{self.path}: timestamp {timestamp} is below the last one, {tail.key}")
        if timestamp <= tail.key:
            return tail, b""
        entry = TIME_ENTRY.pack(timestamp, self.relative_offset(offset))
        return IndexTail(tail.entries + 1, timestamp, offset), entry

    def lookup_in(self, buffer: Bytes, entries: int, timestamp: int) -> tuple[int, int, int]:
        """(slot, timestamp, offset) of the greatest entry <= `timestamp`; (-1, -1, base offset) when there is none."""
        slot, _ = self.search(buffer, entries, timestamp)
        if slot < 0:
            return -1, NO_TIMESTAMP, self.base_offset
        found, relative = TIME_ENTRY.unpack_from(buffer, slot * 12)
        return slot, found, self.base_offset + relative

    def _slots_below(self, buffer: Bytes, offset: int) -> int:
        lower, _ = self.search(buffer, self.tail.entries, offset - self.base_offset, by_value=True)
        while lower >= 0 and self.entry_at(buffer, lower)[1] >= offset:
            lower -= 1
        return lower + 1
