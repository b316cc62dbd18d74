"""Values that become Python objects first, one at a time: msgpack and Avro. And text, which becomes nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa

from ..errors import ArrowError

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
        raise ValueError("there is no map among them")
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
        raise ValueError(f"this is {type(found).__name__}, no map")
    return found


class AvroParser:
    """Values as `schemaless_writer` writes them: no header, the schema is what the writer had."""

    how = "Avro of this schema"

    def __init__(self, schema: Any) -> None:
        try:
            import fastavro
        except ImportError:
            raise ArrowError('values="avro" needs fastavro: pip install fastavro') from None
        from .avro_types import arrow_type_of, without_logical_types

        try:
            plain = json.loads(schema) if isinstance(schema, str) else schema
            self._schema = fastavro.parse_schema(without_logical_types(plain))
        except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as exc:
            raise ArrowError(f"schema is no Avro schema: {exc}") from exc
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
