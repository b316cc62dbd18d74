"""Make the function that writes one structure in one version: adjacent numbers, and arrays of numbers between them, are one
packing; records are not copied.

`make_given_writer` makes one that writes plain tuples: no objects are built for a message whose fields are mostly at their
defaults, such as a response without errors. Its bytes are those of `codec.write`; defaults are packed once.
`make_single_writer` makes one for such a message that has one element in each of its lists, as most small responses do: it
packs everything at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from ..types import Bytes
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
    """The given fields of a structure, as a tuple of their values in this order; all others always have the same."""

    fields: tuple[str, ...]
    lists: Mapping[str, Given] = attrs.field(factory=dict)
    """Arrays of structures, each element of which is a tuple too. They come behind the fields."""
    fixed: Mapping[str, Any] = attrs.field(factory=dict)
    """Values of fields that have no default, or another one."""

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
        variables = self._variables_of(value)
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

    def _variables_of(self, value: str) -> dict[str, str]:
        """Lines that put what is given of a structure into variables; answers them by name."""
        variables = {name: self.source.variable() for name in self.given.names}
        self.source.add(f"{', '.join(variables.values())}, = {value}")
        return variables

    def _fixed(self, field: Field) -> None:
        """Lines that write a field that always has the same value."""
        value = self.given.fixed[field.name] if field.name in self.given.fixed else field.make_default()
        content = _bytes_of(field, value, self.version, flexible=self.flexible)
        if content.strip(b"\0"):
            self.run.append(Piece(f"{len(content)}s", repr(content)))
        else:
            self.run.append(Piece(f"{len(content)}{ZERO}"))


SingleWriter = Callable[..., list[Bytes]]
"""(number, values) -> the buffers of a frame: one, or others around large records. Raises what a Writer raises."""


def make_single_writer(cls: type, given: Given, version: int, head: struct.Struct, *, flexible: bool) -> SingleWriter:
    """The writer of `cls` in a version, with one element in each list and a head before it. The arguments are the second number
    of the head, whose first one is the size of what follows that, and the values in order: those of an element follow those of
    its structure. Numbers, strings, records and lists can be given."""
    source = Source(names=dict(_CALLED))
    writer = _SingleSource(source, version, flexible, pauses=False, given=given)
    size, number, *zeros = list(head.format.removeprefix(">"))
    writer.run += [Piece(size, "size"), Piece(number, "number"), *map(Piece, zeros)]
    writer.structure(cls, "")
    writer.flush()
    lines, source.lines = source.lines, []
    with source.block(f"def write({', '.join(['number', *writer.parameters])}):"):
        fixed_bytes = writer.fixed_bytes - struct.calcsize(f">{size}")
        source.add(*lines, f"size = {' + '.join([str(fixed_bytes), *writer.sizes])}")
        if (records := writer.records) is None:
            source.add(f"return [{' + '.join(writer.parts)}]")
        else:
            place = writer.parts.index(records)
            buffers = [" + ".join(parts) for parts in (writer.parts[:place], [records], writer.parts[place + 1 :]) if parts]
            with source.block(f"if len({records}) >= {primitives.COPIED_BYTES}:"):
                source.add(f"return [{', '.join(buffers)}]")
            source.add(f"return [join([{', '.join(buffers)}])]")
    return source.function("write", f"<writer of a single {cls.__name__} v{version}>")


@attrs.define(eq=False, repr=False)
class _SingleSource(_GivenSource):
    parameters: list[str] = attrs.field(factory=list, init=False)
    sizes: list[str] = attrs.field(factory=list, init=False)
    """Variables with the bytes that strings and records take."""
    parts: list[str] = attrs.field(factory=list, init=False)
    """Expressions for what stands side by side."""
    records: str | None = attrs.field(default=None, init=False)
    """The part that is not copied where it is large."""
    fixed_bytes: int = attrs.field(default=0, init=False)
    """What everything else takes."""

    def _variables_of(self, value: str) -> dict[str, str]:
        variables = {name: self.source.variable() for name in self.given.fields}
        self.parameters += variables.values()
        return {**variables, **dict.fromkeys(self.given.lists, "")}

    def flush(self) -> None:
        run, self.run = self.run, []
        if run:
            layout = struct.Struct(">" + "".join(piece.letter for piece in run))
            self.fixed_bytes += layout.size
            values = [piece.value for piece in run if piece.value]
            self.parts.append(
                f"{self.source.constant(layout.pack)}({', '.join(values)})" if values else repr(bytes(layout.size))
            )

    def _primitive(self, kind: Primitive, value: str, *, nullable: bool) -> None:
        if kind.format:
            self.run.append(Piece(kind.format, value))
            return
        assert kind is RECORDS or (kind is STRING and not nullable), f"{kind} cannot be written so"
        local, length = self._measured(value, "''" if kind is STRING else "b''", nullable=False)
        if self.flexible:
            self.flush()
            self.parts.append(self._varint_before(length))
        else:
            self.run.append(Piece("h" if kind is STRING else "i", length))
            self.flush()
        self.sizes.append(length)
        self.parts.append(local)
        if kind is RECORDS:
            assert self.records is None, "one field of records can be written so"
            self.records = local

    def _varint_before(self, length: str) -> str:
        """Lines that put a length, which is one more than what it measures, into a variable as a varint, and count its bytes in
        place of the one. Answers that variable."""
        varint = self.source.variable()
        with self.source.block(f"if {length} < 128:"):
            self.source.add(f"{varint} = UNSIGNED_VARINTS[{length}]")
        with self.source.block(f"elif {length} < 16384:"):
            self.source.add(f"{varint} = bytes(({length} & 127 | 128, {length} >> 7))", f"{length} += 1")
        with self.source.block("else:"):
            self.source.add(f"{varint} = write_unsigned_varint({length})", f"{length} += len({varint}) - 1")
        return varint

    def _array(self, element: Element, value: str, *, nullable: bool) -> None:
        assert isinstance(element, type), f"{element} cannot be written so"
        self.run.append(Piece("B", "2") if self.flexible else Piece("i", "1"))
        self.structure(element, value)


def _bytes_of(field: Field, value: Any, version: int, *, flexible: bool) -> bytes:
    source = Source(names=dict(_CALLED))
    writer = WriterSource(source, version, flexible, pauses=False)
    with source.block("def write(value, parts, large):"):
        source.add("add = parts.append")
        writer.field(field, "value")
        writer.flush()
    parts: list[bytes] = []
    source.function("write", f"<writer of {field.name}>")(value, parts, [])
    return b"".join(parts)
