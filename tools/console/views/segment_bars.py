"""Segments as bars over time or offsets: of neighbours that are too many to be drawn one bar is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from ....protocol.limits import MAX_DESCRIBED_SEGMENTS
from ....protocol.native.messages import DescribedSegment, PartitionMetadata
from ....protocol.types import TopicPartition
from ...client.admin import Admin
from ..parameters import exact

NO_TIME: Final = -1
MAX_SEGMENTS: Final = 20_000
"""That are asked for of one topic."""


@attrs.frozen(kw_only=True)
class Bar:
    """The bar of a segment, or of `count` neighbours. Times are -1 where they are unknown or the segment is empty."""

    base_offset: int
    next_offset: int
    size_bytes: int
    least_timestamp: int
    max_timestamp: int
    is_active: bool = False
    is_compacted: bool = False
    is_guessed: bool = False
    """Whether `least_timestamp` is not the server's."""
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "base": exact(self.base_offset),
            "next": exact(self.next_offset),
            "size": self.size_bytes,
            "least": exact(self.least_timestamp),
            "max": exact(self.max_timestamp),
            "active": self.is_active,
            "compacted": self.is_compacted,
            "guessed": self.is_guessed,
            "count": self.count,
        }


async def bars_of(admin: Admin, topic: str, partitions: Sequence[int]) -> dict[int, list[Bar]]:
    """A bar for each segment, by partition; of MAX_SEGMENTS at most, the oldest of each partition that come first.

    What the server does not know of the least timestamp of a segment is taken from the one before it: mostly records come in
    the order of their times."""
    begin = {TopicPartition(topic, number): 0 for number in partitions}
    bars: dict[int, list[Bar]] = {number: [] for number in partitions}
    room = MAX_SEGMENTS
    while begin and room > 0:
        told = await admin.describe_segments(*begin, from_offsets=begin, max_segments=min(room, MAX_DESCRIBED_SEGMENTS))
        begin = {}
        for each in told:
            found = bars[each.partition]
            for segment in each.segments:
                found.append(_bar_of(segment, found[-1].max_timestamp if found else NO_TIME))
            room -= len(each.segments)
            if each.left_out:
                begin[TopicPartition(topic, each.partition)] = found[-1].next_offset if found else 0
    return bars


def _bar_of(segment: DescribedSegment, before: int) -> Bar:
    least, most = segment.least_timestamp, segment.max_timestamp
    is_known = least != NO_TIME
    return Bar(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        least_timestamp=least if is_known else min(before, most),
        max_timestamp=most,
        is_active=segment.is_active,
        is_compacted=segment.is_cleaned,
        is_guessed=not is_known and most != NO_TIME,
    )


def whole_partition(told: PartitionMetadata, least_timestamp: int, max_timestamp: int) -> list[Bar]:
    """Return one bar for a whole partition; no bar for an empty partition."""
    if told.high_watermark <= told.log_start_offset:
        return []
    bar = Bar(
        base_offset=told.log_start_offset,
        next_offset=told.high_watermark,
        size_bytes=told.size_bytes,
        least_timestamp=least_timestamp,
        max_timestamp=max_timestamp,
        is_active=True,
        count=max(1, told.segments),
    )
    return [bar]


def merged(bars: Sequence[Bar], most: int) -> list[Bar]:
    """At most so many: each of a run of neighbours. The active one stands alone."""
    if len(bars) <= most:
        return list(bars)
    closed, active = [each for each in bars if not each.is_active], [each for each in bars if each.is_active]
    run = -(-len(closed) // max(1, most - len(active)))
    return [*(_joined(closed[start : start + run]) for start in range(0, len(closed), run)), *active]


def _joined(bars: Sequence[Bar]) -> Bar:
    return Bar(
        base_offset=bars[0].base_offset,
        next_offset=bars[-1].next_offset,
        size_bytes=sum(each.size_bytes for each in bars),
        least_timestamp=min(_known(each.least_timestamp for each in bars), default=NO_TIME),
        max_timestamp=max((each.max_timestamp for each in bars), default=NO_TIME),
        is_compacted=all(each.is_compacted for each in bars),
        is_guessed=bars[0].is_guessed,
        count=sum(each.count for each in bars),
    )


def _known(times: Iterable[int]) -> Iterable[int]:
    return (each for each in times if each != NO_TIME)
