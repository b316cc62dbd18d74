"""Avro's types as Arrow's. fastavro gives Python objects that these take."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from ..errors import ArrowError

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
            raise ArrowError(f"the Avro schema has a union of {len(kinds)} types at {'.'.join(inside)}; Arrow has no such type")
        return _type(kinds[0], named, inside)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _PLAIN[schema]
        if schema not in named:
            raise ArrowError(
                f"the Avro type {schema} holds itself, or is not declared before it is used; Arrow has no such type"
            )
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
