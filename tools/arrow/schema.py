"""The columns of a read.

| column | type | |
|---|---|---|
| topic | string | |
| partition | int32 | |
| offset | int64 | |
| timestamp | timestamp[ms, tz=UTC] | -1, no timestamp, is the millisecond before 1970 |
| timestamp_type | int32 | 0 CreateTime, 1 LogAppendTime |
| key | binary | null as in the record |
| value | binary, or what `values` makes of it | null as in the record |
| headers | list<element: struct<key: string, value: binary>> | empty, not null, when there are none |

They are those of Spark's table (`protocol/records/columnar/schema`) but for the order, the unit of timestamp, and the name of
timestamp_type, which is timestampType there.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...protocol.records.columnar.schema import TimestampUnit, arrow_type
from .report import ArrowError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
UNIT: Final[TimestampUnit] = "ms"
_AS_DECODED: Final = {"timestamp_type": "timestampType"}


def decoded_name(column: str) -> str:
    """As the columnar decoder has it."""
    return _AS_DECODED.get(column, column)


def record_type(column: str) -> pa.DataType:
    """Of one of COLUMNS."""
    return arrow_type(decoded_name(column), UNIT)


def checked_columns(columns: Sequence[str] | None, there: Sequence[str]) -> tuple[str, ...]:
    """The columns that are asked for; ArrowError for one that is not `there`, is asked for twice, or none at all."""
    if columns is None:
        return tuple(there)
    if isinstance(columns, str):
        raise ArrowError(f"columns is {columns!r}, expected a list of names")
    for name in columns:
        if name not in there:
            near = difflib.get_close_matches(str(name), there, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Columns: {', '.join(there)}"
            raise ArrowError(f"unknown column {name}. {hint}")
    if not columns or len(set(columns)) != len(columns):
        raise ArrowError(f"columns are {', '.join(columns) or 'none'}. Name at least one, and each once")
    return tuple(columns)
