"""The offset index: where in the log to start looking for an offset (Kafka: OffsetIndex; file suffix `.index`).

| byte | field | meaning |
|---|---|---|
| 0 | i32 big-endian relative offset | *last* offset of a batch, minus the segment's base offset |
| 4 | i32 big-endian position | where in the `.log` that batch *starts* |

Sparse: one entry for at least every `index.interval.bytes` of log; the first batch of a segment never has one. A reader
goes to the position of the greatest entry <= its offset and walks batches from there, the first of which may lie below it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ....protocol.limits import INT32_MAX
from ....protocol.types import Bytes
from ..disk.diskops import Procedure
from ..errors import CorruptIndexError, InvalidOffsetError
from .index import AbstractIndex, IndexTail

ENTRY: Final = Struct(">ii")
_INT32: Final = Struct(">i")


class OffsetIndex(AbstractIndex):
    """KEY is the offset, VALUE the position. Offsets increase strictly."""

    entry_size = ENTRY.size
    key_struct = _INT32
    value_struct = _INT32
    value_position = 4
    __slots__ = ()

    def empty_tail(self) -> IndexTail:
        return IndexTail(0, self.base_offset, 0)

    def entry_behind_all(self) -> bytes:
        return ENTRY.pack(INT32_MAX, INT32_MAX)

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base offset when there is none."""
        return self.tail.key

    def entry_at(self, buffer: Bytes, slot: int) -> tuple[int, int]:
        relative, position = ENTRY.unpack_from(buffer, slot * 8)
        return self.base_offset + relative, position

    def entry_after(self, tail: IndexTail, offset: int, position: int) -> tuple[IndexTail, bytes]:
        """What appending (offset, position) to `tail` gives: the new tail and the entry's bytes. Nothing changes here.

        Raises ValueError when the index is full, InvalidOffsetError when `offset` is not above the last one,
        SegmentOffsetOverflowError when it does not fit. The first entry may carry the base offset itself.
        """
        if tail.entries >= self.max_entries:
            raise ValueError(f"{self.path} is full: it has all of its {self.max_entries} entries; roll the segment")
        if tail.entries and offset <= tail.key:
            raise InvalidOffsetError(f"{self.path}: offset {offset} is not above the last one, {tail.key}")
        return IndexTail(tail.entries + 1, offset, position), ENTRY.pack(self.relative_offset(offset), position)

    def append(self, offset: int, position: int) -> Procedure[None]:
        """Append one entry; errors as `entry_after`."""
        yield from self.write_tail(*self.entry_after(self.tail, offset, position))

    def lookup_in(self, buffer: Bytes, entries: int, offset: int) -> tuple[int, int, int]:
        """(slot, offset, position) of the greatest entry <= `offset`; (-1, base offset, 0) when there is none."""
        slot, _ = self.search(buffer, entries, offset - self.base_offset)
        if slot < 0:
            return -1, self.base_offset, 0
        relative, position = ENTRY.unpack_from(buffer, slot * 8)
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
