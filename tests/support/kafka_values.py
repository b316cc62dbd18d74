"""Random values of Kafka's messages, of any declared structure in any version.

Edges come often: zeros, extremes, empty and null, lengths around what a varint of one byte holds, records large enough to be
handed through.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import attrs
from triolog.protocol.kafka.apis import APIS, Api
from triolog.protocol.schema.fields import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    Element,
    Field,
    Primitive,
    all_fields,
    fields_of,
)
from triolog.protocol.schema.primitives import COPIED_BYTES

STRINGS: Final = ("", "t", "topic-1", "größe", "日本語", "🎉", "x" * 126, "x" * 127, "x" * 128, "ü" * 100, "s" * 300)


@attrs.frozen
class Message:
    """One side of an API in one version."""

    api: Api
    side: str
    version: int

    @property
    def cls(self) -> type:
        made: type = getattr(self.api, self.side)
        return made

    @property
    def flexible(self) -> bool:
        return self.api.is_flexible(self.version)

    def __str__(self) -> str:
        return f"{self.api.name}{self.side.capitalize()}-v{self.version}"


MESSAGES: Final = tuple(
    Message(api, side, version)
    for api in APIS.values()
    for side in ("request", "response")
    for version in range(api.lowest_read, api.highest + 1)
)
"""Every message in every version that is served."""


SIDES: Final = {
    f"{api.name}{side.capitalize()}": [message for message in MESSAGES if (message.api, message.side) == (api, side)]
    for api in APIS.values()
    for side in ("request", "response")
}
"""The same by their names, versions in their order."""


def random_value(cls: type, version: int, random: Random, *, absent_too: bool = False) -> Any:
    """An instance; fields that the version lacks are at their defaults, unless `absent_too`."""
    fields = all_fields(cls) if absent_too else fields_of(cls, version)
    present = [field for field in fields if field.tag is None or random.random() < 0.5]
    values = {field.name: _value(field, version, random, absent_too) for field in present}
    return cls(**values)


def without_absent(value: Any, version: int) -> Any:
    """The same with fields that the version lacks at their defaults, at every depth: what a reader can give back."""
    kept = {}
    for field in fields_of(type(value), version):
        found = getattr(value, field.name)
        if isinstance(field.element, Primitive) or found is None:
            kept[field.name] = found
        elif field.is_array:
            kept[field.name] = [without_absent(each, version) for each in found]
        else:
            kept[field.name] = without_absent(found, version)
    return type(value)(**kept)


def _value(field: Field, version: int, random: Random, absent_too: bool) -> Any:
    if version in field.nullable and random.random() < 0.25:
        return None
    if field.is_array:
        count = random.choice((0, 1, 1, 2, 3))
        return [_element(field.element, version, random, absent_too) for _ in range(count)]
    return _element(field.element, version, random, absent_too)


def _element(element: Element, version: int, random: Random, absent_too: bool) -> Any:
    if not isinstance(element, Primitive):
        return random_value(element, version, random, absent_too=absent_too)
    if element is STRING:
        return random.choice(STRINGS)
    if element in (BYTES, RECORDS):
        sizes: Sequence[int] = (0, 1, 126, 127, 128, 300, COPIED_BYTES if element is RECORDS else 1000)
        return random.randbytes(random.choice(sizes))
    if element is UUID:
        return random.choice((bytes(16), random.randbytes(16)))
    if element is BOOL:
        return random.random() < 0.5
    if element is FLOAT64:
        return random.choice((0.0, -1.5, 1e300, random.random()))
    return _integer(element.format, random)


def _integer(letter: str, random: Random) -> int:
    bits = 8 * struct.calcsize(f">{letter}")
    low, high = (0, 2**bits - 1) if letter.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return random.choice((low, high, max(low, -1), 0, 1, random.randint(low, high), random.randrange(100)))
