"""Segments as bars over time or offsets: of neighbours that are too many to be drawn one bar is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from ....protocol.native.messages import PartitionMetadata
from ...client.connection import Client
from ..parameters import exact

NO_TIME: Final = -1


@attrs.frozen(kw_only=True)
class Bar:
    """One segment, or `count` neighbours. Times are -1 where they are not known, or it is empty."""

    base_offset: int
    next_offset: int
    size_bytes: int
    least_timestamp: int
    max_timestamp: int
    is_active: bool = False
    is_compacted: bool = False
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
            "count": self.count,
        }


async def bars_of(client: Client, topic: str, partitions: Sequence[int]) -> dict[int, list[Bar]]:
    """A bar for each segment, by partition."""
    raise NotImplementedError


def whole_partition(told: PartitionMetadata, least_timestamp: int, max_timestamp: int) -> list[Bar]:
    """One bar for all of a partition; none for an empty one."""
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
        count=sum(each.count for each in bars),
    )


def _known(times: Iterable[int]) -> Iterable[int]:
    return (each for each in times if each != NO_TIME)
