"""The bounds of a read: resolves `start` and `end` to offsets and times.

| bound | as `start` | as `end` |
|---|---|---|
| None | the first record | the end of the log when the read begins |
| int | this offset and those behind it, in every partition | offsets below it |
| mapping from partition, or (topic, partition), to offset | the same for these; others as None | the same |
| datetime with a zone | records with this timestamp or a later one | records with an earlier timestamp |

`start_timestamp` and `end_timestamp` are times in milliseconds since 1970, also inclusive and exclusive. A bound by offset and
one by time hold together; with one by time, records without a timestamp are left out. Where the records of
a log are not in the order of their times, all of the range come, by offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs

from ...protocol.limits import INT64_MAX
from ...protocol.types import TopicPartition
from .report import ArrowError

Offsets = Mapping[int, int] | Mapping[tuple[str, int], int]
Bound = int | datetime | Offsets | None
Time = int | datetime | None
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@attrs.frozen
class Bounds:
    """A range of offsets for each partition and a range of times for all."""

    start: int | Offsets | None
    end: int | Offsets | None
    start_timestamp: int | None
    end_timestamp: int | None

    @classmethod
    def of(cls, start: Bound, end: Bound, start_timestamp: Time, end_timestamp: Time) -> Bounds:
        """ArrowError for bounds that cannot be, and an end that lies before its start."""
        first, start_ms = _split("start", start, start_timestamp)
        last, end_ms = _split("end", end, end_timestamp)
        if start_ms is not None and end_ms is not None and end_ms < start_ms:
            raise ArrowError(f"the end, {time_text(end_ms)}, is before the start, {time_text(start_ms)}")
        if isinstance(first, int) and isinstance(last, int) and last < first:
            raise ArrowError(f"the end, offset {last}, is before the start, offset {first}")
        return cls(first, last, start_ms, end_ms)

    @property
    def has_times(self) -> bool:
        return self.start_timestamp is not None or self.end_timestamp is not None

    def of_partition(self, partition: TopicPartition) -> tuple[int, int]:
        """Offsets [low, high) that are asked for, not cut to what there is. ArrowError for an end before its start."""
        low = _of_partition(self.start, partition, 0)
        high = _of_partition(self.end, partition, INT64_MAX)
        if high < low:
            raise ArrowError(f"{partition}: the end, offset {high}, is before the start, offset {low}")
        return low, high

    def named(self) -> set[TopicPartition | int]:
        """Partitions that stand in a mapping."""
        found: set[TopicPartition | int] = set()
        for bound in (self.start, self.end):
            if isinstance(bound, Mapping):
                found.update(name if isinstance(name, int) else TopicPartition(*name) for name in bound)
        return found


def time_text(timestamp: int) -> str:
    """ISO 8601 in UTC, for messages; the number where no calendar reaches."""
    try:
        return (_EPOCH + timestamp * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{timestamp} ms"


def timestamp_of(name: str, time: datetime) -> int:
    """Milliseconds since 1970, rounded up: a record's time is one, so this says the same of all records."""
    if time.tzinfo is None:
        raise ArrowError(f"{name} is {time.isoformat()}, a time without a zone. Add one, as in {name}.replace(tzinfo=UTC)")
    return -((_EPOCH - time) // _MILLISECOND)


def _split(name: str, bound: Bound, timestamp: Time) -> tuple[int | Offsets | None, int | None]:
    """The bound by offset, and the one by time."""
    if isinstance(timestamp, datetime):
        timestamp = timestamp_of(f"{name}_timestamp", timestamp)
    if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp <= INT64_MAX):
        raise ArrowError(f"{name}_timestamp is {timestamp!r}, expected milliseconds since 1970 or a datetime with a zone")
    if isinstance(bound, datetime):
        if timestamp is not None:
            raise ArrowError(f"{name} is a time, and {name}_timestamp is also given. Give one of them")
        return None, max(0, timestamp_of(name, bound))
    if bound is None:
        return None, timestamp
    offsets = list(bound.values()) if isinstance(bound, Mapping) else [bound]
    if any(type(offset) is not int or not 0 <= offset <= INT64_MAX for offset in offsets):
        raise ArrowError(f"{name} is {bound!r}, expected an offset, offsets by partition or a datetime with a zone")
    return bound, timestamp


def _of_partition(bound: int | Offsets | None, partition: TopicPartition, otherwise: int) -> int:
    if bound is None:
        return otherwise
    if isinstance(bound, int):
        return bound
    by_name: Mapping[Any, int] = bound
    return by_name.get(tuple(partition), by_name.get(partition.partition, otherwise))
