"""Values that become Python objects first, one at a time: msgpack and Avro, whose types become Arrow's. And text, which stays
text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa

from ..report import ArrowError

_REFUSALS: Final = (ValueError, TypeError, OverflowError, KeyError, IndexError, EOFError, RecursionError)
"""What the decoders and Arrow raise for values that are wrong; some of it is no ValueError."""


class TextParser:
    """UTF-8."""

    how = "UTF-8 text"
    type = pa.string()

    def parse(self, values: pa.Array) -> pa.Array:
        """The same bytes."""
        return values.cast(pa.string())


class MsgpackParser:
    """Maps with the fields of a struct; other fields are passed over, those that are missing are null."""

    how = "msgpack maps of this schema"

    def __init__(self, kind: pa.StructType) -> None:
        self.type = kind

    def parse(self, values: pa.Array) -> pa.Array:
        """A struct for each map."""
        try:
            return pa.array([_unpacked(value) for value in values.to_pylist()], self.type)
        except _REFUSALS as exc:
            raise ValueError(str(exc) or type(exc).__name__) from exc


def infer_msgpack(values: pa.Array) -> pa.StructType:
    """The type that a sample of maps has in common; what is none is left out. ValueError when there is nothing in common."""
    from .json_values import MAX_INFERRED_DEPTH, without_null

    maps = []
    for value in values.to_pylist():
        try:
            found = _unpacked(value)
        except _REFUSALS:
            continue
        if not _is_deeper(found, MAX_INFERRED_DEPTH):
            maps.append(found)
    try:
        kind = pa.array(maps).type
    except _REFUSALS as exc:
        raise ValueError(str(exc)) from exc
    if not pa.types.is_struct(kind):
        raise ValueError("none of them is a map")
    return without_null(kind)


def _is_deeper(found: Any, depth: int) -> bool:
    """Return whether a value nests deeper than `depth`, checked level by level."""
    level = [found]
    while level and depth >= 0:
        level = [child for each in level if isinstance(each, dict | list) for child in _children(each)]
        depth -= 1
    return bool(level)


def _children(each: dict[Any, Any] | list[Any]) -> Iterable[Any]:
    return each.values() if isinstance(each, dict) else each


def _unpacked(value: bytes) -> dict[str, Any]:
    found = msgpack.unpackb(value, timestamp=3, strict_map_key=False)
    if not isinstance(found, dict):
        raise ValueError(f"this is {type(found).__name__}, not a map")
    return found


class AvroParser:
    """Values as `schemaless_writer` writes them: no header, the schema is what the writer had."""

    how = "Avro of this schema"

    def __init__(self, schema: Any) -> None:
        try:
            import fastavro
        except ImportError:
            raise ArrowError('values="avro" needs fastavro: pip install fastavro') from None

        try:
            plain = json.loads(schema) if isinstance(schema, str) else schema
            self._schema = fastavro.parse_schema(without_logical_types(plain))
        except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as exc:
            raise ArrowError(f"schema is not an Avro schema: {exc}") from exc
        self.type = arrow_type_of(self._schema)
        if not pa.types.is_struct(self.type):
            raise ArrowError(f"the Avro schema is {self.type}, expected a record")
        self._read = fastavro.schemaless_reader

    def parse(self, values: pa.Array) -> pa.Array:
        """A struct for each record."""
        try:
            return pa.array([self._unpacked(value) for value in values.to_pylist()], self.type)
        except _REFUSALS as exc:
            raise ValueError(str(exc) or type(exc).__name__) from exc

    def _unpacked(self, value: bytes) -> Any:
        file = BytesIO(value)
        found = self._read(file, self._schema, None)
        if file.tell() != len(value):
            raise ValueError(f"it ends at byte {file.tell()} of {len(value)}")
        return found


_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def without_logical_types(schema: Any) -> Any:
    """Without those that Arrow has no type for, such as uuid: what lies below them is read."""
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    is_known = logical == "decimal" or (str(schema.get("type")), logical) in _LOGICAL
    return {
        name: without_logical_types(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or is_known
    }


def arrow_type_of(schema: Any) -> pa.DataType:
    """Of a schema that fastavro has parsed. ArrowError for what Arrow cannot hold."""
    return _type(schema, {}, ())


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise ArrowError(f"the Avro schema has a union of {len(kinds)} types at {'.'.join(inside)}. Arrow has no such type")
        return _type(kinds[0], named, inside)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema not in named:
            raise ArrowError(f"the Avro type {schema} holds itself, or is used before it is declared. Arrow has no such type")
        return named[schema]
    kind = schema["type"]
    if isinstance(kind, (list, dict)):
        return _type(kind, named, inside)
    if kind in ("record", "error"):
        fields = [pa.field(each["name"], _type(each["type"], named, (*inside, each["name"]))) for each in schema["fields"]]
        found: pa.DataType = pa.struct(fields)
    elif kind == "array":
        found = pa.list_(_type(schema["items"], named, inside))
    elif kind == "map":
        found = pa.map_(pa.string(), _type(schema["values"], named, inside))
    elif schema.get("logicalType") == "decimal":
        found = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif kind == "fixed":
        found = pa.binary(schema["size"])
    else:
        found = _LOGICAL.get((kind, schema.get("logicalType"))) or _type(kind, named, inside)
    if "name" in schema:
        named[schema["name"]] = found
    return found
