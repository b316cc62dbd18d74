"""The map of a log's segments by base offset, with floor lookup (Kafka: LogSegments). Owner: the log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from .segment import LogSegment


class LogSegments:
    """Segments in ascending base offset; the last one is the active one."""

    __slots__ = ("_bases", "_segments", "active")

    active: LogSegment
    """The last one, while there is any."""

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._bases: list[int] = []
        self._segments: list[LogSegment] = []
        for segment in segments:
            self.add(segment)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __contains__(self, base_offset: int) -> bool:
        slot = bisect_left(self._bases, base_offset)
        return slot < len(self._bases) and self._bases[slot] == base_offset

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    def add(self, segment: LogSegment) -> LogSegment | None:
        """Put a segment in; answers the one of the same base offset that it replaced."""
        slot = bisect_left(self._bases, segment.base_offset)
        if slot < len(self._bases) and self._bases[slot] == segment.base_offset:
            replaced, self._segments[slot] = self._segments[slot], segment
            self.active = self._segments[-1]
            return replaced
        self._bases.insert(slot, segment.base_offset)
        self._segments.insert(slot, segment)
        self.active = self._segments[-1]
        return None

    def remove(self, segment: LogSegment) -> None:
        slot = bisect_left(self._bases, segment.base_offset)
        assert self._segments[slot] is segment
        del self._bases[slot], self._segments[slot]
        if self._segments:
            self.active = self._segments[-1]

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the greatest base offset <= `offset`."""
        slot = bisect_right(self._bases, offset) - 1
        return self._segments[slot] if slot >= 0 else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment with the least base offset > `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def higher_segments(self, offset: int) -> list[LogSegment]:
        """All segments with a base offset > `offset`, ascending."""
        return self._segments[bisect_right(self._bases, offset) :]

    def values(self, start: int, stop: int) -> list[LogSegment]:
        """The segments that overlap the offsets [start, stop): from the floor of `start` (or the first) on.

        Raises ValueError when `start` is above `stop`.
        """
        if start > stop:
            raise ValueError(f"the offsets [{start}, {stop}) are the wrong way round")
        if start == stop:
            return []
        low = max(0, bisect_right(self._bases, start) - 1)
        return self._segments[low : bisect_left(self._bases, stop)]

    @property
    def size_in_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)
