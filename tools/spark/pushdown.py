"""Filters that Spark hands to the reader: which offsets of which partitions they leave.

Taken over exactly are comparisons with constants of `topic` and `partition` (=, IN) and of `offset` (=, <, <=, >, >=, IN):
Spark does not look at them again. A lower bound of `timestamp` is a hint: no record before the first one at or after that time
can satisfy it, so reading begins there, and Spark filters what comes behind. An upper bound is none, because later records may
be older.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ...protocol.limits import INT64_MAX
from ...protocol.types import NO_OFFSET
from .broker import Broker, Question
from .options import ReadOptions
from .ranges import OffsetRange
from .reader import BatchReader, Times

PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""Loaded in the process that pushes filters, and nowhere else."""
MAX_OFFSETS: Final = 1000
"""An IN with more offsets than that is left to Spark: each of them would be a task."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp"})
_Span = tuple[int, int]


def reader(options: ReadOptions, columns: tuple[str, ...]) -> BatchReader:
    """A reader that takes filters where Spark has some to give.

    Spark refuses a reader with `pushFilters` when `spark.sql.python.filterPushdown.enabled` is false, its default; with it, and
    filters to push, it plans in a process of its own, which is how the switch can be seen.
    """
    return PushdownBatchReader(options, columns) if PLANNER in sys.modules else BatchReader(options, columns)


class PushdownBatchReader(BatchReader):
    """A batch reader that reads no more than its filters leave."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._taken = Taken()

    def pushFilters(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Take what can be taken; the others come back for Spark to apply."""
        return [each for each in filters if not self._taken.take(each)]

    def narrow(self, broker: Broker, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """See BatchReader: what the filters leave of the ranges."""
        return self._taken.narrow(broker, ranges)


class Taken:
    """What the filters taken so far leave; they are all to hold. Owner: the reader."""

    def __init__(self) -> None:
        self.min_timestamp: int | None = None
        self._topics: set[str] | None = None
        self._partitions: set[int] | None = None
        self._spans: list[_Span] = [(0, INT64_MAX)]

    def take(self, pushed: Filter) -> bool:
        """Whether Spark need not look at this filter again."""
        path: tuple[str, ...] = getattr(pushed, "attribute", ())
        column = path[0] if len(path) == 1 else None
        match column, pushed:
            case _, IsNotNull():
                return column in _NEVER_NULL
            case "topic", EqualTo() | EqualNullSafe() | In():
                values = _values(pushed, str)
                if values is None:
                    return False
                self._topics = values if self._topics is None else self._topics & values
            case "partition", EqualTo() | EqualNullSafe() | In():
                values = _values(pushed, int)
                if values is None:
                    return False
                self._partitions = values if self._partitions is None else self._partitions & values
            case "offset", _:
                return self._take_offset(pushed)
            case "timestamp", EqualTo() | EqualNullSafe() | GreaterThan() | GreaterThanOrEqual():
                self._hint(pushed.value)
                return False
            case _:
                return False
        return True

    def parts(self, range_: OffsetRange) -> list[OffsetRange]:
        """What is left of a range."""
        if self._topics is not None and range_.topic not in self._topics:
            return []
        if self._partitions is not None and range_.partition not in self._partitions:
            return []
        edges = [(max(low, range_.low), min(high, range_.high)) for low, high in self._spans]
        return [OffsetRange(range_.topic, range_.partition, low, high) for low, high in edges if low < high]

    def narrow(self, times: Times, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """What is left of some ranges; the lower bound of time is looked up in one request."""
        kept = [part for range_ in ranges for part in self.parts(range_)]
        if self.min_timestamp is None:
            return kept
        names = list(dict.fromkeys(part.name for part in kept))
        found = times.offsets_for_times([Question(name, self.min_timestamp) for name in names])
        firsts = dict(zip(names, found, strict=True))
        return [
            OffsetRange(part.topic, part.partition, max(part.low, firsts[part.name]), part.high)
            for part in kept
            if firsts[part.name] != NO_OFFSET and firsts[part.name] < part.high
        ]

    def _take_offset(self, pushed: Filter) -> bool:
        match pushed:
            case EqualTo() | EqualNullSafe() | In():
                values = _values(pushed, int)
                if values is None or len(values) > MAX_OFFSETS:
                    return False
                spans = _joined(sorted(values))
            case GreaterThan(value=int(value)):
                spans = [(value + 1, INT64_MAX)]
            case GreaterThanOrEqual(value=int(value)):
                spans = [(value, INT64_MAX)]
            case LessThan(value=int(value)):
                spans = [(0, value)]
            case LessThanOrEqual(value=int(value)):
                spans = [(0, value + 1)]
            case _:
                return False
        both = [(max(a, c), min(b, d)) for a, b in self._spans for c, d in spans]
        self._spans = sorted(span for span in both if span[0] < span[1])
        return True

    def _hint(self, value: Any) -> None:
        if isinstance(value, datetime) and value.tzinfo is not None:
            at = (value - _EPOCH) // timedelta(milliseconds=1)  # rounded down: a record at that millisecond may qualify
            if at >= 0:
                self.min_timestamp = at if self.min_timestamp is None else max(at, self.min_timestamp)


def _values(pushed: Any, kind: type) -> set[Any] | None:
    """The values of an equality or IN; None for a null among them or anything else that is no constant of this kind."""
    values = list(pushed.value) if isinstance(pushed, In) else [pushed.value]
    return set(values) if all(type(value) is kind for value in values) else None


def _joined(offsets: Sequence[int]) -> list[_Span]:
    """Neighbouring offsets as one span."""
    spans: list[_Span] = []
    for offset in offsets:
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    return spans
