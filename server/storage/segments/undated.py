"""Records of a log that were appended while the clock was not trusted: their timestamps do not say how old they are.

Time-based rules count their age from the moment at which the clock was trusted again, which lies after each of these appends.
So a record may live longer by the time that the clock was wrong, and never shorter.

A log has at most MAX_RANGES of them, ascending and disjoint. Where there are more, the two that are closest to each other
become one with the later date: the records between them live longer, too. `directory/clock_file` stores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ....protocol.limits import INT64_MAX
from .segment import LogSegment

MAX_RANGES: Final = 32
"""Of a log: 2 KB in the file."""


class UndatedRange(NamedTuple):
    """The offsets from `first_offset` to before `end_offset`. They were appended before `dated_ms`; INT64_MAX, for either,
    where the clock is not trusted yet."""

    first_offset: int
    end_offset: int = INT64_MAX
    dated_ms: int = INT64_MAX

    @property
    def is_open(self) -> bool:
        return self.dated_ms == INT64_MAX


Undated = tuple[UndatedRange, ...]


def dated_ms(undated: Undated, first_offset: int, end_offset: int) -> int:
    """Return the latest date of the ranges that overlap with these offsets; -1 without any, INT64_MAX where it is not known."""
    return max(
        (each.dated_ms for each in undated if each.first_offset < end_offset and first_offset < each.end_offset), default=-1
    )


def aged_timestamp(undated: Undated, segments: Sequence[LogSegment], number: int) -> int:
    """Return the time from which the age of the newest record of `segments[number]` counts: its largest timestamp, or the later
    date of undated records in it. -1: it has neither. INT64_MAX: it has no age yet."""
    segment = segments[number]
    if not undated:
        return segment.max_timestamp
    end_offset = segments[number + 1].base_offset if number + 1 < len(segments) else INT64_MAX
    return max(segment.max_timestamp, dated_ms(undated, segment.base_offset, end_offset))


def opened(undated: Undated, first_offset: int) -> Undated:
    """The ranges with an open one from `first_offset` on. One that is open already, or a later one, begins earlier."""
    if undated and undated[-1].is_open:
        return undated
    return (*undated, UndatedRange(max(first_offset, undated[-1].end_offset if undated else 0)))


def closed(undated: Undated, end_offset: int, now_ms: int, log_start_offset: int) -> Undated:
    """The ranges with the open one ended at `end_offset`, and without those that have no records any more."""
    ended = [each._replace(end_offset=end_offset, dated_ms=now_ms) if each.is_open else each for each in undated]
    kept = [each for each in ended if each.first_offset < each.end_offset and log_start_offset < each.end_offset]
    while len(kept) > MAX_RANGES:
        gaps = [after.first_offset - before.end_offset for before, after in pairwise(kept)]
        at = gaps.index(min(gaps))
        before, after = kept[at : at + 2]
        kept[at : at + 2] = [UndatedRange(before.first_offset, after.end_offset, max(before.dated_ms, after.dated_ms))]
    return tuple(kept)
