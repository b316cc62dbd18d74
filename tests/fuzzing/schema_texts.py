"""Texts of schemas, as clients register them. The first byte chooses the type, and a zero byte separates two schemas.

A text is a schema or ends in RegistryError, nothing else. The text that is stored is read as a schema with the same text. So is
the normalized one. Two schemas are compared without an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from triolog.server.registry.errors import RegistryError
from triolog.server.registry.formats.parsed import TYPES
from triolog.server.registry.formats.parsing import parse

from tests.fuzzing.target import BrokenInvariantError, Target, require
from tests.support.registry_client import record

AVRO, JSON, PROTOBUF = (TYPES.index(name) for name in ("AVRO", "JSON", "PROTOBUF"))


def feed(data: bytes) -> bool:
    if not data:
        return False
    kind, texts = TYPES[data[0] % len(TYPES)], [text.decode(errors="replace") for text in data[1:].split(b"\0", 1)]
    try:
        schemas = [parse(kind, text, ()) for text in texts]
    except RegistryError:
        return False
    except Exception as exc:
        raise BrokenInvariantError(f"{type(exc).__name__} instead of RegistryError for {data.hex()}") from exc
    try:
        for schema in schemas:
            stored = parse(kind, schema.canonical, ())
            require(stored.canonical == schema.canonical, f"the stored schema is read as another one: {data.hex()}")
            normal = parse(kind, schema.normalized(), ())
            require(normal.normalized() == schema.normalized(), f"a normalized schema has another normal form: {data.hex()}")
        for reader, writer in ((schemas[0], schemas[-1]), (schemas[-1], schemas[0])):
            reader.incompatibilities(writer)
    except BrokenInvariantError:
        raise
    except Exception as exc:
        raise BrokenInvariantError(f"{type(exc).__name__} for a schema that was read: {data.hex()}") from exc
    return True


def seeds() -> Iterator[bytes]:
    for kind, texts in TEXTS.items():
        for first, second in zip(texts, [*texts[1:], texts[0]], strict=True):
            yield bytes([kind]) + first.encode()
            yield bytes([kind]) + first.encode() + b"\0" + second.encode()


TEXTS: Final = {
    AVRO: [
        json.dumps(each)
        for each in (
            "int",
            ["null", "string"],
            {"type": "array", "items": {"type": "map", "values": "bytes"}},
            {"type": "enum", "name": "a.E", "symbols": ["A", "B"], "default": "A"},
            {"type": "fixed", "name": "F", "size": 2, "aliases": ["G"]},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"], "default": None}]},
            record("R", "next: int", {"name": "drink", "type": "string", "default": "water", "doc": "\u00e4"}),
        )
    ],
    JSON: [
        json.dumps(each)
        for each in (
            True,
            {},
            {"type": ["object", "null"], "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
            {"type": "object", "additionalProperties": {"multipleOf": 0.5}, "patternProperties": {"^a": False}},
            {"type": "array", "items": {"enum": [1, "b", None]}, "maxItems": 3, "uniqueItems": True},
            {"anyOf": [{"$ref": "#/definitions/n"}, {"const": 1.5}], "definitions": {"n": {"items": {"$ref": "#"}}}},
            {"oneOf": [{"type": "string", "pattern": "^a+$", "minLength": 1}, {"type": "null"}]},
        )
    ],
    PROTOBUF: [
        'syntax = "proto3"; package a.b; message Order { int32 table = 1; repeated string drinks = 2; }',
        'syntax = "proto2"; message M { required bytes a = 1; optional E e = 2 [default = B]; enum E { A = 0; B = 1; } }',
        'syntax = "proto3"; message M { oneof x { M m = 1; fixed64 f = 2; } map<string, M> all = 3; reserved 4, 7 to 9; }',
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message T { google.protobuf.Timestamp at = 1; } // end',
        'syntax = "proto3"; message M {} service S { rpc Call (M) returns (stream M); }',
    ],
}


TARGET: Final = Target(name="schemas", feed=feed, seeds=seeds, modules=("triolog.server.registry.formats",), max_bytes=1024)
