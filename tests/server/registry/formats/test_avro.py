"""Avro schemas: Java's text form, and the package's verdicts on pairs of schemas."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from triolog.server.registry.errors import InvalidSchemaError
from triolog.server.registry.formats.parsed import Dependency
from triolog.server.registry.formats.parsing import parse as parse_schema

from tests.support.registry_client import record

pytest.importorskip("avro", reason="the extra registry is not installed")

CANONICAL: Final = [
    ('{"type":"string"}', '"string"'),
    (' [ "null" , { "type" : "int" } ] ', '["null","int"]'),
    ('{"logicalType":"date","type":"int"}', '{"type":"int","logicalType":"date"}'),
    ('{"items":{"type":"long"},"type":"array","java-class":"x"}', '{"type":"array","items":"long","java-class":"x"}'),
    ('{"values":"int","type":"map"}', '{"type":"map","values":"int"}'),
    (
        '{"fields":[],"namespace":"a.b","aliases":["X"],"doc":"d","name":"R","type":"record","k":1}',
        '{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[],"k":1,"aliases":["X"]}',
    ),
    ('{"type":"record","name":"a.b.R","fields":[]}', '{"type":"record","name":"R","namespace":"a.b","fields":[]}'),
    (
        '{"type":"record","name":"a.R","fields":[{"default":null,"type":["null","a.R"],"name":"next","order":"ascending"}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"next","type":["null","R"],"default":null}]}',
    ),
    (
        '{"type":"record","name":"a.R","fields":[{"name":"e","type":{"type":"enum","namespace":"a","name":"E",'
        '"symbols":["x"],"default":"x"},"order":"ignore","p":1,"aliases":["f"],"doc":"d"}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["x"],'
        '"default":"x"},"doc":"d","order":"ignore","aliases":["f"],"p":1}]}',
    ),
    (
        '{"type":"record","name":"a.R","fields":[{"name":"f","type":{"type":"fixed","name":"b.F","size":2}},'
        '{"name":"g","type":"b.F"}]}',
        '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":{"type":"fixed","name":"F",'
        '"namespace":"b","size":2}},{"name":"g","type":"b.F"}]}',
    ),
]


def parse(schema: Any, *dependencies: Dependency) -> Any:
    return parse_schema("AVRO", schema if isinstance(schema, str) else json.dumps(schema), dependencies)


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_a_schema_is_written_as_java_writes_it(text: str, canonical: str) -> None:
    assert parse(text).canonical == canonical
    assert parse(canonical).canonical == canonical


def test_a_normalized_schema_has_its_properties_in_order() -> None:
    assert parse('{"type":"int","z":1,"a":2}').normalized() == '{"type":"int","a":2,"z":1}'


def test_an_unknown_logical_type_is_kept_and_has_no_effect() -> None:
    odd = parse('{"type":"string","logicalType":"haiku"}')
    assert odd.canonical == '{"type":"string","logicalType":"haiku"}'
    assert odd.incompatibilities(parse('"string"')) == []


UNION: Final = ["null", "int", record("R")]
READS: Final = [
    # reader, writer, whether it reads
    ("long", "int", True),
    ("int", "long", False),
    ("double", "float", True),
    ("float", "long", True),
    ("string", "bytes", True),
    ("bytes", "string", True),
    ("boolean", "int", False),
    (["int", "string"], "int", True),
    ("int", ["int", "string"], False),
    ("int", ["int"], True),
    (["null", "long"], ["int", "null"], True),
    (["null"], ["null", "int"], False),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, True),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, False),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, False),
    ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, False),
    ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 2}, True),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, {"type": "enum", "name": "E", "symbols": ["a"]}, True),
    ({"type": "enum", "name": "E", "symbols": ["a"]}, {"type": "enum", "name": "E", "symbols": ["a", "b"]}, False),
    (
        {"type": "enum", "name": "E", "symbols": ["a"], "default": "a"},
        {"type": "enum", "name": "E", "symbols": ["a", "b"]},
        True,
    ),
    (record("R", "a: int"), record("R", "a: int", "b: int"), True),
    (record("R", "a: int", "b: int"), record("R", "a: int"), False),
    (record("R", "a: int", {"name": "b", "type": ["null", "int"], "default": None}), record("R", "a: int"), True),
    (record("R", "a: long"), record("R", "a: int"), True),
    (record("R", "a: int"), record("R", "a: long"), False),
    (record("R", "a: int"), record("S", "a: int"), False),
    ({**record("R", "a: int"), "aliases": ["S"]}, record("S", "a: int"), True),
    (record("R", {"name": "b", "aliases": ["a"], "type": "int"}), record("R", "a: int"), True),
    (UNION, UNION, True),
    (
        record("R", {"name": "next", "type": ["null", "R"]}, {"name": "v", "type": "long"}),
        record("R", {"name": "next", "type": ["null", "R"]}, {"name": "v", "type": "int"}),
        True,
    ),
    (
        record("R", {"name": "next", "type": ["null", "R"]}, {"name": "v", "type": "int"}),
        record("R", {"name": "next", "type": ["null", "R"]}, {"name": "v", "type": "long"}),
        False,
    ),
]


@pytest.mark.parametrize(("reader", "writer", "reads"), READS)
def test_a_reader_reads_a_writer_or_says_why_not(reader: Any, writer: Any, reads: bool) -> None:
    found = parse(json.dumps(reader)).incompatibilities(parse(json.dumps(writer)))
    assert (found == []) is reads, found


def test_types_come_from_references_in_any_depth() -> None:
    drink = Dependency("a.Drink", json.dumps(record("a.Drink", "name: string")))
    price = Dependency("a.Price", json.dumps(record("a.Price", "of: a.Drink")))
    order = record("a.Order", "price: a.Price", "drink: a.Drink")
    assert parse(order, drink, price).incompatibilities(parse(order, drink, price)) == []
    with pytest.raises(InvalidSchemaError, match=r"reference a\.Price"):
        parse(order, price)


def test_a_comparison_that_never_ends_counts_as_incompatible() -> None:
    """Unions of records whose fields are unions of the same records: the pairs of types are the square of their number."""
    names = [f"R{number}" for number in range(300)]
    union = [record(names[0], {"name": "f", "type": ["null"]}), *(record(each) for each in names[1:])]
    reader, writer = parse(union), parse([*union[1:], record("S")])
    assert "too large to compare" in reader.incompatibilities(writer)[0]


def test_schemas_that_the_package_does_not_compare_count_as_incompatible() -> None:
    error, text = parse({"type": "error", "name": "E", "fields": []}), parse({"type": "string"})
    for reader, writer in ((error, text), (text, error), (error, error)):
        assert reader.incompatibilities(writer) != []
