"""Avro schemas. The package `avro` decides whether they are valid and compatible; the text form is Java's.

Confluent stores what Java's `Schema.toString` writes: members in a fixed order, primitive types as names, no white space.
Source: the Avro specification 1.12, Java's `org.apache.avro.Schema`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import avro.compatibility
import avro.errors
import avro.io
import avro.name
import avro.schema

from ..errors import InvalidSchemaError
from .parsed import MAX_COMPARISONS, Dependency, dump, read_schema_json

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = {"record": "fields", "error": "fields", "enum": "symbols", "fixed": "size"}
"""Named types, with the member that comes after name and doc."""
PARTS: Final = {"array": "items", "map": "values"}


@attrs.frozen
class AvroSchema:
    """See `Parsed`."""

    canonical: str
    _value: Any
    _schema: avro.schema.Schema

    @classmethod
    def parse(cls, text: str, dependencies: Sequence[Dependency]) -> AvroSchema:
        names = avro.name.Names()
        for each in dependencies:
            _make(read_schema_json(each.schema), names, each.name)
        value = read_schema_json(text)
        schema = _make(value, names, None)
        return cls(dump(_in_order(value, "", tuple)), value, schema)

    def normalized(self) -> str:
        return dump(_in_order(self._value, "", lambda members: tuple(sorted(members))))

    def incompatibilities(self, writer: AvroSchema) -> list[str]:
        try:
            result = _BoundedChecker().get_compatibility(self._schema, writer._schema)
        except _TooManyComparisonsError:
            return [f"the schemas are too large to compare: they have more than {MAX_COMPARISONS} pairs of types"]
        except avro.errors.AvroException as exc:  # it compares no type `error`
            return [f"the schemas cannot be compared: {exc}"]
        if result.compatibility is avro.compatibility.SchemaCompatibilityType.compatible:
            return []
        kinds = ", ".join(dict.fromkeys(each.name.upper() for each in result.incompatibilities))
        return [f"{kinds} at {', '.join(sorted(result.locations))}: {', '.join(sorted(result.messages))}"]

    def decode(self, data: bytes) -> Any:
        """Logical types are left as they are stored."""
        try:
            return avro.io.DatumReader(self._schema).read(avro.io.BinaryDecoder(io.BytesIO(data)))
        except (avro.errors.AvroException, struct.error, TypeError, IndexError, OverflowError, MemoryError) as exc:
            raise ValueError(f"the value is not one of its Avro schema: {exc!r}") from None


class _TooManyComparisonsError(Exception):
    """The limit on one comparison is reached."""


class _BoundedChecker(avro.compatibility.ReaderWriterCompatibilityChecker):  # type: ignore[misc] # its types are not read
    """The package's checker, which keeps every pair that it has compared."""

    def get_compatibility(self, *arguments: Any, **keywords: Any) -> avro.compatibility.SchemaCompatibilityResult:
        if len(self.memoize_map) >= MAX_COMPARISONS:
            raise _TooManyComparisonsError
        return super().get_compatibility(*arguments, **keywords)


def _make(value: Any, names: avro.name.Names, reference: str | None) -> avro.schema.Schema:
    """Raises InvalidSchemaError."""
    try:
        return avro.schema.make_avsc_object(_without_logical_types(value), names)
    except (avro.errors.AvroException, TypeError, ValueError, KeyError, AttributeError) as exc:
        where = "the schema" if reference is None else f"the reference {reference}"
        raise InvalidSchemaError(f"{where} is not an Avro schema: {exc}") from None


def _without_logical_types(value: Any) -> Any:
    """Logical types do not decide compatibility, and an unknown one is ignored, as the specification says."""
    if isinstance(value, list):
        return [_without_logical_types(each) for each in value]
    if isinstance(value, dict):
        return {
            name: each if name in ("default", "doc") else _without_logical_types(each)
            for name, each in value.items()
            if name != "logicalType"
        }
    return value


Members = Callable[[Sequence[str]], tuple[str, ...]]
"""Orders the members that the specification does not define."""


def _in_order(schema: Any, space: str, order: Members) -> Any:
    """Return a valid schema in Java's form. `space`: the namespace around it."""
    if isinstance(schema, str):
        return schema.removeprefix(f"{space}.") if space and schema.rpartition(".")[0] == space else schema
    if isinstance(schema, list):
        return [_in_order(each, space, order) for each in schema]
    kind = schema["type"]
    if kind in NAMED:
        return _named(kind, schema, space, order)
    if len(schema) == 1:
        return _in_order(kind, space, order)
    part = PARTS.get(kind)
    written = {"type": kind} if part is None else {"type": kind, part: _in_order(schema[part], space, order)}
    return written | _others(schema, written, order)


def _named(kind: str, schema: Mapping[str, Any], around: str, order: Members) -> dict[str, Any]:
    space, _, name = schema["name"].rpartition(".")
    named = schema.get("namespace")
    space = space or (around if named is None else named)
    written: dict[str, Any] = {"type": kind, "name": name}
    if space != around:
        written["namespace"] = space
    if schema.get("doc") is not None:
        written["doc"] = schema["doc"]
    content = NAMED[kind]
    written[content] = [_field(each, space, order) for each in schema[content]] if content == "fields" else schema[content]
    if kind == "enum" and "default" in schema:
        written["default"] = schema["default"]
    return written | _others(schema, (*written, "namespace", "aliases"), order) | _aliases(schema)


def _field(field: Mapping[str, Any], space: str, order: Members) -> dict[str, Any]:
    written = {"name": field["name"], "type": _in_order(field["type"], space, order)}
    written |= {name: field[name] for name in ("doc", "default") if name in field}
    if field.get("order", "ascending") != "ascending":
        written["order"] = field["order"]
    return written | _aliases(field) | _others(field, (*written, "order", "aliases"), order)


def _aliases(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"aliases": schema["aliases"]} if schema.get("aliases") else {}


def _others(schema: Mapping[str, Any], known: Mapping[str, Any] | Sequence[str], order: Members) -> dict[str, Any]:
    return {name: schema[name] for name in order([each for each in schema if each not in known])}
