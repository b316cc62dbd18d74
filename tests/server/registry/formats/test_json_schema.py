"""JSON Schema: what is registered, and which pairs are proved compatible. A proof is never wrong."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from triolog.server.registry.errors import InvalidSchemaError
from triolog.server.registry.formats.parsed import MAX_COMPARISONS, Dependency, Parsed
from triolog.server.registry.formats.parsing import parse

OPEN: Final = {"type": "object", "properties": {"table": {"type": "integer"}}}
CLOSED: Final = {**OPEN, "additionalProperties": False}
NULLABLE: Final = {"oneOf": [{"type": "null"}, {"type": "string"}]}
TREE: Final = {"type": "object", "properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}}}
WITH_DRINK: Final = {**OPEN, "properties": {**OPEN["properties"], "drink": {"type": "string"}}}
CLOSED_WITH_DRINK: Final = {**WITH_DRINK, "additionalProperties": False}


def schema(value: Any, **documents: Any) -> Parsed:
    dependencies = [Dependency(name, json.dumps(each)) for name, each in documents.items()]
    return parse("JSON", json.dumps(value), dependencies)


def reads(reader: Any, writer: Any) -> bool:
    return not schema(reader).incompatibilities(schema(writer))


def test_a_schema_is_stored_without_white_space_and_normalized_in_order_of_names() -> None:
    parsed = parse("JSON", ' { "type" : "object",\n "$id": "x" } ', [])
    assert parsed.canonical == '{"type":"object","$id":"x"}'
    assert parsed.normalized() == '{"$id":"x","type":"object"}'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("7", "#:"),
        ("null", "#:"),
        ('{"type":"strong"}', "#/type"),
        ('{"type":["string",7]}', "#/type"),
        ('{"type":true}', "#/type"),
        ('{"properties":{"a":{"type":null}}}', "#/properties/a/type"),
        ('{"properties":[]}', "#/properties"),
        ('{"properties":{"x":7}}', "#/properties/x"),
        ('{"items":[{"allOf":{}}]}', "#/items/0/allOf"),
        ('{"required":"x"}', "#/required"),
        ('{"required":[7]}', "#/required"),
        ('{"maxLength":"x"}', "#/maxLength"),
        ('{"enum":7}', "#/enum"),
        ('{"$ref":7}', "#/$ref"),
        ('{"$defs":{"x":{"not":7}}}', "#/$defs/x/not"),
        ("{", "not JSON"),
        ('{"const":1e999}', "1e999"),
    ],
)
def test_what_is_not_a_schema_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(InvalidSchemaError, match=place.replace("$", r"\$")):
        parse("JSON", text, [])


READS: Final = [
    # reader, writer, whether it is proved that the reader reads the writer
    (True, {"type": "string"}, True),
    ({}, False, True),
    (False, {}, False),
    ({"type": "number"}, {"type": "integer"}, True),
    ({"type": "integer"}, {"type": "number"}, False),
    ({"type": ["string", "null"]}, {"type": "string"}, True),
    ({"type": "string"}, {"type": ["string", "null"]}, False),
    ({"type": "string"}, {}, False),
    ({"type": "string"}, {"enum": ["a", "b"]}, True),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
    ({"enum": ["a"]}, {"const": "a"}, True),
    ({"const": "a"}, {"type": "string"}, False),
    ({"maxLength": 5}, {"maxLength": 5}, True),
    ({"maxLength": 5}, {"maxLength": 6}, False),
    ({"maxLength": 5}, {"type": "integer"}, True),
    ({"minLength": 5}, {"minLength": 6}, True),
    ({"minLength": 0}, {}, True),
    ({"minItems": 2}, {"minItems": 1}, False),
    ({"maximum": 5}, {"exclusiveMaximum": 5}, True),
    ({"exclusiveMaximum": 5}, {"maximum": 5}, False),
    ({"minimum": 0}, {}, False),
    ({"multipleOf": 0.1}, {"multipleOf": 0.3}, True),
    ({"multipleOf": 2}, {"multipleOf": 3}, False),
    ({"multipleOf": 1}, {"type": "integer"}, True),
    ({"uniqueItems": False}, {}, True),
    ({"uniqueItems": True}, {}, False),
    ({"pattern": "a"}, {"pattern": "a"}, True),
    ({"pattern": "a"}, {"pattern": "b"}, False),
    ({"format": "date"}, {}, False),
    ({}, {"format": "date"}, True),
    ({"title": "a", "description": "b", "default": 1, "examples": []}, {}, True),
    ({"required": ["a"]}, {"required": ["a", "b"]}, True),
    ({"required": ["a", "b"]}, {"required": ["a"]}, False),
    # Confluent's open and closed content models
    (WITH_DRINK, OPEN, False),
    (OPEN, WITH_DRINK, True),
    (CLOSED_WITH_DRINK, CLOSED, True),
    (CLOSED, CLOSED_WITH_DRINK, False),
    (OPEN, CLOSED, True),
    (CLOSED, OPEN, False),
    ({"additionalProperties": {"type": "number"}}, {"additionalProperties": {"type": "integer"}}, True),
    ({"properties": {"a": {"type": "number"}}}, {"additionalProperties": {"type": "integer"}}, True),
    ({"properties": {"a": {"type": "number"}}}, {"patternProperties": {"b": {"type": "integer"}}}, False),
    (
        {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        True,
    ),
    (
        {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        {"patternProperties": {"^b": {"type": "string"}}, "additionalProperties": False},
        False,
    ),
    ({"items": {"type": "number"}}, {"items": {"type": "integer"}}, True),
    ({"items": {"type": "integer"}}, {}, False),
    ({"prefixItems": [{"type": "integer"}]}, {"prefixItems": [{"type": "integer"}]}, True),
    ({"prefixItems": [{"type": "number"}]}, {"prefixItems": [{"type": "integer"}]}, False),
    (NULLABLE, {"type": "string"}, True),
    (NULLABLE, {"type": ["string", "null"]}, True),
    ({"type": "string"}, NULLABLE, False),
    ({"type": ["string", "null"]}, NULLABLE, True),
    ({"oneOf": [{"type": "null"}, {"type": "number"}]}, {"oneOf": [{"type": "null"}, {"type": "integer"}]}, True),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"type": "integer"}, False),
    ({"oneOf": [{"minimum": 1}, {"maximum": 0}]}, {"oneOf": [{"minimum": 1}, {"maximum": 0}]}, True),
    ({"anyOf": [{"type": "string"}, {"maximum": 5}]}, {"type": "integer", "maximum": 4}, True),
    ({"anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, False),
    ({"allOf": [{"maximum": 5}, {"type": "integer"}]}, {"type": "integer", "maximum": 5}, True),
    ({"type": "integer", "maximum": 5}, {"allOf": [{"maximum": 5}, {"type": "integer"}]}, True),
    ({"allOf": [{"maximum": 5}]}, {"type": "integer"}, False),
    ({"not": {"type": "string"}}, {"not": {"type": "string"}}, True),
    ({"not": {"type": "string"}}, {"type": "integer"}, False),
    ({"if": {"minimum": 1}, "then": {"maximum": 2}}, {"if": {"minimum": 1}, "then": {"maximum": 2}}, True),
    ({"if": {"minimum": 1}, "then": {"maximum": 2}}, {"if": {"minimum": 1}, "then": {"maximum": 1}}, False),
    ({"unevaluatedProperties": False}, {"unevaluatedProperties": False}, True),
    ({"unevaluatedProperties": False, "title": "x"}, {"unevaluatedProperties": False}, False),
    ({"dependentRequired": {"a": ["b"]}}, {"dependentRequired": {"a": ["c"]}}, False),
    # references
    (TREE, TREE, True),
    ({**TREE, "properties": {**TREE["properties"], "value": {"type": "number"}}}, TREE, True),
    (TREE, {**TREE, "properties": {**TREE["properties"], "value": {"type": "number"}}}, False),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, {"type": "string"}, True),
    ({"type": "string"}, {"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}}, True),
    ({"type": "string"}, {"$ref": "#/definitions/a", "definitions": {"a": {"type": "null"}}}, False),
    ({"maximum": 5}, {"$ref": "#/definitions/a", "maximum": 5, "definitions": {"a": {"type": "integer"}}}, False),
    ({"$ref": "#/missing"}, {"type": "string"}, False),
    ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, {"type": "integer"}, False),
    ({"allOf": [{"$ref": "#"}]}, {"type": "integer"}, False),
    ({"type": "string"}, {"allOf": [{"$ref": "#"}]}, False),
]


@pytest.mark.parametrize(("reader", "writer", "proved"), READS, ids=lambda value: json.dumps(value)[:50])
def test_the_table_of_rules(reader: Any, writer: Any, proved: bool) -> None:
    found = schema(reader).incompatibilities(schema(writer))
    assert (found == []) is proved, found
    assert all(each.startswith("#") for each in found)


def test_documents_of_references_are_followed() -> None:
    price = {"type": "object", "properties": {"cents": {"type": "integer"}}, "additionalProperties": False}
    order = {"type": "object", "properties": {"price": {"$ref": "price.json"}}, "additionalProperties": False}
    wider = {**price, "properties": {"cents": {"type": "number"}}}
    reader, writer = schema(order, **{"price.json": wider}), schema(order, **{"price.json": price})
    assert reader.incompatibilities(writer) == []
    assert writer.incompatibilities(reader) != []
    assert "not found" in schema(order).incompatibilities(writer)[0]


@pytest.mark.parametrize(
    "odd",
    [
        {"$ref": "#/default", "default": {"type": 5}},
        {"$ref": "#/default", "default": {"oneOf": 5}},
        {"$ref": "#/default", "default": {"properties": {"a": 1}}},
        {"$ref": "#/default", "default": {"$ref": 1}},
        {"$ref": "#/allOf/" + "9" * 5000, "allOf": [{}]},
    ],
)
def test_a_reference_to_a_place_without_a_schema_proves_nothing(odd: Any) -> None:
    plain = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert not reads(odd, plain)
    assert not reads(plain, odd)


def test_a_proof_without_end_counts_as_incompatible() -> None:
    def combined(levels: int, kind: str) -> Any:
        return {"anyOf": [combined(levels - 1, kind)] * 3} if levels else {"type": kind}

    found = schema(combined(6, "string")).incompatibilities(schema(combined(6, "integer")))
    assert str(MAX_COMPARISONS) in found[0]


SCHEMAS: Final = st.recursive(
    st.one_of(
        st.booleans(),
        st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["null", "integer", "number", "string", ["string", "null"], "array", "object"]),
                "enum": st.lists(st.sampled_from([None, 0, 1, 1.5, "", "a", True]), min_size=1, max_size=3),
                "maximum": st.integers(0, 2),
                "exclusiveMinimum": st.integers(0, 2),
                "maxLength": st.integers(0, 2),
                "minItems": st.integers(0, 2),
                "multipleOf": st.sampled_from([1, 2, 0.5]),
                "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
            },
        ),
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["array", "object", ["object", "null"]]),
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "additionalProperties": inner,
            "items": inner,
            "not": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=6,
)
DOCUMENTS: Final = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 3, 1.5, "", "a", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.merge
@given(SCHEMAS, SCHEMAS, st.lists(DOCUMENTS, max_size=20))
def test_a_document_of_the_writer_is_one_of_a_reader_that_was_proved(reader: Any, writer: Any, documents: list[Any]) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    if reads(reader, writer):
        for each in documents:
            assert validator(reader).is_valid(each) or not validator(writer).is_valid(each), each


@given(SCHEMAS)
def test_a_schema_reads_itself(value: Any) -> None:
    assume("false" not in json.dumps(value))  # nothing is valid there, which the rules do not look for
    assert reads(value, value)


def test_long_values_count_as_many_steps() -> None:
    """Choices, each with a long list of values of which only the last one says which part accepts it."""
    choices = schema({"anyOf": [{"enum": [*range(800), f"choice {number}"]} for number in range(30)]})
    assert str(MAX_COMPARISONS) in choices.incompatibilities(choices)[0]
