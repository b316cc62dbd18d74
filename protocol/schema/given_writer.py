"""Makes the function that writes one structure from plain tuples: of a message most of whose fields are always at their
defaults, such as an answer of success, no objects are made.

The lines are those of `writer`, so the bytes are those that `codec.write` has for the message. What is at its default is packed
once, when the function is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from .fields import Field, fields_of
from .writer import ZERO, Piece, WriterSource, new_source

GivenWriter = Callable[[Any, list[Any]], None]
"""(values, parts) -> None: appends the bytes to `parts` in pieces. Raises what a Writer raises."""


@attrs.frozen
class Given:
    """Which fields of a structure are given, as a tuple of their values in this order; all others are at their defaults."""

    fields: tuple[str, ...]
    lists: Mapping[str, Given] = attrs.field(factory=dict)
    """Arrays of structures, each element of which is a tuple too. They come behind the fields."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.fields, *self.lists)


def make_given_writer(cls: type, given: Given, version: int, *, flexible: bool) -> GivenWriter:
    """The writer of `cls` in a version, for what is given of it. A field that the version lacks is given all the same."""
    source = new_source()
    writer = _GivenSource(source, version, flexible, pauses=False, given=given)
    with source.block("def write(values, parts):"):
        source.add("add = parts.append")
        writer.structure(cls, "values")
        writer.flush()
    return source.function("write", f"<writer of what is given of {cls.__name__} v{version}>")


@attrs.define(eq=False, repr=False)
class _GivenSource(WriterSource):
    given: Given = attrs.field(kw_only=True)
    """Of the structure that is being written."""

    def structure(self, cls: type, value: str) -> None:
        given = self.given
        variables = {name: self.source.variable() for name in given.names}
        self.source.add(f"{', '.join(variables.values())}, = {value}")
        for field in fields_of(cls, self.version):
            if field.tag is not None and self.flexible:
                assert field.name not in variables, f"{cls.__name__}.{field.name} is a tagged field"
            elif field.name not in variables:
                self._fixed(field)
            else:
                self.given = given.lists.get(field.name, given)
                self.field(field, variables[field.name])
                self.given = given
        if self.flexible:
            self.run.append(Piece(ZERO))

    def _fixed(self, field: Field) -> None:
        """Lines that write a field that is at its default."""
        content = _default_bytes(field, self.version, flexible=self.flexible)
        if content.strip(b"\0"):
            self.run.append(Piece(f"{len(content)}s", repr(content)))
        else:
            self.run.append(Piece(f"{len(content)}{ZERO}"))


def _default_bytes(field: Field, version: int, *, flexible: bool) -> bytes:
    source = new_source()
    writer = WriterSource(source, version, flexible, pauses=False)
    with source.block("def write(value, parts, large):"):
        source.add("add = parts.append")
        writer.field(field, "value")
        writer.flush()
    parts: list[bytes] = []
    source.function("write", f"<writer of {field.name}>")(field.make_default(), parts, [])
    return b"".join(parts)
