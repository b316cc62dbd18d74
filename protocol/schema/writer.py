"""Makes the function that writes one structure in one version: adjacent numbers are one packing, records are not copied."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from . import primitives
from .fields import RECORDS, STRING, Element, Field, Primitive, fields_of
from .source import Source

Writer = Callable[[Any, list[Any]], None]
"""(value, parts) -> None: appends the value's bytes, in pieces. Raises struct.error for a number outside its range, and
AttributeError or TypeError for a value that is none of ours."""

_CALLED: Final = (primitives.write_unsigned_varint, primitives.join)


def make_writer(cls: type, version: int, *, flexible: bool) -> Writer:
    """The writer of `cls` in a version."""
    names: dict[str, Any] = {function.__name__: function for function in _CALLED}
    source = Source(names={**names, "UNSIGNED_VARINTS": primitives.UNSIGNED_VARINTS})
    writer = _WriterSource(source, version, flexible)
    with source.block("def write(value, parts):"):
        source.add("add = parts.append")
        writer.structure(cls, "value")
    return source.function("write", f"<writer of {cls.__name__} v{version}>")


@attrs.define(eq=False)
class _WriterSource:
    source: Source
    version: int
    flexible: bool
    _run: list[tuple[str, str]] = attrs.field(factory=list)
    """(struct's letter, expression) of numbers that stand side by side and are not written yet."""

    def structure(self, cls: type, value: str) -> None:
        """Lines that write a structure."""
        fields = fields_of(cls, self.version)
        for field in fields:
            if field.tag is None or not self.flexible:
                self.field(field, f"{value}.{field.name}")
        if self.flexible:
            self._tagged([field for field in fields if field.tag is not None], value)
        self._flush()

    def field(self, field: Field, value: str) -> None:
        """Lines that write a field."""
        if field.fixed_format:
            self._run.append((field.fixed_format, value))
            return
        nullable = self.version in field.nullable
        if field.is_array:
            with self._unless_null(value, "i", nullable=nullable) as local:
                self._length(f"len({local})", "i")
                self._flush()
                self._elements(field.element, local)
        elif isinstance(field.element, Primitive):
            self._primitive(field.element, value, nullable=nullable)
        else:
            self._optional_structure(field.element, value, nullable=nullable)

    def _flush(self) -> None:
        if not self._run:
            return
        layout = struct.Struct(">" + "".join(letter for letter, _ in self._run))
        values = ", ".join(value for _, value in self._run)
        self.source.add(f"add({self.source.constant(layout.pack)}({values}))")
        self._run.clear()

    # ---- lengths -------------------------------------------------------------------------------------------------------

    def _length(self, length: str, letter: str) -> None:
        """Lines that write a length or a count of what is there."""
        if not self.flexible:
            self._run.append((letter, length))
            return
        self._flush()
        local = self.source.variable()
        self.source.add(f"{local} = {length} + 1")
        self._varint(local)

    def _varint(self, number: str) -> None:
        self.source.add(f"add(UNSIGNED_VARINTS[{number}] if {number} < 128 else write_unsigned_varint({number}))")

    @contextmanager
    def _unless_null(self, value: str, letter: str, *, nullable: bool) -> Iterator[str]:
        """Lines around those that write a value with a length, in case there is none. Yields the value's local name."""
        self._flush()
        local = self.source.variable()
        self.source.add(f"{local} = {value}")
        if not nullable:
            yield local
            self._flush()
            return
        null = b"\0" if self.flexible else struct.pack(f">{letter}", -1)
        with self.source.block(f"if {local} is None:"):
            self.source.add(f"add({null!r})")
        with self.source.block("else:"):
            yield local
            self._flush()

    def _primitive(self, kind: Primitive, value: str, *, nullable: bool) -> None:
        if kind.format:
            self._run.append((kind.format, value))
            return
        letter = "h" if kind is STRING else "i"
        with self._unless_null(value, letter, nullable=nullable or kind is RECORDS) as local:
            if kind is STRING:
                self.source.add(f"{local} = {local}.encode()")
            self._length(f"len({local})", letter)
            self._flush()
            self.source.add(f"add({local})")

    # ---- arrays and structures -----------------------------------------------------------------------------------------

    def _elements(self, element: Element, items: str) -> None:
        if isinstance(element, Primitive) and element.format and element.format != "16s":
            self.source.add(f"add({self.source.constant(struct.pack)}(f'>{{len({items})}}{element.format}', *{items}))")
            return
        item = self.source.variable()
        with self.source.block(f"for {item} in {items}:"):
            if isinstance(element, Primitive):
                self._primitive(element, item, nullable=False)
                self._flush()
            else:
                before = len(self.source.lines)
                self.structure(element, item)
                if len(self.source.lines) == before:
                    self.source.add("pass")

    def _optional_structure(self, cls: type, value: str, *, nullable: bool) -> None:
        if not nullable:
            self.structure(cls, value)
            return
        self._flush()
        local = self.source.variable()
        self.source.add(f"{local} = {value}")
        with self.source.block(f"if {local} is None:"):
            self.source.add(f"add({struct.pack('>b', -1)!r})")
        with self.source.block("else:"):
            self._run.append(("b", "1"))
            self.structure(cls, local)

    # ---- tagged fields -------------------------------------------------------------------------------------------------

    def _tagged(self, fields: Sequence[Field], value: str) -> None:
        """Lines that write the tagged fields that are not at their defaults."""
        self._flush()
        if not fields:
            self.source.add(f"add({bytes(1)!r})")
            return
        count, size = self.source.variable(), self.source.variable()
        present = []
        for field in sorted(fields, key=lambda field: field.tag or 0):
            local, default = self.source.variable(), self.source.constant(field.make_default())
            self.source.add(f"{local} = {value}.{field.name}")
            present.append((field, local, f"{local} != {default}"))
        self.source.add(f"{count} = {' + '.join(f'({differs})' for _, _, differs in present)}")
        self._varint(count)
        for field, local, differs in present:
            with self.source.block(f"if {differs}:"):
                self.source.add("outer, parts = parts, []", "add = parts.append")
                self.field(field, local)
                self._flush()
                tagged = self.source.variable()
                self.source.add(f"{tagged} = join(parts)", "parts = outer", "add = parts.append", f"{size} = len({tagged})")
                self.source.add(f"add({primitives.write_unsigned_varint(field.tag or 0)!r})")
                self._varint(size)
                self.source.add(f"add({tagged})")
