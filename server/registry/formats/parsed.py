"""The common part of all kinds of schemas, and the limits on one schema."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NamedTuple, Protocol

from ..errors import InvalidSchemaError
from ..records import AVRO

MAX_SCHEMA_CHARS: Final = 2**20
"""Longer schemas would not fit into a record of the topic."""
MAX_NESTING: Final = 100
"""Python's parsers call themselves for each level."""
MAX_ELEMENTS: Final = 50_000
"""Values in a schema. Parsing takes about 10 us for each."""
MAX_TOKENS: Final = 100_000
"""Words and signs of a `.proto` file. Reading takes about 3 us for each."""
MAX_COMPARISONS: Final = 20_000
"""Pairs of types that a comparison may look at. Unions of records multiply them, and each takes 10 us and half a KiB."""

JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
TYPES: Final = (JSON, PROTOBUF, AVRO)
"""In the order in which Confluent lists them."""


class Dependency(NamedTuple):
    """A schema that another one refers to."""

    name: str
    schema: str


class Parsed(Protocol):
    """A valid schema."""

    @property
    def canonical(self) -> str:
        """Return the text to store. Texts that differ in white space only have the same."""

    def normalized(self) -> str:
        """Return the text that schemas share which differ in the order of members only."""

    def incompatibilities(self, writer: Any) -> list[str]:
        """Return why this schema may fail to read data of the schema `writer`; empty if it reads all of them."""

    def decode(self, data: bytes) -> Any:
        """Return the value in the bytes that a serializer writes after the id of the schema. Raises ValueError."""


def read_schema_json(text: str) -> Any:
    """Return the value of a JSON text. Raises InvalidSchemaError, also above the limits on one schema."""
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise InvalidSchemaError(f"the schema is not JSON: {exc}") from None
    check_size(value)
    return value


def check_size(value: Any) -> None:
    """Raises InvalidSchemaError for a value that is nested too deeply or has too many elements."""
    level, count = [value], 0
    for _ in range(MAX_NESTING):
        count += len(level)
        if count > MAX_ELEMENTS:
            raise InvalidSchemaError(f"the schema has more than {MAX_ELEMENTS} elements")
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise InvalidSchemaError(f"the schema is nested more than {MAX_NESTING} levels deep")


def dump(value: Any, *, sort_keys: bool = False) -> str:
    """Return the shortest JSON text of a value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a number that JSON programs can hold")
    return number


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
