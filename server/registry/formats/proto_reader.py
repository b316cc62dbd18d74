"""Reads `.proto` files: text to FileDescriptorProto.

Source: the language specifications of proto2 and proto3. Types are left as they are named, and `DescriptorPool` resolves them.
A custom option becomes an uninterpreted option, whose value is kept as text. Groups and editions are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from ..errors import InvalidSchemaError
from .parsed import MAX_TOKENS

TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<number>\.?[0-9](?:[eE][+-]|[A-Za-z0-9_.])*)|(?P<symbol>[{}()\[\]<>=;:,.\-+/])""",
    re.DOTALL,
)
LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
SCALARS: Final = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in pb.FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
FIELD_NUMBERS: Final = 2**29
ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def read_proto(text: str) -> pb.FileDescriptorProto:
    """Raises InvalidSchemaError."""
    reader = _Reader(text)
    try:
        return reader.file()
    except (ValueError, TypeError, OverflowError, KeyError, IndexError) as exc:
        raise reader.error(f"invalid value: {exc}") from None


class _Reader:
    """A recursive descent over the tokens of one file."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        self._at = 0
        position = 0
        while position < len(text):
            found = TOKEN.match(text, position)
            if found is None or len(self._tokens) > MAX_TOKENS:
                self._tokens.append(("end", "", position))
                raise self.error(f"unexpected {text[position]!r}" if found is None else "the file is too long")
            if found.lastgroup is not None:
                self._tokens.append((found.lastgroup, found.group(), position))
            position = found.end()
        self._tokens.append(("end", "", len(text)))

    def error(self, why: str) -> InvalidSchemaError:
        position = self._tokens[min(self._at, len(self._tokens) - 1)][2]
        return InvalidSchemaError(f"the schema is not a .proto file: line {self._text.count(chr(10), 0, position) + 1}: {why}")

    # ---- tokens ----------------------------------------------------------------------------------------------------------

    def peek(self) -> str:
        return self._tokens[self._at][1]

    def next(self, kind: str | None = None) -> str:
        found, text, _ = self._tokens[self._at]
        if found == "end" or (kind is not None and found != kind):
            raise self.error(f"expected {kind or 'more'}, found {text[:40] or 'the end'!r}")
        self._at += 1
        return text

    def take(self, text: str) -> bool:
        is_there = self.peek() == text
        self._at += is_there
        return is_there

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.error(f"expected {text!r}, found {self.peek()[:40] or 'the end'!r}")

    def name(self) -> str:
        """A dotted name, with a dot before it or not."""
        parts = ["." if self.take(".") else "", self.next("word")]
        while self.take("."):
            parts += [".", self.next("word")]
        return "".join(parts)

    def integer(self) -> int:
        sign = -1 if self.take("-") else 1
        text = self.next("number")
        if re.fullmatch(r"0[0-7]+", text):
            return sign * int(text, 8)
        if len(text) > 20:
            raise self.error("the number is too large")
        return sign * int(text, 0)

    def string(self) -> str:
        parts = [self.next("text")]
        while self._tokens[self._at][0] == "text":
            parts.append(self.next())
        return "".join(map(_unescaped, parts))

    def block(self, statements: Callable[[], None]) -> None:
        self.expect("{")
        while not self.take("}"):
            if not self.take(";"):
                statements()

    # ---- a file ----------------------------------------------------------------------------------------------------------

    def file(self) -> pb.FileDescriptorProto:
        file = pb.FileDescriptorProto()
        if self.peek() == "edition":
            raise self.error("editions are not supported, use proto2 or proto3")
        if self.take("syntax"):
            self.expect("=")
            syntax = self.string()
            if syntax not in ("proto2", "proto3"):
                raise self.error(f"syntax {syntax[:40]!r} is neither proto2 nor proto3")
            file.syntax = syntax
            self.expect(";")
        while self.peek():
            self._statement(file)
        return file

    def _statement(self, file: pb.FileDescriptorProto) -> None:
        word = self.next()
        if word == ";":
            return
        if word == "import":
            kind = self.next("word") if self.peek() in ("public", "weak") else None
            if kind is not None:
                indexes = file.public_dependency if kind == "public" else file.weak_dependency
                indexes.append(len(file.dependency))
            file.dependency.append(self.string())
            self.expect(";")
        elif word == "package":
            file.package = self.name()
            self.expect(";")
        elif word == "option":
            self._at -= 1
            self._option_statement(file.options)
        elif word == "message":
            self._message(file.message_type.add(), file.syntax)
        elif word == "enum":
            self._enum(file.enum_type.add())
        elif word == "extend":
            self._extend(file.extension, file.syntax)
        elif word == "service":
            self._service(file.service.add())
        else:
            raise self.error(f"unexpected {word[:40]!r}")

    # ---- messages --------------------------------------------------------------------------------------------------------

    def _message(self, message: pb.DescriptorProto, syntax: str) -> None:
        message.name = self.next("word")
        self.block(lambda: self._message_statement(message, syntax))
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=_synthetic(message, field.name))

    def _message_statement(self, message: pb.DescriptorProto, syntax: str) -> None:
        if self.take("message"):
            self._message(message.nested_type.add(), syntax)
        elif self.take("enum"):
            self._enum(message.enum_type.add())
        elif self.take("oneof"):
            self._oneof(message)
        elif self.take("extend"):
            self._extend(message.extension, syntax)
        elif self.peek() == "option":
            self._option_statement(message.options)
        elif self.take("reserved"):
            self._reserved(message.reserved_name, message.reserved_range, FIELD_NUMBERS, 1)
        elif self.take("extensions"):
            for start, end in self._ranges(FIELD_NUMBERS):
                message.extension_range.add(start=start, end=end + 1)
            if self.peek() == "[":
                raise self.error("options of extension ranges are not supported")
            self.expect(";")
        else:
            self._field(message.field.add(), message, syntax)

    def _field(self, field: pb.FieldDescriptorProto, message: pb.DescriptorProto | None, syntax: str) -> None:
        label = self.peek()
        field.label = LABELS.get(label, LABELS["optional"])
        if label in LABELS:
            self.next()
            if label == "optional" and syntax == "proto3" and message is not None:
                field.proto3_optional = True
            if label == "required" and syntax == "proto3":
                raise self.error("proto3 has no required fields")
        elif syntax != "proto3" and self.peek() != "map":
            raise self.error("a field of proto2 has a label: optional, required or repeated")
        if self.peek() == "group":
            raise self.error("groups are not supported")
        if self.peek() == "map" and self._tokens[self._at + 1][1] == "<" and message is not None:
            self._map(field, message)
        else:
            self._type(field)
            field.name = self.next("word")
        self._number(field)

    def _number(self, field: pb.FieldDescriptorProto) -> None:
        self.expect("=")
        field.number = self.integer()
        if self.take("["):
            self._field_options(field)
        self.expect(";")

    def _type(self, field: pb.FieldDescriptorProto) -> None:
        name = self.name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _map(self, field: pb.FieldDescriptorProto, message: pb.DescriptorProto) -> None:
        self.next()
        self.expect("<")
        key, value = (
            pb.FieldDescriptorProto(name=name, number=number, label=1) for number, name in enumerate(("key", "value"), 1)
        )
        self._type(key)
        self.expect(",")
        self._type(value)
        self.expect(">")
        field.name = self.next("word")
        field.label = LABELS["repeated"]
        field.type_name = entry = f"{''.join(part[:1].upper() + part[1:] for part in field.name.split('_'))}Entry"
        nested = message.nested_type.add(name=entry, field=[key, value])
        nested.options.map_entry = True

    def _field_options(self, field: pb.FieldDescriptorProto) -> None:
        while True:
            if self.peek() == "default":
                self.next()
                self.expect("=")
                field.default_value = self._default(field)
            elif self.peek() == "json_name":
                self.next()
                self.expect("=")
                field.json_name = self.string()
            else:
                self._option(field.options)
            if self.take("]"):
                return
            self.expect(",")

    def _default(self, field: pb.FieldDescriptorProto) -> str:
        if self._tokens[self._at][0] == "text":
            return self.string()
        sign = "-" if self.take("-") else ""
        return sign + self.next()

    def _oneof(self, message: pb.DescriptorProto) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self.next("word"))

        def statement() -> None:
            if self.peek() == "option":
                self._option_statement(oneof.options)
                return
            if self.peek() == "group":
                raise self.error("groups are not supported")
            field = message.field.add(label=1, oneof_index=index)
            self._type(field)
            field.name = self.next("word")
            self._number(field)

        self.block(statement)

    def _extend(self, fields: Any, syntax: str) -> None:
        extended = self.name()
        self.block(lambda: self._field(fields.add(extendee=extended), None, syntax))

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        enum.name = self.next("word")

        def statement() -> None:
            if self.peek() == "option":
                self._option_statement(enum.options)
            elif self.take("reserved"):
                self._reserved(enum.reserved_name, enum.reserved_range, 2**31 - 1, 0)
            else:
                value = enum.value.add(name=self.next("word"))
                self.expect("=")
                value.number = self.integer()
                if self.take("["):
                    self._options(value.options)
                self.expect(";")

        self.block(statement)

    def _service(self, service: pb.ServiceDescriptorProto) -> None:
        service.name = self.next("word")

        def statement() -> None:
            if self.peek() == "option":
                self._option_statement(service.options)
                return
            self.expect("rpc")
            method = service.method.add(name=self.next("word"))
            method.client_streaming, method.input_type = self._rpc_type()
            self.expect("returns")
            method.server_streaming, method.output_type = self._rpc_type()
            if self.peek() == "{":
                self.block(lambda: self._option_statement(method.options))
            else:
                self.expect(";")

        self.block(statement)

    def _option_statement(self, options: Any) -> None:
        self.expect("option")
        self._option(options)
        self.expect(";")

    def _rpc_type(self) -> tuple[bool, str]:
        self.expect("(")
        is_stream = self.peek() == "stream" and self._tokens[self._at + 1][1] not in (")", ".") and self.take("stream")
        name = self.name()
        self.expect(")")
        return is_stream, name

    # ---- ranges and options ----------------------------------------------------------------------------------------------

    def _ranges(self, most: int) -> Iterator[tuple[int, int]]:
        while True:
            start = end = self.integer()
            if self.take("to"):
                end = most - 1 if self.take("max") else self.integer()
            yield start, end
            if not self.take(","):
                return

    def _reserved(self, names: Any, ranges: Any, most: int, exclusive: int) -> None:
        """The end of a range is exclusive in messages, inclusive in enums."""
        if self._tokens[self._at][0] == "text":
            names.append(self.string())
            while self.take(","):
                names.append(self.string())
        else:
            for start, end in self._ranges(most if exclusive else most + 1):
                ranges.add(start=start, end=end + exclusive)
        self.expect(";")

    def _options(self, options: Any) -> None:
        self._option(options)
        while self.take(","):
            self._option(options)
        self.expect("]")

    def _option(self, options: Any) -> None:
        name = self._option_name()
        self.expect("=")
        value = self._option_value()
        known = options.DESCRIPTOR.fields_by_name.get(name)
        if known is None or known.message_type is not None or known.is_repeated or name == "map_entry":
            parts = [pb.UninterpretedOption.NamePart(name_part=name, is_extension=False)]
            options.uninterpreted_option.add(name=parts, aggregate_value=value)
        elif known.enum_type is not None:
            setattr(options, name, known.enum_type.values_by_name[value].number)
        elif known.type == SCALARS["bool"]:
            setattr(options, name, {"true": True, "false": False}[value])
        elif known.type == SCALARS["string"]:
            setattr(options, name, _unescaped(value))
        else:
            raise self.error(f"the option {name[:40]} is not supported")

    def _option_name(self) -> str:
        parts = []
        while True:
            if self.take("("):
                parts.append(f"({self.name()})")
                self.expect(")")
            else:
                parts.append(self.next("word"))
            if not self.take("."):
                return ".".join(parts)

    def _option_value(self) -> str:
        if self.peek() == "{":
            return self._aggregate()
        if self._tokens[self._at][0] == "text":
            return quoted(self.string())
        sign = "-" if self.take("-") else "+" if self.take("+") else ""
        return sign + (self.name() if self._tokens[self._at][0] == "word" else self.next("number"))

    def _aggregate(self) -> str:
        """A value in braces, as text without comments."""
        parts, depth = [], 0
        while True:
            kind, text, _ = self._tokens[self._at]
            self.next()
            depth += (text == "{" and kind == "symbol") - (text == "}" and kind == "symbol")
            parts.append(text)
            if not depth:
                return " ".join(parts)


def _synthetic(message: pb.DescriptorProto, name: str) -> str:
    """The name of the oneof of an optional field, as protoc chooses it."""
    taken = {each.name for each in (*message.oneof_decl, *message.field, *message.nested_type)}
    found = f"_{name}" if not name.startswith("_") else f"X{name}"
    while found in taken:
        found = f"X{found}"
    return found


def _unescaped(literal: str) -> str:
    def replace(found: re.Match[str]) -> str:
        text = found.group(1)
        if text[0] in "xX":
            return chr(int(text[1:], 16))
        if text[0] in "01234567":
            return chr(int(text, 8))
        return chr(int(text[1:], 16)) if text[0] in "uU" else ESCAPES.get(text, text)

    return re.sub(r"\\([xX][0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", replace, literal[1:-1])


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found.group()):03o}", escaped) + '"'
