"""The columns of record batches as Arrow columns, and what a reader selects of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import attrs

from ...limits import INT64_MAX

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


TimestampUnit = Literal["us", "ms"]
"""Of the column timestamp: microseconds, as Spark has them, or milliseconds, which every record's timestamp fits into."""


def arrow_schema(columns: Sequence[str] = COLUMNS, timestamp_unit: TimestampUnit = "us") -> pa.Schema:
    """The schema of `columns`, in their order. ValueError for an unknown or repeated name."""
    import pyarrow as pa

    check_columns(columns)
    return pa.schema([(name, arrow_type(name, timestamp_unit)) for name in columns])


def arrow_type(column: str, timestamp_unit: TimestampUnit = "us") -> pa.DataType:
    """The type of one of COLUMNS."""
    import pyarrow as pa

    match column:
        case "key" | "value":
            return pa.binary()
        case "topic":
            return pa.string()
        case "partition" | "timestampType":
            return pa.int32()
        case "offset":
            return pa.int64()
        case "timestamp":
            return pa.timestamp(timestamp_unit, tz="UTC")
        case _:
            assert column == "headers", column
            return pa.list_(pa.field("element", header_type()))


def header_type() -> pa.DataType:
    """The type of one header."""
    import pyarrow as pa

    return pa.struct([("key", pa.string()), ("value", pa.binary())])


def check_columns(columns: Sequence[str]) -> None:
    """ValueError unless every name is one of COLUMNS and stands there once."""
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or len(set(columns)) != len(columns):
        raise ValueError(f"columns {', '.join(columns)}: expected each of {', '.join(COLUMNS)} at most once")


@attrs.frozen
class Wanted:
    """Wanted columns of a range of records. `low` is inclusive, `high` exclusive. ValueError for unknown or repeated columns.

    With a time bound (ms) the records with a timestamp from `start_timestamp` up to, exclusive, `end_timestamp` are meant, in
    whatever order those are; records without a timestamp are of no time then. Batches whose header says that no record is as
    late are not looked into.
    """

    topic: str
    partition: int
    columns: tuple[str, ...] = attrs.field()
    low: int = 0
    high: int = INT64_MAX
    check_crcs: bool = False
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    timestamp_unit: TimestampUnit = "us"

    @columns.validator
    def _check_columns(self, _: object, columns: tuple[str, ...]) -> None:
        check_columns(columns)

    @property
    def has_times(self) -> bool:
        """Return whether a bound on timestamps is set, too."""
        return self.start_timestamp is not None or self.end_timestamp is not None

    @property
    def least_timestamp(self) -> int:
        """The least that a record may have; only with a time bound."""
        return max(0, self.start_timestamp or 0)

    def holds_timestamp(self, timestamp: int) -> bool:
        """Return whether a record of this timestamp is wanted, with a time bound."""
        return self.least_timestamp <= timestamp and (self.end_timestamp is None or timestamp < self.end_timestamp)
