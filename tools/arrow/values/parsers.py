"""The parser that is asked for, and its type: given, of the Avro schema, or what a sample of the values has in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ..errors import ArrowError
from .decoding import Parser
from .json_values import JsonParser, infer_json
from .object_values import AvroParser, MsgpackParser, TextParser, infer_msgpack

KINDS: Final = ("utf8", "json", "msgpack", "avro")

Sample = Callable[[], pa.Array]
"""Reads some values, none of them null."""


def parser_of(values: str, schema: Any, sample: Sample) -> Parser:
    """ArrowError for a kind of values that is unknown, a schema that does not fit, and a sample without a type."""
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
    kind = _inferred(values, sample()) if schema is None else _struct(schema)
    return JsonParser(kind) if values == "json" else MsgpackParser(kind)


def narrowed(parser: Parser, names: Sequence[str]) -> Parser:
    """Return a parser that gives only these fields."""
    kind = pa.struct([parser.type.field(name) for name in names])
    if isinstance(parser, JsonParser):
        return JsonParser(kind)
    parser.type = kind
    return parser


def _struct(schema: Any) -> pa.StructType:
    kind = pa.struct(list(schema)) if isinstance(schema, pa.Schema) else schema
    if not isinstance(kind, pa.StructType) or not kind.num_fields:
        raise ArrowError(f"schema is {schema!r}, expected a pyarrow.Schema or a struct type with a field at least")
    if len(set(kind.names)) < kind.num_fields:
        raise ArrowError(f"schema has fields {', '.join(kind.names)}, each is to be there once")
    return kind


def _inferred(values: str, sample: pa.Array) -> pa.StructType:
    advice = "give a schema"
    if not len(sample):
        raise ArrowError(f"there is no value to infer a schema from; {advice}")
    try:
        kind = infer_json(sample) if values == "json" else infer_msgpack(sample)
    except ValueError as exc:
        reason = " ".join(str(exc).split())
        raise ArrowError(f"{len(sample)} sampled values have no common schema as {values}: {reason}; {advice}") from exc
    if not kind.num_fields:
        raise ArrowError(f"{len(sample)} sampled values have no field; {advice}")
    return kind
