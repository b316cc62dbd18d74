"""The parser that is requested, its type (given, of the Avro schema, or what a sample of the values has in common), and a
column of values decoded at once.

All values of a batch are parsed together. Where that fails the batch is halved until the wrong value stands alone, so a value
is judged by the same parser whatever stands beside it, and a few bad ones cost little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa

from ..report import ArrowError
from .json_values import JsonParser, infer_json
from .object_values import AvroParser, MsgpackParser, TextParser, infer_msgpack

if TYPE_CHECKING:
    from ...schemas.registry_values import RegistryValues

KINDS: Final = ("utf8", "json", "msgpack", "avro", "registry")

Sample = Callable[[], pa.Array]
"""Reads some values, none of them null."""


def parser_of(values: str, schema: Any, sample: Sample, registry: RegistryValues | None = None) -> Parser:
    """ArrowError for a kind of values that is unknown, a schema that does not fit, and a sample without a type. `registry`
    decodes values of the kind of that name."""
    if values not in KINDS:
        raise ArrowError(f"values is {values!r}, expected {', '.join(KINDS)}")
    if values == "utf8":
        if schema is not None:
            raise ArrowError('values="utf8" takes no schema')
        return TextParser()
    if values == "avro":
        if schema is None:
            raise ArrowError('values="avro" needs the schema that the values were written with')
        return AvroParser(schema)
    if values == "registry":
        if registry is None:
            raise ArrowError('values="registry" needs the URL of a schema registry')
        from .schema_values import SchemaParser, decoded_sample  # with the packages of the extra

        if schema is not None:
            return SchemaParser(registry, JsonParser(_struct(schema)))
        return SchemaParser(registry, JsonParser(_inferred("json", decoded_sample(registry, sample()))))
    kind = _inferred(values, sample()) if schema is None else _struct(schema)
    return JsonParser(kind) if values == "json" else MsgpackParser(kind)


def narrowed(parser: Parser, names: Sequence[str]) -> Parser:
    """Return a parser that gives only these fields."""
    kind = pa.struct([parser.type.field(name) for name in names])
    if isinstance(parser, JsonParser):
        return JsonParser(kind)
    if (narrow := getattr(parser, "narrowed", None)) is not None:
        narrower: Parser = narrow(kind)
        return narrower
    parser.type = kind
    return parser


def _struct(schema: Any) -> pa.StructType:
    kind = pa.struct(list(schema)) if isinstance(schema, pa.Schema) else schema
    if not isinstance(kind, pa.StructType) or not kind.num_fields:
        raise ArrowError(f"schema is {schema!r}, expected a pyarrow.Schema or a struct type with at least one field")
    if len(set(kind.names)) < kind.num_fields:
        raise ArrowError(f"schema has fields {', '.join(kind.names)}, expected each only once")
    return kind


def _inferred(values: str, sample: pa.Array) -> pa.StructType:
    advice = "Give a schema"
    if not len(sample):
        raise ArrowError(f"no value to infer a schema from. {advice}")
    try:
        kind = infer_json(sample) if values == "json" else infer_msgpack(sample)
    except ValueError as exc:
        reason = " ".join(str(exc).split())
        raise ArrowError(f"{len(sample)} sampled values have no common schema as {values}: {reason}. {advice}") from exc
    if not kind.num_fields:
        raise ArrowError(f"{len(sample)} sampled values have no field. {advice}")
    return kind


MAX_REASON_CHARS: Final = 200
_OWN_ROW: Final = re.compile(r" in row 0$")


class Parser(Protocol):
    """Makes an array of values without nulls."""

    how: str
    """What the values are to be, in messages."""
    type: pa.DataType

    def parse(self, values: pa.Array) -> pa.Array:
        """A cell for each value. ValueError (ArrowInvalid is one) when one of them is wrong."""


class BadValue(NamedTuple):
    """A row that did not parse."""

    row: int
    reason: str


def decode_values(parser: Parser, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
    """The decoded column, with null for nulls and for what did not parse; and those rows, ascending."""
    rows = None
    if values.null_count:
        rows = values.is_valid()
        values = values.drop_null()
    parts: list[pa.Array] = []
    bad: list[BadValue] = []
    _parse(parser, values, 0, parts, bad)
    decoded = parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.nulls(0, parser.type)
    if rows is not None:
        places = rows.cast(pa.int64()).to_numpy(zero_copy_only=False).cumsum() - 1
        present = rows.to_numpy(zero_copy_only=False)
        decoded = decoded.take(pa.array(places, mask=~present))
        found = present.nonzero()[0]
        bad = [BadValue(int(found[each.row]), each.reason) for each in bad]
    return decoded, bad


def _parse(parser: Parser, values: pa.Array, first: int, parts: list[pa.Array], bad: list[BadValue]) -> None:
    if not len(values):
        return
    try:
        parts.append(parser.parse(values))
    except ValueError as exc:
        if len(values) == 1:
            parts.append(pa.nulls(1, parser.type))
            bad.append(BadValue(first, _in_one_line(exc)))
            return
        middle = len(values) // 2
        _parse(parser, values.slice(0, middle), first, parts, bad)
        _parse(parser, values.slice(middle), first + middle, parts, bad)


def _in_one_line(error: Exception) -> str:
    text = _OWN_ROW.sub("", " ".join(str(error).split()))
    return text if len(text) <= MAX_REASON_CHARS else f"{text[:MAX_REASON_CHARS]}..."
