"""Derives the offsets, times and partitions for which a condition can hold.

DuckDB hands conditions on single columns to a scan as one Arrow expression. What it says of `offset`, `timestamp` and
`partition` is not read out of it: Arrow is asked whether it can be true where the offset is below a number, above one, and so
on, and answers no only when it is sure. The bounds are found by bisection, and each one that is used has had that answer. An
expression that Arrow does not see through leaves everything in; the rows are filtered by the whole expression afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from ...protocol.limits import INT64_MAX
from ...protocol.types import TimeRange, range_of

MAX_TIMESTAMP: Final = INT64_MAX // 1000
"""The last one that DuckDB has: it counts microseconds."""
_TYPES: Final = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}


@attrs.frozen(kw_only=True)
class Ranges:
    """Records outside of these are not asked for: offsets [low, high), times [start_timestamp, end_timestamp) in ms."""

    partitions: tuple[int, ...]
    low: int = 0
    high: int = INT64_MAX
    start_timestamp: int | None = None
    end_timestamp: int | None = None

    @property
    def times(self) -> TimeRange | None:
        """None where all times are meant."""
        return range_of(self.start_timestamp or None, self.end_timestamp)


def ranges_of(condition: pc.Expression | None, schema: pa.Schema, partitions: Sequence[int]) -> Ranges:
    """Return the ranges of `partitions` for which the condition can hold. `schema` has all columns that it may name."""
    everything = Ranges(partitions=tuple(partitions))
    if condition is None:
        return everything
    asking = _Asking(condition, schema)
    named = {name for name in _TYPES if name in str(condition)}
    if "partition" in named:
        everything = attrs.evolve(
            everything,
            partitions=tuple(
                each for each in partitions if asking.may_hold(_field("partition") == asking.value("partition", each))
            ),
        )
    if "offset" in named:
        low, high = asking.bounds("offset", INT64_MAX)
        everything = attrs.evolve(everything, low=low, high=INT64_MAX if high is None else high)
    # A range of times leaves out records without a time, which are null.
    if "timestamp" in named and not asking.may_hold(_field("timestamp").is_null()):
        start, end = asking.bounds("timestamp", MAX_TIMESTAMP)
        everything = attrs.evolve(everything, start_timestamp=start, end_timestamp=end)
    return everything


def _field(name: str) -> pc.Expression:
    return pc.field(name)


@attrs.frozen
class _Asking:
    """A condition, with the schema of its columns."""

    condition: pc.Expression
    schema: pa.Schema
    _format: Any = attrs.field(factory=pads.ParquetFileFormat)

    def may_hold(self, where: pc.Expression) -> bool:
        """False only when Arrow is sure that the condition holds for no row of which `where` is true."""
        nothing = pa.py_buffer(b"")
        fragment = self._format.make_fragment(nothing, partition_expression=where)
        there = pads.FileSystemDataset([fragment], self.schema, self._format)
        return any(True for _ in there.get_fragments(filter=self.condition))

    def value(self, name: str, number: int) -> pa.Scalar:
        """A number, or a time in ms, as the column has it."""
        if name == "timestamp":
            number *= 1000
        return pa.scalar(number, _TYPES[name])

    def bounds(self, name: str, top: int) -> tuple[int, int | None]:
        """The greatest number below which the condition holds nowhere, and the least one from which on it does not."""
        field = _field(name)
        low = _greatest(top, lambda number: not self.may_hold(field <= self.value(name, number - 1)))
        if low == top:
            return top, top
        down = _greatest(top - low, lambda number: not self.may_hold(field >= self.value(name, top - number)))
        return low, None if not down and self.may_hold(field >= self.value(name, top)) else top - down


def _greatest(top: int, holds: Callable[[int], bool]) -> int:
    """A number of [0, top] for which `holds`, the greatest if it does for all smaller ones; 0 without asking."""
    low, high = 0, top
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
