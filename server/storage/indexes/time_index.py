"""The time index: from which offset on a timestamp can occur (Kafka: TimeIndex; file suffix `.timeindex`).

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

from ....protocol.limits import INT64_MAX
from ....protocol.types import NO_TIMESTAMP, Bytes
from ..disk.diskops import Procedure
from ..errors import CorruptIndexError, InvalidOffsetError
from .index import AbstractIndex, IndexTail

ENTRY: Final = Struct(">qi")


class TimeIndex(AbstractIndex):
    """KEY is the timestamp, VALUE the offset."""

    entry_size = ENTRY.size
    key_struct = Struct(">q")
    value_struct = Struct(">i")
    value_position = 8
    __slots__ = ()

    def empty_tail(self) -> IndexTail:
        return IndexTail(0, NO_TIMESTAMP, self.base_offset)

    def entry_behind_all(self) -> bytes:
        return ENTRY.pack(INT64_MAX, 0)

    @property
    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) when there is none."""
        return self.tail.key, self.tail.value

    def entry_at(self, buffer: Bytes, slot: int) -> tuple[int, int]:
        timestamp, relative = ENTRY.unpack_from(buffer, slot * 12)
        return timestamp, self.base_offset + relative

    def entry_after(
        self, tail: IndexTail, timestamp: int, offset: int, *, skip_full_check: bool = False
    ) -> tuple[IndexTail, bytes]:
        """What `maybe_append` would do to `tail`: the new tail and the bytes to write, or the same tail and none.

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
        entry = ENTRY.pack(timestamp, self.relative_offset(offset))
        return IndexTail(tail.entries + 1, timestamp, offset), entry

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> Procedure[None]:
        """Append one entry if it says something new; errors as `entry_after`."""
        yield from self.write_tail(*self.entry_after(self.tail, timestamp, offset, skip_full_check=skip_full_check))

    def lookup_in(self, buffer: Bytes, entries: int, timestamp: int) -> tuple[int, int, int]:
        """(slot, timestamp, offset) of the greatest entry <= `timestamp`; (-1, -1, base offset) when there is none."""
        slot, _ = self.search(buffer, entries, timestamp)
        if slot < 0:
            return -1, NO_TIMESTAMP, self.base_offset
        found, relative = ENTRY.unpack_from(buffer, slot * 12)
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
