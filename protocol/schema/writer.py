"""Make the function that writes one structure in one version: adjacent numbers, and arrays of numbers between them, are one
packing; records are not copied.

`make_given_writer` makes one that writes plain tuples: no objects are built for a message whose fields are mostly at their
defaults, such as a response without errors. Its bytes are those of `codec.write`; defaults are packed once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from . import primitives
from .fields import RECORDS, STRING, Element, Field, Primitive, cached, fields_of
from .source import Source

Writer = Callable[[Any, list[Any], list[int]], None]
"""(value, parts, large) -> None: appends the value's bytes to `parts` in pieces, and to `large` the places of records that are
not to be copied. Raises struct.error for a number outside its range, and AttributeError or TypeError for a value that is none
of ours."""

SteppingWriter = Callable[[Any, list[Any], list[int]], Generator[None, None, None]]
"""A Writer that yields after every ELEMENTS_PER_PAUSE elements."""

_CALLED: Final[Mapping[str, Any]] = {
    "write_unsigned_varint": primitives.write_unsigned_varint,
    "join": b"".join,
    "UNSIGNED_VARINTS": primitives.UNSIGNED_VARINTS,
}
ZERO: Final = "x"
"""struct's letter of a zero that no argument stands for."""


class Piece(NamedTuple):
    """A number, a zero, or an array of numbers, that is not written yet."""

    letter: str
    value: str = ""
    length: str = ""
    """The variable with what stands before an array: its count, or what says that it is null."""


@cached
def make_writer(cls: type, version: int, flexible: bool, pauses: bool = False) -> Callable[..., Any]:
    """The Writer of `cls` in a version. With `pauses` the SteppingWriter, for what is large."""
    source = Source(names=dict(_CALLED))
    writer = WriterSource(source, version, flexible, pauses)
    with source.block("def write(value, parts, large):"):
        source.add("add = parts.append")
        if pauses:
            source.add("steps = 0", "yield")
        writer.structure(cls, "value")
        writer.flush()
    return source.function("write", f"<writer of {cls.__name__} v{version}>")


@attrs.define(eq=False, repr=False)
class WriterSource:
    """The lines of one writer. Owner: who makes it."""

    source: Source
    version: int
    flexible: bool
    pauses: bool
    """Others may have their turn after every few elements."""
    run: list[Piece] = attrs.field(factory=list)
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
        """Lines that write what is not written yet: one packing."""
        run, self.run = self.run, []
        if not run:
            return
        values = ", ".join(value for piece in run for value in _arguments(piece))
        if any(piece.length for piece in run):
            lengths = ", ".join(piece.length for piece in run if piece.length)
            self.source.add(f"add({self.source.constant(self._layouts(run))}[{lengths},]({values}))")
            return
        layout = struct.Struct(">" + "".join(piece.letter for piece in run))
        self.source.add(f"add({self.source.constant(layout.pack)}({values}))" if values else f"add({bytes(layout.size)!r})")

    def _layouts(self, run: Sequence[Piece]) -> primitives.RunLayouts:
        segments, numbers = [], list[Piece]()
        for piece in run:
            if not piece.length:
                numbers.append(piece)
                continue
            letters, values = "".join(each.letter for each in numbers), sum(bool(each.value) for each in numbers)
            segments.append(primitives.Segment(letters, values, piece.letter))
            numbers.clear()
        return primitives.RunLayouts(segments, "".join(each.letter for each in numbers), flexible=self.flexible)

    # ---- lengths -------------------------------------------------------------------------------------------------------

    def _variable(self, expression: str) -> str:
        local = self.source.variable()
        self.source.add(f"{local} = {expression}")
        return local

    def _measured(self, value: str, empty: str, *, nullable: bool) -> tuple[str, str]:
        """Lines that put a value and its length on the wire into variables, and `empty` in place of null."""
        local, length = self.source.variable(), self.source.variable()
        self.source.add(f"{local} = {value}")
        text = [f"{local} = {local}.encode()"] if empty == "''" else []
        lines = [*text, f"{length} = len({local})" + (" + 1" if self.flexible else "")]
        if not nullable:
            self.source.add(*lines)
            return local, length
        with self.source.block(f"if {local} is None:"):
            self.source.add(f"{local}, {length} = {empty}, {0 if self.flexible else -1}")
        with self.source.block("else:"):
            self.source.add(*lines)
        return local, length

    def _length(self, length: str, letter: str) -> None:
        """Lines that write a length, with the numbers before it."""
        if self.flexible:
            self._varint(length)
        else:
            self.run.append(Piece(letter, length))
            self.flush()

    def _varint(self, number: str) -> None:
        if any(piece.length for piece in self.run):
            self.flush()
        run, self.run = self.run, []
        if not run:
            self.source.add(f"add(UNSIGNED_VARINTS[{number}] if {number} < 128 else write_unsigned_varint({number}))")
            return
        letters = ">" + "".join(piece.letter for piece in run)
        values = [piece.value for piece in run if piece.value]
        short = f"{self.source.constant(struct.Struct(letters + 'B').pack)}({', '.join([*values, number])})"
        long = f"{self.source.constant(struct.Struct(letters).pack)}({', '.join(values)}) + write_unsigned_varint({number})"
        self.source.add(f"add({short} if {number} < 128 else {long})")

    def _primitive(self, kind: Primitive, value: str, *, nullable: bool) -> None:
        if kind.format:
            self.run.append(Piece(kind.format, value))
            return
        local, length = self._measured(value, "''" if kind is STRING else "b''", nullable=nullable or kind is RECORDS)
        self._length(length, "h" if kind is STRING else "i")
        if kind is RECORDS and self._parts == "parts":
            with self.source.block(f"if len({local}) >= {primitives.COPIED_BYTES}:"):
                self.source.add("large.append(len(parts))")
        with self.source.block(f"if {local}:"):
            self.source.add(f"add({local})")

    # ---- arrays and structures -----------------------------------------------------------------------------------------

    def _array(self, element: Element, value: str, *, nullable: bool) -> None:
        local, length = self._measured(value, "()", nullable=nullable)
        if isinstance(element, Primitive) and element.format and element.format != "16s":
            self.run.append(Piece(element.format, local, length))
            return
        self._length(length, "i")
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
            if self.pauses:
                self.source.pause()
            elif len(self.source.lines) == before:
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
            self.run.append(Piece("b", "1"))
            self.structure(cls, local)
            self.flush()

    # ---- tagged fields -------------------------------------------------------------------------------------------------

    def _tagged(self, fields: Sequence[Field], value: str) -> None:
        """Lines that write the tagged fields that are not at their defaults."""
        if not fields:
            self.run.append(Piece(ZERO))
            return
        self.flush()
        present = []
        for field in sorted(fields, key=lambda field: field.tag or 0):
            local, differs = self.source.variable(), self.source.variable()
            self.source.add(f"{local} = {value}.{field.name}", f"{differs} = {self._differs(field, local)}")
            present.append((field, local, differs))
        with self.source.block(f"if {' or '.join(differs for _, _, differs in present)}:"):
            self._varint(self._variable(" + ".join(differs for _, _, differs in present)))
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
        self._varint(self._variable(f"len({content})"))
        self.source.add(f"add({content})")


def _arguments(piece: Piece) -> list[str]:
    """Return the arguments that packing this piece takes."""
    if piece.length:
        return [piece.length, f"*{piece.value}"]
    return [piece.value] if piece.value else []


GivenWriter = Callable[[Any, list[Any]], None]
"""(values, parts) -> None: appends the bytes to `parts` in pieces. Raises what a Writer raises."""


@attrs.frozen
class Given:
    """The given fields of a structure, as a tuple of their values in this order; all others are at their defaults."""

    fields: tuple[str, ...]
    lists: Mapping[str, Given] = attrs.field(factory=dict)
    """Arrays of structures, each element of which is a tuple too. They come behind the fields."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.fields, *self.lists)


def make_given_writer(cls: type, given: Given, version: int, *, flexible: bool) -> GivenWriter:
    """The writer of `cls` in a version, for what is given of it. A field that the version lacks is given all the same."""
    source = Source(names=dict(_CALLED))
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
    source = Source(names=dict(_CALLED))
    writer = WriterSource(source, version, flexible, pauses=False)
    with source.block("def write(value, parts, large):"):
        source.add("add = parts.append")
        writer.field(field, "value")
        writer.flush()
    parts: list[bytes] = []
    source.function("write", f"<writer of {field.name}>")(field.make_default(), parts, [])
    return b"".join(parts)
