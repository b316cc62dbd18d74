"""Rows as the bytes of values: JSON objects, msgpack maps, Avro records.

JSON is put together column by column in Arrow; what Arrow writes otherwise than JSON has it (text with control characters,
lists, structs, bytes) is written cell by cell. Times are ISO 8601, bytes that are no text are not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from ..report import ArrowError

FORMATS: Final = ("json", "msgpack", "avro", "raw")
Encoder = Callable[[pa.RecordBatch], pa.Array]
"""Makes a binary column of rows. ValueError or TypeError for a cell that cannot be written."""


def encoder_of(value_format: str, schema: Any) -> Encoder:
    """ArrowError for an unknown format, or a schema that does not fit it."""
    if value_format not in FORMATS or value_format == "raw":
        raise ArrowError(f"format is {value_format!r}, expected {', '.join(FORMATS)}")
    if (value_format == "avro") is (schema is None):
        raise ArrowError(f"format={value_format!r} {'needs a schema' if schema is None else 'takes no schema'}")
    if value_format == "json":
        return json_rows
    return _msgpack_rows if value_format == "msgpack" else _avro_rows(schema)


def json_rows(rows: pa.RecordBatch) -> pa.Array:
    """An object for each row, with a field for each column, also for those that are null."""
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        parts += [
            ("," if number else "{") + json.dumps(name, ensure_ascii=False) + ":",
            pc.fill_null(_json_cells(column), "null"),
        ]
    if not parts:
        raise ValueError("no column to write")
    return pc.binary_join_element_wise(*parts, "}", "").cast(pa.binary())


def _json_cells(column: pa.Array) -> pa.Array:
    """As JSON, null where the cell is."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _json_cells(column.dictionary_decode())
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        wide = column.cast(pa.float64())
        return pc.if_else(pc.is_finite(wide), column.cast(pa.string()), pa.scalar(None, pa.string()))
    if pa.types.is_timestamp(kind):
        return _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T"))
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = column.cast(pa.string())
        if not pc.any(pc.match_substring_regex(text, r"[\x00-\x1f\"\\]")).as_py():
            return _quoted(text)
    return pa.array(
        [None if cell is None else json.dumps(cell, ensure_ascii=False, default=_plain) for cell in column.to_pylist()],
        pa.string(),
    )


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _plain(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return cell.decode()  # UnicodeDecodeError is a ValueError
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)


def _msgpack_rows(rows: pa.RecordBatch) -> pa.Array:
    pack = msgpack.Packer(datetime=True, default=_plain).pack
    return pa.array([pack(_with_zones(row)) for row in rows.to_pylist()], pa.binary())


def _with_zones(row: dict[str, Any]) -> dict[str, Any]:
    """Times without a zone as text: msgpack has none such."""
    return {name: cell.isoformat() if hasattr(cell, "tzinfo") and cell.tzinfo is None else cell for name, cell in row.items()}


def _avro_rows(schema: Any) -> Encoder:
    try:
        import fastavro
    except ImportError:
        raise ArrowError('format="avro" needs fastavro: pip install fastavro') from None
    try:
        parsed = fastavro.parse_schema(json.loads(schema) if isinstance(schema, str) else schema)
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as exc:
        raise ArrowError(f"schema is not an Avro schema: {exc}") from exc

    def encode(rows: pa.RecordBatch) -> pa.Array:
        cells = []
        for row in rows.to_pylist():
            file = BytesIO()
            fastavro.schemaless_writer(file, parsed, row)
            cells.append(file.getvalue())
        return pa.array(cells, pa.binary())

    return encode
