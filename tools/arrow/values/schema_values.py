"""Values that begin with the id of a schema: decoded by a registry to JSON, then parsed as JSON objects are."""

from __future__ import annotations

import json

import pyarrow as pa

from ...schemas.registry_values import RegistryValues, SchemaError
from ..report import ArrowError
from .json_values import JsonParser


class SchemaParser:
    """Objects with the fields of a struct; other fields are skipped, and missing ones are null."""

    how = "values of a schema in the registry with these fields"

    def __init__(self, registry: RegistryValues, parser: JsonParser) -> None:
        self._registry = registry
        self._parser = parser
        self.type = parser.type

    def narrowed(self, kind: pa.StructType) -> SchemaParser:
        """Return a parser that gives only these fields."""
        return SchemaParser(self._registry, JsonParser(kind))

    def parse(self, values: pa.Array) -> pa.Array:
        """A struct for each value. Raises ArrowError when a schema is unknown or the registry does not respond."""
        return self._parser.parse(_decoded(self._registry, values))


def decoded_sample(registry: RegistryValues, values: pa.Array) -> pa.Array:
    """Return the sampled values that are objects of a schema, as JSON. Raises ArrowError as `SchemaParser.parse` does."""
    found = []
    for value in values.to_pylist():
        try:
            found.append(_as_json(registry, value))
        except ValueError:
            continue
    return pa.array(found, pa.binary())


def _decoded(registry: RegistryValues, values: pa.Array) -> pa.Array:
    return pa.array([_as_json(registry, value) for value in values.to_pylist()], pa.binary())


def _as_json(registry: RegistryValues, value: bytes) -> bytes:
    try:
        return json.dumps(registry.decode(value), ensure_ascii=False).encode("utf-8", "surrogatepass")
    except SchemaError as exc:
        raise ArrowError(str(exc)) from exc
