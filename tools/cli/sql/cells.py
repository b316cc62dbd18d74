"""Cells of an answer as people and programs read them."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ..terminal.output import as_json_value, printable, shown


def cells(column: pa.Array) -> list[Any]:
    """The values of a column as Python has them; times that no calendar has are numbers."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def as_json(value: Any) -> Any:
    """Return the JSON form of a cell: bytes as their text or `{"base64": ...}`, times in ISO 8601."""
    if isinstance(value, bytes):
        return as_json_value(value)
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return _iso(value, "T")
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def as_text(value: Any) -> str:
    """Return the text that a table shows for a cell."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return shown(value)
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        return _iso(value, " ")
    if isinstance(value, (dict, list)):
        return printable(json.dumps(as_json(value), ensure_ascii=False))
    return printable(str(value))


def as_csv(value: Any) -> Any:
    """Return the CSV form of a cell; None is an empty field."""
    if isinstance(value, (dict, list)):
        return json.dumps(as_json(value), ensure_ascii=False)
    value = as_json(value)
    if isinstance(value, dict):
        return f"base64:{value['base64']}"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def _iso(value: datetime.datetime | datetime.date | datetime.time, between: str) -> str:
    """With as many digits of the second as there are, by threes."""
    text = value.isoformat().replace("T", between).replace("+00:00", "Z")
    micros = getattr(value, "microsecond", 0)
    return text.replace(f".{micros:06}", f".{micros // 1000:03}", 1) if micros and micros % 1000 == 0 else text
