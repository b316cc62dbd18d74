"""The columns that a record becomes, in Spark's Kafka source's names and order, and their exact Arrow types.

Spark compares a reader's first batch with its schema by name, order, type and nullability, so nothing here may vary.

| column | type | |
|---|---|---|
| key, value | binary | null as in the record |
| topic | string | |
| partition | int32 | |
| offset | int64 | |
| timestamp | timestamp[us, tz=UTC], or of ms | the record's; -1, no timestamp, is the millisecond before the epoch |
| timestampType | int32 | 0 CreateTime, 1 LogAppendTime |
| headers | list<element: struct<key: string, value: binary>> | empty, not null, when there are none |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

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
        raise ValueError(f"columns {', '.join(columns)}: each is to be one of {', '.join(COLUMNS)}, and once")
