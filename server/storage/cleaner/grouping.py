"""Which neighbouring segments become one when they are cleaned (Kafka: Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.limits import INT32_MAX
from .job import SourceSegment


def group_segments(
    segments: Sequence[SourceSegment], end_offset: int, *, max_bytes: int, max_index_bytes: int
) -> list[list[SourceSegment]]:
    """Consecutive groups whose logs together have at most `max_bytes`, and whose indexes at most `max_index_bytes` each.

    No offset of a group lies more than 32 bits above its first base offset; where a segment ends is told by the next one's
    base offset, or `end_offset` for the last. Empty segments go with any group.
    """
    groups: list[list[SourceSegment]] = []
    totals = (0, 0, 0)
    for slot, segment in enumerate(segments):
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else end_offset
        grown = (totals[0] + segment.size, totals[1] + segment.index_bytes, totals[2] + segment.time_index_bytes)
        fits = grown[0] <= max_bytes and grown[1] <= max_index_bytes and grown[2] <= max_index_bytes
        if groups and fits and (not segment.size or following - 1 - groups[-1][0].base_offset <= INT32_MAX):
            groups[-1].append(segment)
            totals = grown
        else:
            groups.append([segment])
            totals = (segment.size, segment.index_bytes, segment.time_index_bytes)
    return groups
