"""Makes the function that reads one structure in one version: nested arrays are loops in it, adjacent numbers one unpacking."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import attrs

from . import primitives
from .fields import BYTES, RECORDS, STRING, Element, Field, Primitive, fields_of
from .source import Source

Reader = Callable[[memoryview, int], tuple[Any, int]]
"""(data, position) -> (value, position behind it). Raises RemoteProtocolError, struct.error, IndexError, UnicodeDecodeError."""

_CALLED: Final = (
    primitives.read_unsigned_varint,
    primitives.refuse_length,
    primitives.refuse_count,
    primitives.refuse_tag,
)


def make_reader(cls: type, version: int, *, flexible: bool) -> Reader:
    """The reader of `cls` in a version."""
    source = Source(names={function.__name__: function for function in _CALLED})
    writer = _ReaderSource(source, version, flexible, f"{cls.__name__} v{version}")
    with source.block("def read(data, at):"):
        source.add("end = len(data)", f"elements = {primitives.MAX_ELEMENTS}")
        value = writer.structure(cls, "")
        source.add(f"return {value}, at")
    return source.function("read", f"<reader of {cls.__name__} v{version}>")


@attrs.define(eq=False)
class _ReaderSource:
    source: Source
    version: int
    flexible: bool
    name: str

    def structure(self, cls: type, path: str) -> str:
        """Lines that read a structure; answers the expression that makes it."""
        values: dict[str, str] = {}
        run: list[tuple[str, str]] = []
        fields = fields_of(cls, self.version)
        for field in fields:
            if field.tag is not None and self.flexible:
                continue
            if field.fixed_format:
                values[field.name] = self.source.variable()
                run.append((values[field.name], field.fixed_format))
                continue
            self._unpack(run)
            values[field.name] = self.field(field, path)
        self._unpack(run)
        if self.flexible:
            self._tagged([field for field in fields if field.tag is not None], values, path)
        made = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{self.source.constant(cls)}({made})"

    def field(self, field: Field, path: str) -> str:
        """Lines that read a field that is not a mere number; answers the variable that has it."""
        what = f"{self.name}: {path}{field.name}"
        nullable = self.version in field.nullable
        if field.is_array:
            return self._array(field, path, what, nullable=nullable)
        value = self.source.variable()
        if isinstance(field.element, Primitive):
            self._primitive(value, field.element, what, nullable=nullable)
        else:
            self._optional_structure(value, field.element, f"{path}{field.name}.", nullable=nullable)
        return value

    def _unpack(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(letter for _, letter in run))
        targets = ", ".join(name for name, _ in run)
        self.source.add(f"{targets}, = {self.source.constant(layout.unpack_from)}(data, at)", f"at += {layout.size}")
        run.clear()

    # ---- lengths -------------------------------------------------------------------------------------------------------

    def _length(self, letter: str) -> str:
        """Lines that read a length or a count: -1 for null."""
        length = self.source.variable()
        if self.flexible:
            self._varint(length)
            self.source.add(f"{length} -= 1")
        else:
            self._unpack([(length, letter)])
        return length

    def _varint(self, target: str) -> None:
        self.source.add(f"{target} = data[at]", "at += 1")
        with self.source.block(f"if {target} > 127:"):
            self.source.add(f"{target}, at = read_unsigned_varint(data, at - 1)")

    def _primitive(self, value: str, kind: Primitive, what: str, *, nullable: bool) -> None:
        """Lines that put a primitive into `value`."""
        if kind.format:
            self._unpack([(value, kind.format)])
            return
        length = self._length("h" if kind is STRING else "i")
        stop = self.source.variable()
        described = self.source.constant(what)
        with self._unless_null(length, value, nullable=nullable or kind is RECORDS):
            self.source.add(f"{stop} = at + {length}")
            with self.source.block(f"if {length} < 0 or {stop} > end:"):
                self.source.add(f"refuse_length({described}, {length}, end - at)")
            made = {STRING: f"str(data[at:{stop}], 'utf-8')", BYTES: f"bytes(data[at:{stop}])"}
            self.source.add(f"{value} = {made.get(kind, f'data[at:{stop}]')}", f"at = {stop}")

    @contextmanager
    def _unless_null(self, length: str, value: str, *, nullable: bool) -> Iterator[None]:
        if not nullable:
            yield
            return
        self.source.add(f"{value} = None")
        with self.source.block(f"if {length} != -1:"):
            yield

    # ---- arrays and structures -----------------------------------------------------------------------------------------

    def _array(self, field: Field, path: str, what: str, *, nullable: bool) -> str:
        items = self.source.variable()
        count = self._length("i")
        described = self.source.constant(what)
        with self._unless_null(count, items, nullable=nullable):
            self.source.add(f"elements -= {count}")
            with self.source.block(f"if {count} < 0 or {count} > end - at or elements < 0:"):
                self.source.add(f"refuse_count({described}, {count}, end - at)")
            self._elements(field.element, items, count, f"{path}{field.name}.", what)
        return items

    def _elements(self, element: Element, items: str, count: str, path: str, what: str) -> None:
        if isinstance(element, Primitive) and element.format and element.format != "16s":
            size = struct.calcsize(f">{element.format}")
            unpack = self.source.constant(struct.unpack_from)
            self.source.add(f"{items} = list({unpack}(f'>{{{count}}}{element.format}', data, at))", f"at += {size} * {count}")
            return
        self.source.add(f"{items} = []")
        with self.source.block(f"for _ in range({count}):"):
            if isinstance(element, Primitive):
                value = self.source.variable()
                self._primitive(value, element, what, nullable=False)
            else:
                value = self.structure(element, path)
            self.source.add(f"{items}.append({value})")

    def _optional_structure(self, value: str, cls: type, path: str, *, nullable: bool) -> None:
        if not nullable:
            self.source.add(f"{value} = {self.structure(cls, path)}")
            return
        marker = self.source.variable()
        self._unpack([(marker, "b")])
        self.source.add(f"{value} = None")
        with self.source.block(f"if {marker} >= 0:"):
            self.source.add(f"{value} = {self.structure(cls, path)}")

    # ---- tagged fields -------------------------------------------------------------------------------------------------

    def _tagged(self, fields: Sequence[Field], values: dict[str, str], path: str) -> None:
        """Lines that read the tagged fields; those that nobody here knows are passed over."""
        for field in fields:
            values[field.name] = self.source.variable()
            self.source.add(f"{values[field.name]} = {self.source.constant(field.make_default)}()")
        count, tag, size, stop = (self.source.variable() for _ in range(4))
        self._varint(count)
        with self.source.block(f"for _ in range({count}):"):
            self._varint(tag)
            self._varint(size)
            self.source.add(f"{stop} = at + {size}")
            with self.source.block(f"if {stop} > end:"):
                described = self.source.constant(f"{self.name}: a tagged field of {path or 'the message'}")
                self.source.add(f"refuse_length({described}, {size}, end - at)")
            for position, field in enumerate(fields):
                with self.source.block(f"{'el' if position else ''}if {tag} == {field.tag}:"):
                    read = self._tagged_value(field, path)
                    self.source.add(f"{values[field.name]} = {read}")
                    with self.source.block(f"if at != {stop}:"):
                        described = self.source.constant(f"{self.name}: {path}{field.name}")
                        self.source.add(f"refuse_tag({described}, {stop}, at)")
            with self.source.block("else:" if fields else "if True:"):
                self.source.add(f"at = {stop}")

    def _tagged_value(self, field: Field, path: str) -> str:
        if not field.fixed_format:
            return self.field(field, path)
        value = self.source.variable()
        self._unpack([(value, field.fixed_format)])
        return value
