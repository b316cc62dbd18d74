"""What retention leaves in a log because somebody has not read it yet.

A hold says the first offset that is still needed; who needs it, and how far they are, others know. It reaches from there to the
end of the log, in whole segments, and keeps them from `retention.ms` and `retention.bytes` up to its bounds:

| bound | a segment is past it |
|---|---|
| `retention.hold.max.bytes` | without it, at least that much would still be held |
| `retention.hold.max.ms` | its largest timestamp is certain and older, strictly; one without timestamps never is |

Past a bound `disk.full.policy` decides: `drop-oldest` lets retention have the segment, `refuse` keeps it, and appends are to be
refused until the hold has moved on. A hold never takes anything that retention would keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ....protocol.limits import INT64_MAX
from ...config import DiskFullPolicy
from ..segments.segment import LogSegment
from .log import Log

NOTHING_HELD: Final = INT64_MAX
"""In place of the first offset that is needed."""


@attrs.frozen
class Lost:
    """Offsets that went though they were held."""

    first_offset: int
    end_offset: int
    size_bytes: int
    """Of the segments that held them; where others were in the same segment, their share by offsets."""

    @property
    def records(self) -> int:
        """Offsets: with markers of transactions, and what compaction had taken."""
        return self.end_offset - self.first_offset


def count_without_hold(log: Log, segments: Sequence[LogSegment], held_from: int, now_ms: int, *, by_time: bool = True) -> int:
    """How many of the oldest of these segments, which end with the active one, no hold keeps from retention."""
    count = count_read(log, segments, held_from)
    if log.config.disk_full_policy is DiskFullPolicy.DROP_OLDEST and count < len(segments):
        held_bytes = sum(segment.size for segment in segments[count:])
        while count < len(segments) and _is_past_bounds(log, segments[count], held_bytes, now_ms, by_time=by_time):
            held_bytes -= segments[count].size
            count += 1
    return count


def count_read(log: Log, segments: Sequence[LogSegment], held_from: int) -> int:
    """How many of the oldest segments lie wholly below the first offset that is needed."""
    if held_from >= log.log_end_offset:
        return len(segments)
    bases = [segment.base_offset for segment in segments]
    return sum(end <= held_from for end in bases[1:])


def is_past_bounds(log: Log, held_from: int, now_ms: int, *, by_time: bool = True) -> bool:
    """Whether the oldest segment is held, and past a bound of its hold."""
    segments = list(log.segments)
    return count_read(log, segments, held_from) == 0 and _is_past_bounds(
        log, segments[0], log.size_in_bytes, now_ms, by_time=by_time
    )


def lost_between(log: Log, start: int, end: int) -> Lost | None:
    """What goes with these offsets, of which the segments are still there; None: nothing."""
    if start >= end:
        return None
    segments = list(log.segments)
    bases = [*(segment.base_offset for segment in segments), log.log_end_offset]
    size = 0
    for segment, base, stop in zip(segments, bases, bases[1:], strict=False):
        offsets = min(stop, end) - max(base, start)
        if offsets > 0:
            size += segment.size * offsets // (stop - base)
    return Lost(start, end, size)


def _is_past_bounds(log: Log, segment: LogSegment, held_bytes: int, now_ms: int, *, by_time: bool) -> bool:
    most_bytes, most_ms = log.config.retention_hold_max_bytes, log.config.retention_hold_max_ms
    if most_bytes >= 0 and held_bytes - segment.size >= most_bytes:
        return True
    is_known = segment.max_timestamp >= 0 and segment.is_max_timestamp_certain
    return by_time and is_known and 0 <= most_ms < now_ms - segment.max_timestamp
