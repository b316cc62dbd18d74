"""Keeps lower bounds of the timestamps after an offset, which the time index lacks. They are in memory only.

A segment is a row of stretches of offsets, and of each a bound is known that no timestamp of its records lies below. The log's
owner adds a stretch with every index entry, from what is known of batches that are appended. Of what was written before the log
was opened nothing is known: whoever wants to know looks once (`lookups.time_range`), and the stretch gets its bound then. Of
records without a timestamp it says nothing. A segment has about MOST_STRETCHES: where there would be more, neighbours become
one, and while there are not too many for that, none of which something is known and none of which nothing is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ....protocol.limits import INT64_MAX
from ....protocol.types import NO_TIMESTAMP

NOT_KNOWN: Final = -INT64_MAX - 1
"""Nobody has looked."""
ANYTHING: Final = NOT_KNOWN + 1
"""Somebody has, and could not read the records."""
NOTHING: Final = INT64_MAX
"""There is no record, or none with a timestamp."""
MOST_STRETCHES: Final = 256
_NONE: Final = array("q")


def told(least: int) -> int:
    """A bound as others are told it: -1 where it is not known, or there is no timestamp."""
    return NO_TIMESTAMP if least < 0 or least == NOTHING else least


class Stretch(NamedTuple):
    """Offsets from `start` up to `end`, exclusive, and the bound of their timestamps."""

    start: int
    end: int
    least: int

    @property
    def is_known(self) -> bool:
        return self.least != NOT_KNOWN


class LeastTimestamps:
    """The stretches of one segment. Owner: the segment; readers that have looked tell it what they found."""

    __slots__ = ("_ends", "_leasts", "_merged", "_most", "_per_stretch", "since")

    since: int
    """The bound of what lies behind the last stretch."""

    def __init__(self) -> None:
        self._ends = self._leasts = _NONE  # most segments of most logs have no index entry
        self._most = MOST_STRETCHES
        self._per_stretch = 1
        self._merged = 0
        self.since = NOT_KNOWN

    def __len__(self) -> int:
        return len(self._ends) + 1

    @property
    def least(self) -> int:
        """The bound for the whole segment."""
        return min(self.since, min(self._leasts, default=NOTHING))

    def nothing_yet(self) -> None:
        """The segment is new and empty."""
        self.since = NOTHING

    def add(self, stretches: Iterable[tuple[int, int]]) -> None:
        """(end offset, bound) of what was appended."""
        if self._ends is _NONE:
            self._ends, self._leasts = array("q"), array("q")
        ends, leasts = self._ends, self._leasts
        for end, least in stretches:
            if 0 < self._merged < self._per_stretch and (leasts[-1] == NOT_KNOWN) == (least == NOT_KNOWN):
                ends[-1], leasts[-1] = end, min(leasts[-1], least)
                self._merged += 1
            else:
                ends.append(end)
                leasts.append(least)
                self._merged = 1
        if len(ends) > self._most:
            self._merge_neighbours()
            if len(self._ends) > 2 * MOST_STRETCHES:
                self._merge_neighbours(all_alike=True)
            self._most = max(MOST_STRETCHES, 2 * len(self._ends))

    def next_below(self, offset: int, timestamp: int) -> Stretch | None:
        """The first stretch with an offset >= `offset` in which there can be a timestamp below `timestamp`, with the known ones
        behind it of which that is as true; None for none. The last one ends at INT64_MAX."""
        ends, leasts = self._ends, self._leasts
        slot, count = bisect_right(ends, offset), len(ends)
        while slot < count and leasts[slot] >= timestamp:
            slot += 1
        if slot == count:
            if self.since >= timestamp:
                return None
            return Stretch(ends[-1] if count else 0, INT64_MAX, self.since)
        start, least = ends[slot - 1] if slot else 0, leasts[slot]
        behind = slot + 1
        if least != NOT_KNOWN:
            while behind < count and NOT_KNOWN < leasts[behind] < timestamp:
                behind += 1
            if behind == count and NOT_KNOWN < self.since < timestamp:
                return Stretch(start, INT64_MAX, least)
        return Stretch(start, ends[behind - 1], least)

    def learn(self, start: int, stretches: Sequence[tuple[int, int]]) -> None:
        """(end offset, bound) of what was found from `start` on."""
        if not stretches or start >= stretches[-1][0]:
            return
        before, behind = self._stretches_before(start), self._stretches_behind(stretches[-1][0])
        self._set([*before, *stretches, *behind])
        if len(self._ends) > 2 * MOST_STRETCHES:
            self._merge_neighbours()

    def before(self, offset: int) -> LeastTimestamps:
        """Return the bounds for the offsets below this one, where the log was truncated. Readers that still read above it
        report their bounds to this object and not to the returned one."""
        cut = LeastTimestamps()
        cut._set(self._stretches_before(offset))
        cut._per_stretch = self._per_stretch
        cut.since = min(self.since, min(self._leasts[bisect_right(self._ends, offset) :], default=NOTHING))
        return cut

    def take_over(self, replaced: Iterable[tuple[int, LeastTimestamps]]) -> None:
        """The segment has records of these ones, which follow each other, by base offset."""
        stretches: list[tuple[int, int]] = []
        before: LeastTimestamps | None = None
        for base_offset, each in replaced:
            if before is not None:
                stretches.append((base_offset, before.since))
            stretches += zip(each._ends, each._leasts, strict=True)
            before = each
        self._set(stretches)
        self.since = NOT_KNOWN if before is None else before.since
        while len(self._ends) > MOST_STRETCHES and self._merge_neighbours():
            """Half of them are left."""

    def _stretches_before(self, offset: int) -> list[tuple[int, int]]:
        slot = bisect_right(self._ends, offset)
        stretches = list(zip(self._ends[:slot], self._leasts[:slot], strict=True))
        if offset > (stretches[-1][0] if stretches else 0):
            stretches.append((offset, self._leasts[slot] if slot < len(self._ends) else self.since))
        return stretches

    def _stretches_behind(self, offset: int) -> list[tuple[int, int]]:
        slot = bisect_right(self._ends, offset)
        return list(zip(self._ends[slot:], self._leasts[slot:], strict=True))

    def _set(self, stretches: Sequence[tuple[int, int]]) -> None:
        self._ends = array("q", [end for end, _ in stretches])
        self._leasts = array("q", [least for _, least in stretches])
        self._merged = 0

    def _merge_neighbours(self, *, all_alike: bool = False) -> bool:
        """Make two of them one, but for what is known and what is not unless `all_alike`. False: nothing was to be merged."""
        merged: list[tuple[int, int]] = []
        is_single = False
        for end, least in zip(self._ends, self._leasts, strict=True):
            if is_single and (all_alike or (merged[-1][1] == NOT_KNOWN) == (least == NOT_KNOWN)):
                merged[-1] = end, min(merged[-1][1], least)
                is_single = False
            else:
                merged.append((end, least))
                is_single = True
        is_shorter = len(merged) < len(self._ends)
        self._set(merged)
        self._per_stretch *= 2
        return is_shorter
