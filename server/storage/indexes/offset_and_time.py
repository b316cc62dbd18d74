"""The offset index: where in the log to start looking for an offset (Kafka: OffsetIndex; file suffix `.index`).

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

from struct import Struct
from typing import Final

from ....protocol.limits import INT32_MAX, INT64_MAX
from ....protocol.types import NO_TIMESTAMP, Bytes
from ..disk.diskops import Procedure
from ..errors import CorruptIndexError, InvalidOffsetError
from .index import AbstractIndex, IndexTail

OFFSET_ENTRY: Final = Struct(">ii")
_INT32: Final = Struct(">i")


class OffsetIndex(AbstractIndex):
    """KEY is the offset, VALUE the position. Offsets increase strictly."""

    entry_size = OFFSET_ENTRY.size
    key_struct = _INT32
    value_struct = _INT32
    value_position = 4
    __slots__ = ()

    def empty_tail(self) -> IndexTail:
        return IndexTail(0, self.base_offset, 0)

    def entry_behind_all(self) -> bytes:
        return OFFSET_ENTRY.pack(INT32_MAX, INT32_MAX)

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base offset when there is none."""
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
            raise ValueError(f"{self.path} is full: it has all of its {self.max_entries} entries; roll the segment")
        if tail.entries and offset <= tail.key:
            raise InvalidOffsetError(f"{self.path}: offset {offset} is not above the last one, {tail.key}")
        return IndexTail(tail.entries + 1, offset, position), OFFSET_ENTRY.pack(self.relative_offset(offset), position)

    def append(self, offset: int, position: int) -> Procedure[None]:
        """Append one entry; errors as `entry_after`."""
        yield from self.write_tail(*self.entry_after(self.tail, offset, position))

    def lookup_in(self, buffer: Bytes, entries: int, offset: int) -> tuple[int, int, int]:
        """(slot, offset, position) of the greatest entry <= `offset`; (-1, base offset, 0) when there is none."""
        slot, _ = self.search(buffer, entries, offset - self.base_offset)
        if slot < 0:
            return -1, self.base_offset, 0
        relative, position = OFFSET_ENTRY.unpack_from(buffer, slot * 8)
        return slot, self.base_offset + relative, position

    def lookup(self, offset: int) -> Procedure[tuple[int, int]]:
        """(offset, position) of the greatest entry <= `offset`; (base offset, 0) when there is none."""
        if not self.tail.entries:
            return self.base_offset, 0
        buffer = yield from self.mapped(self.tail.entries)
        return self.lookup_in(buffer, self.tail.entries, offset)[1:]

    def check_sanity(self, first: tuple[int, int]) -> None:
        if not self.can_follow(first) or self.tail.key < self.base_offset or self.tail.value < first[1]:
            raise CorruptIndexError(
                f"{self.path}: the last entry {self.tail[1:]} cannot follow the first one {first} "
                f"in a segment that starts at {self.base_offset}"
            )

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
    __slots__ = ()

    def empty_tail(self) -> IndexTail:
        return IndexTail(0, NO_TIMESTAMP, self.base_offset)

    def entry_behind_all(self) -> bytes:
        return TIME_ENTRY.pack(INT64_MAX, 0)

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
        """Return the new tail and the bytes that `maybe_append` would write, or the same tail and no bytes.

        A timestamp that is not above the last one is ignored; -1 into an empty index too.
        Raises ValueError when only the reserved slot is left (unless `skip_full_check`) or the timestamp went back,
        InvalidOffsetError when the offset went back, SegmentOffsetOverflowError when it does not fit.
        """
        if not skip_full_check and tail.entries >= self.max_entries - 1:
            raise ValueError(
                f"{self.path} is full: {tail.entries} of {self.max_entries} entries are taken, the last is reserved; "
                "roll the segment"
            )
        if tail.entries and offset < tail.value:
            raise InvalidOffsetError(f"{self.path}: offset {offset} is below the last one, {tail.value}")
        if tail.entries and timestamp < tail.key:
            raise ValueError(f"{self.path}: timestamp {timestamp} is below the last one, {tail.key}")
        if timestamp <= tail.key:
            return tail, b""
        entry = TIME_ENTRY.pack(timestamp, self.relative_offset(offset))
        return IndexTail(tail.entries + 1, timestamp, offset), entry

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> Procedure[None]:
        """Append one entry if it says something new; errors as `entry_after`."""
        yield from self.write_tail(*self.entry_after(self.tail, timestamp, offset, skip_full_check=skip_full_check))

    def lookup_in(self, buffer: Bytes, entries: int, timestamp: int) -> tuple[int, int, int]:
        """(slot, timestamp, offset) of the greatest entry <= `timestamp`; (-1, -1, base offset) when there is none."""
        slot, _ = self.search(buffer, entries, timestamp)
        if slot < 0:
            return -1, NO_TIMESTAMP, self.base_offset
        found, relative = TIME_ENTRY.unpack_from(buffer, slot * 12)
        return slot, found, self.base_offset + relative

    def check_sanity(self, first: tuple[int, int]) -> None:
        if not self.can_follow(first) or self.tail.value < max(self.base_offset, first[1]):
            raise CorruptIndexError(
                f"{self.path}: the last entry {self.tail[1:]} cannot follow the first one {first} "
                f"in a segment that starts at {self.base_offset}"
            )

    def _slots_below(self, buffer: Bytes, offset: int) -> int:
        lower, _ = self.search(buffer, self.tail.entries, offset - self.base_offset, by_value=True)
        while lower >= 0 and self.entry_at(buffer, lower)[1] >= offset:
            lower -= 1
        return lower + 1
