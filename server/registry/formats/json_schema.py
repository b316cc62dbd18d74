"""JSON Schema, drafts 4 to 2020-12: what is registered, and a proof that a reader accepts every document of a writer.

A reader is compatible if each of its keywords follows from the writer's schema, by the rules below. What the rules cannot prove
counts as incompatible, with the place of the keyword: so no pair is called compatible that is not.

| keyword of the reader | follows if the writer |
|---|---|
| `type`, `enum`, `const` | allows no other type or value |
| `maximum`, `maxLength`, `minItems`, ... | has the same bound or a tighter one |
| `multipleOf` | has a multiple of it |
| `required` | requires the same properties |
| `properties`, `additionalProperties` | guarantees the schema of each property that it allows |
| `items` | guarantees the schema of each item |
| `allOf`, `$ref` | guarantees every part |
| `anyOf`, and `oneOf` if its parts have no type in common | guarantees one of the parts |
| any other | has it with the same value |

An annotation has no effect. Source: JSON Schema Core and Validation, draft 2020-12.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import attrs

from ..errors import InvalidSchemaError
from .parsed import MAX_COMPARISONS, Dependency, dump, read_schema_json

ITEMS_PER_STEP: Final = 8
CHARS_PER_STEP: Final = 256
TYPE_NAMES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "id", "$comment", "$anchor", "$defs", "definitions", "$vocabulary"}
    | {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)
NUMBER, STRING, ARRAY, OBJECT = (
    frozenset({"number", "integer"}),
    frozenset({"string"}),
    frozenset({"array"}),
    frozenset({"object"}),
)
LARGEST: Final = {
    "maximum": NUMBER,
    "exclusiveMaximum": NUMBER,
    "maxLength": STRING,
    "maxItems": ARRAY,
    "maxProperties": OBJECT,
}
LEAST: Final = {"minimum": NUMBER, "exclusiveMinimum": NUMBER, "minLength": STRING, "minItems": ARRAY, "minProperties": OBJECT}
APPLIES_TO: Final = {
    **LARGEST,
    **LEAST,
    "multipleOf": NUMBER,
    "pattern": STRING,
    "uniqueItems": ARRAY,
    "items": ARRAY,
    "required": OBJECT,
    "properties": OBJECT,
    "patternProperties": OBJECT,
    "additionalProperties": OBJECT,
    "propertyNames": OBJECT,
}
"""Keywords that say nothing about values of other types."""
SCHEMAS: Final = ("additionalProperties", "propertyNames", "not", "if", "then", "else", "contains", "additionalItems")
SCHEMAS_BY_NAME: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SCHEMA_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
GROUPS: Final = (
    ("if", "then", "else"),
    ("contains", "minContains", "maxContains"),
    ("items", "prefixItems", "additionalItems"),
)
"""Keywords that have a meaning only together."""


class Place(NamedTuple):
    """A schema in a document, by which `$ref` is resolved."""

    schema: Any
    document: Any


@attrs.frozen
class JsonSchema:
    """See `Parsed`."""

    canonical: str
    _place: Place
    _documents: Mapping[str, Any]
    """The schemas of references, by the name with which `$ref` names them."""

    @classmethod
    def parse(cls, text: str, dependencies: Sequence[Dependency]) -> JsonSchema:
        value = read_schema_json(text)
        _check(value, "#")
        documents = {each.name: read_schema_json(each.schema) for each in dependencies}
        return cls(dump(value), Place(value, value), documents)

    def normalized(self) -> str:
        return dump(self._place.schema, sort_keys=True)

    def incompatibilities(self, writer: JsonSchema) -> list[str]:
        proof = _Proof(self._documents, writer._documents, dump(self._place.document) == dump(writer._place.document))
        try:
            return list(dict.fromkeys(proof.missing(self._place, writer._place, "#")))
        except (_TooManyStepsError, RecursionError):
            return [f"the schemas are too large to compare: the proof has more than {MAX_COMPARISONS} steps"]
        except (TypeError, ValueError, AttributeError, KeyError) as exc:  # `$ref` may name a place that was not checked
            return [f"cannot be decided, because a $ref names a place that has no schema ({type(exc).__name__})"]

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


# ---- the form of a schema ------------------------------------------------------------------------------------------------


def _check(schema: Any, path: str) -> None:
    """Raises InvalidSchemaError for what is not a schema, with its place."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidSchemaError(f"{path}: a JSON schema is an object, true or false")
    types = schema.get("type", [])
    for each in types if isinstance(types, list) else [types]:
        if not isinstance(each, str) or each not in TYPE_NAMES:
            raise InvalidSchemaError(f"{path}/type: {dump(each)[:40]} is not a type")
    for name in (*LARGEST, *LEAST, "multipleOf"):
        if (
            name in schema
            and not _is_number(schema[name])
            and not (name.startswith("exclusive") and schema[name] in (True, False))
        ):
            raise InvalidSchemaError(f"{path}/{name}: expected a number")
    if not _is_list_of_texts(schema.get("required", [])) and not isinstance(schema["required"], bool):
        raise InvalidSchemaError(f"{path}/required: expected a list of names")
    if not isinstance(schema.get("enum", []), list):
        raise InvalidSchemaError(f"{path}/enum: expected a list of values")
    if not isinstance(schema.get("$ref", ""), str):
        raise InvalidSchemaError(f"{path}/$ref: expected text")
    for where, part in _parts(schema, path):
        _check(part, where)


def _parts(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """The schemas in a schema, with their places. Raises InvalidSchemaError."""
    for name in SCHEMAS:
        if name in schema:
            yield f"{path}/{name}", schema[name]
    for name in SCHEMAS_BY_NAME:
        named = schema.get(name, {})
        if not isinstance(named, dict):
            raise InvalidSchemaError(f"{path}/{name}: expected an object")
        yield from ((f"{path}/{name}/{key}", each) for key, each in named.items())
    items = schema.get("items", [])
    for name in SCHEMA_LISTS:
        if not isinstance(schema.get(name, []), list):
            raise InvalidSchemaError(f"{path}/{name}: expected a list of schemas")
        yield from ((f"{path}/{name}/{number}", each) for number, each in enumerate(schema.get(name, [])))
    for number, each in enumerate(items if isinstance(items, list) else [items]):
        yield f"{path}/items/{number}", each


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


# ---- the proof -----------------------------------------------------------------------------------------------------------


class _TooManyStepsError(Exception):
    """The limit on one comparison is reached."""


@attrs.define(eq=False, repr=False)
class _Proof:
    """The search for a proof that all documents of the writer are documents of the reader.

    Below a property or an item a pair of schemas under way is assumed: documents are finite, so a schema that contains itself
    is proved as its parts are.
    """

    reader_documents: Mapping[str, Any]
    writer_documents: Mapping[str, Any]
    is_same_document: bool
    _steps: int = 0
    _depth: int = 0
    """Properties and items on the way to the present pair."""
    _assumed: dict[tuple[int, int], int] = attrs.field(factory=dict)
    """Pairs under way, by identity, with their depth."""
    _split: dict[int, tuple[Any, list[Any]]] = attrs.field(factory=dict)
    """By identity of a schema with several types, that schema, and one for each type."""

    def _count(self, steps: int) -> None:
        """Count work: a look at a pair of schemas is a step, and so are some characters or values that are compared."""
        self._steps += steps
        if self._steps > MAX_COMPARISONS:
            raise _TooManyStepsError

    def missing(self, reader: Place, writer: Place, path: str) -> list[str]:
        """Return the places of the reader's keywords that do not follow from the writer; empty if all do."""
        self._count(1)
        if reader.schema is True or writer.schema is False:
            return []
        if reader.schema is False:
            return [f"{path}: nothing is valid here"]
        pair = id(reader.schema), id(writer.schema)
        if pair in self._assumed:
            return [] if self._depth > self._assumed[pair] else [f"{path}: the schema is a part of itself"]
        self._assumed[pair] = self._depth
        try:
            keywords = [name for name in reader.schema if name not in ANNOTATIONS]
            return [said for name in keywords for said in self._missing_keyword(name, reader, writer, path)]
        finally:
            del self._assumed[pair]

    def _missing_below(self, reader: Place, writer: Place, path: str) -> list[str]:
        """`missing` of a property or an item."""
        self._depth += 1
        try:
            return self.missing(reader, writer, path)
        finally:
            self._depth -= 1

    def _missing_keyword(self, name: str, reader: Place, writer: Place, path: str) -> list[str]:
        """Prove a keyword by the writer's own keywords, by one part of its `allOf` or `$ref`, or by all parts of a choice."""
        if name == "$ref":
            target = _resolve(reader, self.reader_documents)
            if target is None:
                return [f"{path}/$ref: {reader.schema[name][:100]} is not found"]
            return self.missing(target, writer, path)
        if name == "allOf":
            parts = [reader._replace(schema=each) for each in reader.schema[name]]
            return [said for n, each in enumerate(parts) for said in self.missing(each, writer, f"{path}/allOf/{n}")]
        if writer.schema is True:
            writer = writer._replace(schema={})
        said = self._missing_by_own(name, reader, writer, path)
        if not said:
            return []
        for part in self._facts(writer):
            if not self._missing_keyword_of_part(name, reader, part, path):
                return []
        for choice in ("anyOf", "oneOf"):
            parts = (
                [writer._replace(schema=each) for each in writer.schema.get(choice, ())] if "$ref" not in writer.schema else []
            )
            if parts and not any(self._missing_keyword_of_part(name, reader, each, path) for each in parts):
                return []
        return said

    def _missing_keyword_of_part(self, name: str, reader: Place, part: Place, path: str) -> list[str]:
        self._count(1)
        pair = id(reader.schema.get(name)), id(part.schema)
        if part.schema is False:
            return []
        if pair in self._assumed:  # a schema that is a part of itself proves nothing
            return [path]
        self._assumed[pair] = self._depth
        try:
            return self._missing_keyword(name, reader, part, path)
        finally:
            del self._assumed[pair]

    def _facts(self, writer: Place) -> list[Place]:
        """Return schemas that each document of the writer satisfies."""
        if "$ref" in writer.schema:  # before draft 2019-09 keywords beside it have no effect
            target = _resolve(writer, self.writer_documents)
            return [] if target is None else [target]
        return [writer._replace(schema=each) for each in writer.schema.get("allOf", ())]

    def _missing_by_own(self, name: str, reader: Place, writer: Place, path: str) -> list[str]:
        own = {} if "$ref" in writer.schema else writer.schema
        types = _types(own)
        if name in APPLIES_TO and types is not None and not types & APPLIES_TO[name]:
            return []
        rule = RULES.get(name)
        value = reader.schema[name]
        self._count(len(value) // ITEMS_PER_STEP if isinstance(value, list | dict) else 0)
        if rule is not None:
            return rule(self, reader, writer._replace(schema=own), f"{path}/{name}")
        if name.startswith("unevaluated"):  # its meaning depends on all keywords beside it
            same = self.is_same_document and dump(reader.schema) == dump(own)
            return [] if same else [f"{path}/{name}: cannot be decided"]
        names = next((group for group in GROUPS if name in group), (name,))
        return [] if self._are_equal(names, reader.schema, own) else [f"{path}/{name}: the writer does not have it so"]

    def _are_equal(self, names: Sequence[str], reader: Mapping[str, Any], writer: Mapping[str, Any]) -> bool:
        """Return whether the keywords have the same values, and mean the same in both documents."""
        first, second = (dump({each: of[each] for each in names if each in of}, sort_keys=True) for of in (reader, writer))
        self._count((len(first) + len(second)) // CHARS_PER_STEP)
        is_plain = not any(word in first for word in ('"$ref"', '"$dynamicRef"', '"$recursiveRef"'))
        return first == second and (is_plain or self.is_same_document)

    # ---- objects and arrays ----------------------------------------------------------------------------------------------

    def properties(self, reader: Place, writer: Place, path: str) -> list[str]:
        return [
            said
            for name, schema in reader.schema["properties"].items()
            for said in self._missing_below(
                reader._replace(schema=schema), writer._replace(schema=_property(writer.schema, name)), f"{path}/{name}"
            )
        ]

    def additional_properties(self, reader: Place, writer: Place, path: str) -> list[str]:
        wanted = reader._replace(schema=reader.schema["additionalProperties"])
        known = reader.schema.get("properties", {})
        others = [each for each in writer.schema.get("properties", {}).items() if each[0] not in known]
        others += writer.schema.get("patternProperties", {}).items()
        others.append(("*", writer.schema.get("additionalProperties", True)))
        patterns = reader.schema.get("patternProperties")
        if patterns and dump(patterns) != dump(writer.schema.get("patternProperties", {})):
            return [f"{path}: cannot be decided, because patternProperties differ"]
        if patterns:
            others = [each for each in others if each[0] not in patterns]
        return [
            said
            for name, schema in others
            for said in self._missing_below(wanted, writer._replace(schema=schema), f"{path}/{name}")
        ]

    def items(self, reader: Place, writer: Place, path: str) -> list[str]:
        tuples = [of for of in (reader.schema, writer.schema) if isinstance(of.get("items"), list) or "prefixItems" in of]
        if tuples:
            same = self._are_equal(GROUPS[2], reader.schema, writer.schema)
            return [] if same else [f"{path}: cannot be decided, because items at fixed places differ"]
        wanted = reader._replace(schema=reader.schema["items"])
        return self._missing_below(wanted, writer._replace(schema=writer.schema.get("items", True)), path)

    # ---- choices ---------------------------------------------------------------------------------------------------------

    def any_of(self, reader: Place, writer: Place, path: str) -> list[str]:
        return self._one_of_parts("anyOf", reader, writer, path)

    def one_of(self, reader: Place, writer: Place, path: str) -> list[str]:
        parts = [_types(each) if isinstance(each, dict) else None for each in reader.schema["oneOf"]]
        seen: set[str] = set()
        for each in parts:
            if each is None or each & seen or (seen & NUMBER and each & NUMBER):
                same = self._are_equal(("oneOf",), reader.schema, writer.schema)
                return [] if same else [f"{path}: cannot be decided, because parts have types in common"]
            seen |= each
        return self._one_of_parts("oneOf", reader, writer, path)

    def _one_of_parts(self, name: str, reader: Place, writer: Place, path: str) -> list[str]:
        for each in self._alternatives(writer):
            parts = [reader._replace(schema=part) for part in reader.schema[name]]
            if not any(not self.missing(part, each, path) for part in parts):
                return [f"{path}: no part accepts everything of the writer"]
        return []

    def _alternatives(self, writer: Place) -> list[Place]:
        """Return schemas with one type each, which together allow what the writer's schema allows."""
        types = writer.schema.get("type")
        if not isinstance(types, list) or len(types) < 2:
            return [writer]
        _, found = self._split.setdefault(
            id(writer.schema), (writer.schema, [{**writer.schema, "type": each} for each in types])
        )
        return [writer._replace(schema=each) for each in found]


def _types(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the types that a schema allows by `type`, `enum` or `const`; None for all."""
    values, named = _values(schema), schema.get("type")
    types = None if named is None else frozenset([named] if isinstance(named, str) else named)
    if values is None:
        return types
    found = frozenset(_type_of(each) for each in values)
    return found if types is None else found & (types | {"integer"} if "number" in types else types)


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the only values that a schema allows; None without such a list."""
    if "const" in schema:
        return [schema["const"]]
    values: list[Any] | None = schema.get("enum")
    return values


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _property(schema: Mapping[str, Any], name: str) -> Any:
    """Return a schema that the property satisfies in each document of the writer."""
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    return True if schema.get("patternProperties") else schema.get("additionalProperties", True)


def _resolve(place: Place, documents: Mapping[str, Any]) -> Place | None:
    """Return the schema that a `$ref` names: a place in this document, or in a referenced one."""
    name, _, pointer = place.schema["$ref"].partition("#")
    document = documents.get(name) if name else place.document
    if document is None and name:
        own = place.document if isinstance(place.document, dict) else {}
        document = place.document if name == own.get("$id", own.get("id")) else None
    if document is None or (pointer and not pointer.startswith("/")):
        return None
    target = document
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return Place(target, document) if isinstance(target, dict | bool) else None


# ---- rules ---------------------------------------------------------------------------------------------------------------

Rule = Callable[[_Proof, Place, Place, str], list[str]]


def _rule(name: str, follows: Callable[[Any, Mapping[str, Any]], bool], says: str) -> Rule:
    """Return a rule about one keyword: (its value in the reader, the writer's schema)."""

    def missing(_: _Proof, reader: Place, writer: Place, path: str) -> list[str]:
        value = reader.schema[name]
        return [] if follows(value, writer.schema) else [f"{path}: the writer {says} {json.dumps(value)[:100]}"]

    return missing


def _type_follows(wanted: Any, writer: Mapping[str, Any]) -> bool:
    types, allowed = _types(writer), frozenset([wanted] if isinstance(wanted, str) else wanted)
    return types is not None and types <= (allowed | {"integer"} if "number" in allowed else allowed)


def _values_follow(wanted: Sequence[Any], writer: Mapping[str, Any]) -> bool:
    values = _values(writer)
    return values is not None and {dump(each, sort_keys=True) for each in values} <= {
        dump(each, sort_keys=True) for each in wanted
    }


def _bound(name: str, *, largest: bool) -> Rule:
    def follows(wanted: Any, writer: Mapping[str, Any]) -> bool:
        if isinstance(wanted, bool):  # draft 4: a flag of the bound beside it
            other = name.replace("exclusiveM", "m")
            return writer.get(name) is wanted and writer.get(other) is not None
        if not largest and name.endswith(("Length", "Items", "Properties")) and wanted <= 0:
            return True
        strict = f"exclusive{name[0].upper()}{name[1:]}" if name in ("maximum", "minimum") else name
        found = [writer[each] for each in {name, strict} if _is_number(writer.get(each))]
        return any(each <= wanted if largest else each >= wanted for each in found)

    return _rule(name, follows, "allows more than" if largest else "allows less than")


def _multiple_follows(wanted: Any, writer: Mapping[str, Any]) -> bool:
    if wanted == 1 and _types(writer) == frozenset({"integer"}):
        return True
    step = writer.get("multipleOf")
    return _is_number(step) and wanted > 0 and (Fraction(str(step)) / Fraction(str(wanted))).denominator == 1


def _required_follow(wanted: Any, writer: Mapping[str, Any]) -> bool:
    if isinstance(wanted, bool):  # draft 3
        return not wanted
    return set(wanted) <= set(writer.get("required", ()))


RULES: Final[Mapping[str, Rule]] = {
    "type": _rule("type", _type_follows, "allows other types than"),
    "enum": _rule("enum", _values_follow, "allows other values than"),
    "const": _rule("const", lambda wanted, writer: _values_follow([wanted], writer), "allows other values than"),
    **{name: _bound(name, largest=True) for name in LARGEST},
    **{name: _bound(name, largest=False) for name in LEAST},
    "multipleOf": _rule("multipleOf", _multiple_follows, "allows other values than multiples of"),
    "uniqueItems": _rule(
        "uniqueItems", lambda wanted, writer: not wanted or writer.get("uniqueItems") is True, "allows equal items:"
    ),
    "required": _rule("required", _required_follow, "does not require all of"),
    "properties": _Proof.properties,
    "additionalProperties": _Proof.additional_properties,
    "items": _Proof.items,
    "anyOf": _Proof.any_of,
    "oneOf": _Proof.one_of,
}
