"""Makes the function that writes one structure in one version: adjacent numbers, and arrays of numbers between them, are one
packing; records are not copied."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import attrs

from . import primitives
from .fields import RECORDS, STRING, Element, Field, Primitive, fields_of
from .source import Source

Writer = Callable[[Any, list[Any], list[int]], None]
"""(value, parts, large) -> None: appends the value's bytes to `parts` in pieces, and to `large` the places of records that are
not to be copied. Raises struct.error for a number outside its range, and AttributeError or TypeError for a value that is none
of ours."""

_CALLED: Final = (primitives.write_unsigned_varint, primitives.join)
_ZERO: Final = "x"
"""struct's letter of a zero that no argument stands for."""


class _Piece(NamedTuple):
    """A number, a zero, or an array of numbers, that is not written yet."""

    letter: str
    value: str = ""
    is_array: bool = False


def make_writer(cls: type, version: int, *, flexible: bool) -> Writer:
    """The writer of `cls` in a version."""
    names: dict[str, Any] = {function.__name__: function for function in _CALLED}
    source = Source(names={**names, "UNSIGNED_VARINTS": primitives.UNSIGNED_VARINTS})
    writer = _WriterSource(source, version, flexible)
    with source.block("def write(value, parts, large):"):
        source.add("add = parts.append")
        writer.structure(cls, "value")
        writer.flush()
    return source.function("write", f"<writer of {cls.__name__} v{version}>")


@attrs.define(eq=False)
class _WriterSource:
    source: Source
    version: int
    flexible: bool
    _run: list[_Piece] = attrs.field(factory=list)
    """What stands side by side and is not written yet."""
    _parts: str = "parts"
    """The list that is appended to: a tagged field has one of its own."""

    def structure(self, cls: type, value: str) -> None:
        """Lines that write a structure, behind the next flush."""
        fields = fields_of(cls, self.version)
        tagged = [field for field in fields if field.tag is not None] if self.flexible else []
        for field in fields:
            if field not in tagged:
                self.field(field, f"{value}.{field.name}")
        if self.flexible:
            self._tagged(tagged, value)

    def field(self, field: Field, value: str) -> None:
        """Lines that write a field."""
        nullable = self.version in field.nullable
        if field.is_array:
            self._array(field.element, value, nullable=nullable)
        elif isinstance(field.element, Primitive):
            self._primitive(field.element, value, nullable=nullable)
        else:
            self._optional_structure(field.element, value, nullable=nullable)

    # ---- numbers that stand side by side -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Lines that write what is not written yet: one packing, but for arrays whose counts take more than a byte."""
        run, self._run = self._run, []
        arrays = [piece.value for piece in run if piece.is_array]
        if not arrays:
            self._pack(run)
            return
        if not self.flexible:
            self._pack_with_arrays(run, arrays)
            return
        with self.source.block(f"if {' and '.join(f'len({array}) < 127' for array in arrays)}:"):
            self._pack_with_arrays(run, arrays)
        with self.source.block("else:"):
            self._pack_one_by_one(run)

    def _pack(self, run: Sequence[_Piece]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(piece.letter for piece in run))
        values = ", ".join(piece.value for piece in run if piece.value)
        self.source.add(f"add({self.source.constant(layout.pack)}({values}))" if values else f"add({bytes(layout.size)!r})")

    def _pack_with_arrays(self, run: Sequence[_Piece], arrays: Sequence[str]) -> None:
        letters, values = [""], []
        for piece in run:
            if piece.is_array:
                letters[-1] += "B" if self.flexible else "i"
                letters.append("")
                values += [f"len({piece.value}) + 1" if self.flexible else f"len({piece.value})", f"*{piece.value}"]
            else:
                letters[-1] += piece.letter
                values += [piece.value] if piece.value else []
        layouts = primitives.RunLayouts(letters, [piece.letter for piece in run if piece.is_array])
        counts = ", ".join(f"len({array})" for array in arrays)
        self.source.add(f"add({self.source.constant(layouts)}[{counts},]({', '.join(values)}))")

    def _pack_one_by_one(self, run: Sequence[_Piece]) -> None:
        numbers: list[_Piece] = []
        for piece in run:
            if not piece.is_array:
                numbers.append(piece)
                continue
            self._pack(numbers)
            numbers = []
            layouts = self.source.constant(primitives.ArrayLayouts(piece.letter))
            self._varint(f"len({piece.value}) + 1")
            self.source.add(f"add({layouts}[len({piece.value})].pack(*{piece.value}))")
        self._pack(numbers)

    # ---- lengths -------------------------------------------------------------------------------------------------------

    def _length(self, length: str, letter: str) -> None:
        """Lines that write a length or a count of what is there."""
        if not self.flexible:
            self._run.append(_Piece(letter, length))
            return
        self.flush()
        self._varint(f"{length} + 1")

    def _varint(self, number: str) -> None:
        local = self.source.variable()
        self.source.add(f"{local} = {number}")
        self.source.add(f"add(UNSIGNED_VARINTS[{local}] if {local} < 128 else write_unsigned_varint({local}))")

    @contextmanager
    def _unless_null(self, value: str, letter: str, *, nullable: bool) -> Iterator[str]:
        """Lines around those that write a value with a length, in case there is none. Yields the value's local name."""
        local = self.source.variable()
        if not nullable:
            self.source.add(f"{local} = {value}")
            yield local
            return
        self.flush()
        self.source.add(f"{local} = {value}")
        null = b"\0" if self.flexible else struct.pack(f">{letter}", -1)
        with self.source.block(f"if {local} is None:"):
            self.source.add(f"add({null!r})")
        with self.source.block("else:"):
            yield local
            self.flush()

    def _primitive(self, kind: Primitive, value: str, *, nullable: bool) -> None:
        if kind.format:
            self._run.append(_Piece(kind.format, value))
            return
        letter = "h" if kind is STRING else "i"
        with self._unless_null(value, letter, nullable=nullable or kind is RECORDS) as local:
            if kind is STRING:
                self.source.add(f"{local} = {local}.encode()")
            self._length(f"len({local})", letter)
            self.flush()
            if kind is RECORDS and self._parts == "parts":
                with self.source.block(f"if len({local}) >= {primitives.COPIED_BYTES}:"):
                    self.source.add("large.append(len(parts))")
            self.source.add(f"add({local})")

    # ---- arrays and structures -----------------------------------------------------------------------------------------

    def _array(self, element: Element, value: str, *, nullable: bool) -> None:
        with self._unless_null(value, "i", nullable=nullable) as local:
            if isinstance(element, Primitive) and element.format and element.format != "16s":
                self._run.append(_Piece(element.format, local, is_array=True))
            else:
                self._length(f"len({local})", "i")
                self.flush()
                self._elements(element, local)

    def _elements(self, element: Element, items: str) -> None:
        item = self.source.variable()
        with self.source.block(f"for {item} in {items}:"):
            before = len(self.source.lines)
            if isinstance(element, Primitive):
                self._primitive(element, item, nullable=False)
            else:
                self.structure(element, item)
            self.flush()
            if len(self.source.lines) == before:
                self.source.add("pass")

    def _optional_structure(self, cls: type, value: str, *, nullable: bool) -> None:
        if nullable:
            self.flush()
        local = self.source.variable()
        self.source.add(f"{local} = {value}")
        if not nullable:
            self.structure(cls, local)
            return
        with self.source.block(f"if {local} is None:"):
            self.source.add(f"add({struct.pack('>b', -1)!r})")
        with self.source.block("else:"):
            self._run.append(_Piece("b", "1"))
            self.structure(cls, local)
            self.flush()

    # ---- tagged fields -------------------------------------------------------------------------------------------------

    def _tagged(self, fields: Sequence[Field], value: str) -> None:
        """Lines that write the tagged fields that are not at their defaults."""
        if not fields:
            self._run.append(_Piece(_ZERO))
            return
        self.flush()
        present = []
        for field in sorted(fields, key=lambda field: field.tag or 0):
            local, differs = self.source.variable(), self.source.variable()
            self.source.add(f"{local} = {value}.{field.name}", f"{differs} = {self._differs(field, local)}")
            present.append((field, local, differs))
        with self.source.block(f"if {' or '.join(differs for _, _, differs in present)}:"):
            self._varint(" + ".join(differs for _, _, differs in present))
            for field, local, differs in present:
                with self.source.block(f"if {differs}:"):
                    self._tagged_field(field, local)
        with self.source.block("else:"):
            self.source.add(f"add({bytes(1)!r})")

    def _differs(self, field: Field, value: str) -> str:
        """An expression: whether a tagged field is to be written. Structures of primitives are compared without their `==`,
        which costs more than all the rest of them."""
        default = field.make_default()
        if not field.is_array and isinstance(field.element, type):
            inner = fields_of(field.element, self.version)
            if default is not None and all(isinstance(each.element, Primitive) and not each.is_array for each in inner):
                theirs = self.source.constant(tuple(getattr(default, each.name) for each in inner))
                return f"({', '.join(f'{value}.{each.name}' for each in inner)},) != {theirs}"
        return f"{value} != {self.source.constant(default)}"

    def _tagged_field(self, field: Field, value: str) -> None:
        outer, self._parts = self._parts, self.source.variable()
        self.source.add(f"{self._parts} = []", f"add = {self._parts}.append")
        self.field(field, value)
        self.flush()
        tagged, self._parts = self._parts, outer
        content = self.source.variable()
        self.source.add(f"add = {outer}.append", f"{content} = join({tagged})")
        self.source.add(f"add({primitives.write_unsigned_varint(field.tag or 0)!r})")
        self._varint(f"len({content})")
        self.source.add(f"add({content})")
