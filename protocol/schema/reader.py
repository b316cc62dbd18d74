"""Makes the function that reads one structure in one version: nested arrays are loops in it, adjacent numbers one unpacking.

Values are made without their constructors, which would cost more than everything else: every field is set.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from ..errors import RemoteProtocolError
from ..limits import MAX_STRING_CHARS
from . import primitives
from .fields import BYTES, RECORDS, STRING, Element, Field, Primitive, all_fields, cached, fields_of
from .source import Source

Reader = Callable[[memoryview, int, int], tuple[Any, int]]
"""(data, position) -> (value, position behind it). Raises UNREADABLE."""
UNREADABLE: Final = (RemoteProtocolError, struct.error, IndexError, UnicodeDecodeError)
"""Raised by a Reader for bytes that are not its structure."""
SteppingReader = Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]]
"""A Reader that yields after about every ELEMENTS_PER_PAUSE elements."""

STRING_BITS_PER_ELEMENT: Final = 10
BYTES_BITS_PER_ELEMENT: Final = 13
"""Decoding 1 KiB of text and copying 8 KiB take as long as an element."""

_CALLED: Final = (
    primitives.read_unsigned_varint,
    primitives.refuse_length,
    primitives.refuse_count,
    primitives.refuse_tag,
)


@cached
def make_reader(cls: type, version: int, flexible: bool, pauses: bool = False) -> Callable[..., Any]:
    """The Reader of `cls` in a version. With `pauses` the SteppingReader, for what is large: it copies nothing but what is
    handed out."""
    source = Source(names={function.__name__: function for function in _CALLED})
    hands_through = pauses or _has_records(cls, version)
    writer = _ReaderSource(source, version, flexible, f"{cls.__name__} v{version}", hands_through, pauses)
    with source.block("def read(data, at, elements):"):
        source.add("end = len(data)")
        if pauses:
            source.add("steps = 0", "yield")
        if not hands_through:
            source.add("data = bytes(data)")  # much is cheaper with bytes, and these messages are small
        value = writer.structure(cls, "")
        source.add(f"return {value}, at")
    return source.function("read", f"<reader of {cls.__name__} v{version}>")


def _has_records(cls: type, version: int) -> bool:
    elements = [field.element for field in fields_of(cls, version)]
    return RECORDS in elements or any(_has_records(each, version) for each in elements if isinstance(each, type))


@attrs.define(eq=False, repr=False)
class _ReaderSource:
    source: Source
    version: int
    flexible: bool
    name: str
    hands_through: bool
    """`data` is a view, of which records are handed out."""
    pauses: bool
    """Others may have their turn after every few elements."""
    _run: list[tuple[str, str]] = attrs.field(factory=list)
    """(variable, struct's letter) of numbers that stand side by side and are not read yet."""

    def structure(self, cls: type, path: str) -> str:
        """Lines that read a structure; answers the variable that has it."""
        values: dict[str, str] = {}
        fields = fields_of(cls, self.version)
        tagged = [field for field in fields if field.tag is not None] if self.flexible else []
        for field in fields:
            if field not in tagged:
                values[field.name] = self.field(field, path)
        if self.flexible:
            self._tagged(tagged, values, path)
        self._flush()
        return self._made(cls, values)

    def _made(self, cls: type, values: dict[str, str]) -> str:
        made = self.source.variable()
        self.source.add(f"{made} = {self.source.constant(cls.__new__)}({self.source.constant(cls)})")
        for field in all_fields(cls):
            self.source.add(f"{made}.{field.name} = {values.get(field.name) or self._default(field)}")
        return made

    def _default(self, field: Field) -> str:
        """An expression: arrays and structures are new ones each time."""
        is_shared = isinstance(field.element, Primitive) and not field.is_array
        default = field.make_default()
        if is_shared or default is None:
            return self.source.constant(default)
        return f"{self.source.constant(field.make_default)}()"

    def field(self, field: Field, path: str) -> str:
        """Lines that read a field; answers the variable that has it, behind the next flush if it is a mere number."""
        what = f"{self.name}: {path}{field.name}"
        nullable = self.version in field.nullable
        if field.is_array:
            return self._array(field, path, what, nullable=nullable)
        if isinstance(field.element, Primitive):
            return self._primitive(field.element, what, nullable=nullable)
        present = 0 if field.tag is None else 1
        return self._optional_structure(field.element, f"{path}{field.name}.", present if nullable else None)

    def _flush(self) -> None:
        if not self._run:
            return
        if [letter for _, letter in self._run] == ["B"]:
            self.source.add(f"{self._run[0][0]} = data[at]", "at += 1")
        else:
            layout = struct.Struct(">" + "".join(letter for _, letter in self._run))
            targets = ", ".join(name for name, _ in self._run)
            self.source.add(f"{targets}, = {self.source.constant(layout.unpack_from)}(data, at)", f"at += {layout.size}")
        self._run.clear()

    # ---- lengths -------------------------------------------------------------------------------------------------------

    def _length(self, letter: str) -> str:
        """Lines that read a length or a count: -1 for null."""
        length = self.source.variable()
        if self.flexible:
            self._varint(length)
            self.source.add(f"{length} -= 1")
        else:
            self._run.append((length, letter))
            self._flush()
        return length

    def _varint(self, target: str) -> None:
        self._run.append((target, "B"))
        self._flush()
        with self.source.block(f"if {target} > 127:"):
            self.source.add(f"{target}, at = read_unsigned_varint(data, at - 1)")

    def _records_length(self) -> str:
        """Lines that read the length of records, which takes two bytes in most small requests."""
        length = self.source.variable()
        self._run.append((length, "B"))
        self._flush()
        with self.source.block(f"if {length} > 127:"):
            with self.source.block("if data[at] < 128:"):
                self.source.add(f"{length} += (data[at] << 7) - 128", "at += 1")
            with self.source.block("else:"):
                self.source.add(f"{length}, at = read_unsigned_varint(data, at - 1)")
        self.source.add(f"{length} -= 1")
        return length

    def _primitive(self, kind: Primitive, what: str, *, nullable: bool) -> str:
        value = self.source.variable()
        if kind.format:
            self._run.append((value, kind.format))
            return value
        is_long = kind is RECORDS and self.flexible
        length = self._records_length() if is_long else self._length("h" if kind is STRING else "i")
        stop = self.source.variable()
        longest = f" or {length} > {MAX_STRING_CHARS}" if kind is STRING and self.flexible else ""
        with self._unless_null(length, value, nullable=nullable or kind is RECORDS):
            self.source.add(f"{stop} = at + {length}")
            with self.source.block(f"if {length} < 0 or {stop} > end{longest}:"):
                self.source.add(f"refuse_length({self.source.constant(what)}, {length}, end - at)")
            if self.pauses and kind is not RECORDS:
                bits = STRING_BITS_PER_ELEMENT if kind is STRING else BYTES_BITS_PER_ELEMENT
                self.source.add(f"steps += {length} >> {bits}")
            self.source.add(f"{value} = {self._content(kind, f'data[at:{stop}]')}", f"at = {stop}")
        return value

    def _content(self, kind: Primitive, piece: str) -> str:
        if kind is STRING:
            return f"{piece}.tobytes().decode()" if self.hands_through else f"{piece}.decode()"
        return f"bytes({piece})" if kind is BYTES and self.hands_through else piece

    @contextmanager
    def _unless_null(self, length: str, value: str, *, nullable: bool) -> Iterator[None]:
        if not nullable:
            yield
            return
        with self.source.block(f"if {length} == -1:"):
            self.source.add(f"{value} = None")
        with self.source.block("else:"):
            yield

    # ---- arrays and structures -----------------------------------------------------------------------------------------

    def _array(self, field: Field, path: str, what: str, *, nullable: bool) -> str:
        items = self.source.variable()
        count = self._length("i")
        with self._unless_null(count, items, nullable=nullable):
            self.source.add(f"elements -= {count}")
            with self.source.block(f"if {count} < 0 or {count} > end - at or elements < 0:"):
                self.source.add(f"refuse_count({self.source.constant(what)}, {count}, end - at)")
            self._elements(field.element, items, count, f"{path}{field.name}.", what)
        return items

    def _elements(self, element: Element, items: str, count: str, path: str, what: str) -> None:
        if isinstance(element, Primitive) and element.format and element.format != "16s":
            layouts = self.source.constant(primitives.ArrayLayouts(element.format))
            self.source.add(f"{items} = list({layouts}[{count}].unpack_from(data, at))")
            self.source.add(f"at += {struct.calcsize(f'>{element.format}')} * {count}")
            return
        self.source.add(f"{items} = []")
        with self.source.block(f"for _ in range({count}):"):
            if isinstance(element, Primitive):
                value = self._primitive(element, what, nullable=False)
                self._flush()
            else:
                value = self.structure(element, path)
            self.source.add(f"{items}.append({value})")
            if self.pauses:
                self.source.pause()

    def _optional_structure(self, cls: type, path: str, lowest_present: int | None) -> str:
        """None: it is always there. Else a byte stands before it: where there is nothing it is -1, in a tagged field 0."""
        if lowest_present is None:
            return self.structure(cls, path)
        value, marker = self.source.variable(), self.source.variable()
        self._run.append((marker, "b"))
        self._flush()
        self.source.add(f"{value} = None")
        with self.source.block(f"if {marker} >= {lowest_present}:"):
            self.source.add(f"{value} = {self.structure(cls, path)}")
        return value

    # ---- tagged fields -------------------------------------------------------------------------------------------------

    def _tagged(self, fields: Sequence[Field], values: dict[str, str], path: str) -> None:
        """Lines that read the tagged fields; those that nobody here knows are passed over."""
        count = self.source.variable()
        self._run.append((count, "B"))
        self._flush()
        for field in fields:
            values[field.name] = self.source.variable()
            self.source.add(f"{values[field.name]} = {self._default(field)}")
        with self.source.block(f"if {count}:"):
            with self.source.block(f"if {count} > 127:"):
                self.source.add(f"{count}, at = read_unsigned_varint(data, at - 1)")
            what = self.source.constant(f"{self.name}: the tagged fields of {path or 'the message'}")
            self.source.add(f"elements -= {count}")
            with self.source.block(f"if {count} > end - at or elements < 0:"):
                self.source.add(f"refuse_count({what}, {count}, end - at)")
            with self.source.block(f"for _ in range({count}):"):
                self._tagged_field(fields, values, path, what)
                if self.pauses:
                    self.source.pause()

    def _tagged_field(self, fields: Sequence[Field], values: dict[str, str], path: str, what: str) -> None:
        tag, size, stop = (self.source.variable() for _ in range(3))
        self._varint(tag)
        self._varint(size)
        self.source.add(f"{stop} = at + {size}")
        with self.source.block(f"if {stop} > end:"):
            self.source.add(f"refuse_length({what}, {size}, end - at)")
        for field in fields:
            with self.source.block(f"if {tag} == {field.tag}:"):
                read = self.field(field, path)
                self._flush()
                self.source.add(f"{values[field.name]} = {read}")
                with self.source.block(f"if at != {stop}:"):
                    described = self.source.constant(f"{self.name}: {path}{field.name}")
                    self.source.add(f"refuse_tag({described}, {stop}, at)")
        self.source.add(f"at = {stop}")
