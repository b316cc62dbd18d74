"""Protobuf schemas, as `.proto` text or as a serialized FileDescriptorProto in base64. Google's runtime decides whether they
are valid.

A reader is compatible if it reads the bytes of each message of the writer as the same values. Source: the language guides of
Protocol Buffers ("updating a message type"), and the rules of Confluent where they are stricter.

| change | compatible |
|---|---|
| a message is added, or a field that is not required | yes |
| a field is removed or renamed | yes, if it was not required and in no oneof |
| a value of an enum is added, removed or renamed | yes |
| a type changes into one that is `ALIKE`, such as int32 into int64, or string into bytes | yes |
| one field moves into a new oneof | yes |
| a message or the package is removed or renamed | no |
| a field has another type, or becomes repeated or single | no |
| two fields move into one oneof | no |
| extensions change | no, it cannot be decided |
"""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from ..errors import InvalidSchemaError
from .parsed import MAX_COMPARISONS, MAX_NESTING, Dependency
from .proto_reader import read_proto
from .proto_writer import write_proto

WELL_KNOWN: Final = frozenset(
    {"any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type", "wrappers"}
)
"""Files below google/protobuf that every schema may import."""
PREFIX: Final = "google/protobuf/"
MOST_VARINT_BYTES: Final = 10
ALIKE: Final = (
    frozenset({"int32", "uint32", "int64", "uint64", "bool"}),
    frozenset({"sint32", "sint64"}),
    frozenset({"fixed32", "sfixed32"}),
    frozenset({"fixed64", "sfixed64"}),
    frozenset({"string", "bytes"}),
)
"""Types whose bytes can be read as those of another one."""


@attrs.frozen
class ProtobufSchema:
    """See `Parsed`."""

    canonical: str
    _file: FileDescriptor

    @classmethod
    def parse(cls, text: str, dependencies: Sequence[Dependency]) -> ProtobufSchema:
        pool = descriptor_pool.DescriptorPool()
        known: set[str] = set()
        for each in dependencies:
            read = _read(each.schema)
            read.name = each.name
            if each.name not in known:
                _add(pool, read, known)
        file = _read(text)
        name = "schema.proto"
        while name in known:
            name = f"_{name}"
        file.name = name
        found = _add(pool, file, known)
        return cls(_canonical(text, file, found, pool), found)

    def normalized(self) -> str:
        file = _proto(self._file)
        text = write_proto(file)
        return text if _is_same(text, self._file) else self.canonical

    def serialized(self) -> str:
        """Return the descriptor in base64, as `format=serialized` wants it."""
        return base64.b64encode(_proto(self._file).SerializeToString(deterministic=True)).decode()

    def incompatibilities(self, writer: ProtobufSchema) -> list[str]:
        return list(_Comparison().of_files(self._file, writer._file))

    def decode(self, data: bytes) -> Any:
        """The message follows its place in the file: the number of indexes, and the indexes, as zigzag integers."""
        try:
            count, at = _zigzag(data, 0)
            indexes = []
            for _ in range(count):
                index, at = _zigzag(data, at)
                indexes.append(index)
            messages = list(self._file.message_types_by_name.values())
            first, *others = indexes or [0]
            message = messages[first]
            for each in others:
                message = message.nested_types[each]
            value = message_factory.GetMessageClass(message).FromString(data[at:])
            return json_format.MessageToDict(value, preserving_proto_field_name=True)
        except (IndexError, DecodeError, TypeError, json_format.Error) as exc:
            raise ValueError(f"the value is not one of its Protobuf schema: {exc!r}") from None


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the place after it. Raises IndexError, also for one of more than MOST_VARINT_BYTES: each byte of a
    longer one would cost more than the one before."""
    number = shift = 0
    while shift < 7 * MOST_VARINT_BYTES:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), at
    raise IndexError(f"a number of more than {MOST_VARINT_BYTES} bytes")


# ---- reading -------------------------------------------------------------------------------------------------------------


def _read(text: str) -> pb.FileDescriptorProto:
    """Raises InvalidSchemaError."""
    try:
        data = base64.b64decode(text.strip(), validate=True)
        file = pb.FileDescriptorProto.FromString(data)
    except (ValueError, binascii.Error, DecodeError):
        file = read_proto(text)
    else:
        if not _is_text(file):
            raise InvalidSchemaError("the descriptor has names or other text that is not UTF-8")
    if file.syntax not in ("", "proto2", "proto3"):
        raise InvalidSchemaError(f"syntax {file.syntax[:40]!r} is not supported, use proto2 or proto3")
    return _without_usual_names(file)


def _is_text(message: Message) -> bool:
    """Return whether all strings of a message are UTF-8: the library returns others as bytes."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.type == field.TYPE_STRING and not all(isinstance(each, str) for each in values):
            return False
        if field.type == field.TYPE_MESSAGE and not all(map(_is_text, values)):
            return False
    return True


def _add(pool: descriptor_pool.DescriptorPool, file: pb.FileDescriptorProto, known: set[str]) -> FileDescriptor:
    """Add a file, and the well-known ones that it imports. Raises InvalidSchemaError."""
    for name in file.dependency:
        if name in known:
            continue
        stem = name.removeprefix(PREFIX).removesuffix(".proto")
        if name != f"{PREFIX}{stem}.proto" or stem not in WELL_KNOWN:
            raise InvalidSchemaError(f"the schema imports {name[:200]}, which is not among its references")
        built_in = importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR
        _add(pool, pb.FileDescriptorProto.FromString(built_in.serialized_pb), known)
    plain = pb.FileDescriptorProto()
    plain.CopyFrom(file)
    for options in _options(plain):
        if options.uninterpreted_option:
            options.ClearField("uninterpreted_option")
    try:
        pool.AddSerializedFile(plain.SerializeToString())
        found = pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError, DecodeError) as exc:
        raise InvalidSchemaError(f"the schema is not valid: {str(exc)[:500]}") from None
    known.add(file.name)
    return found


def _options(file: pb.FileDescriptorProto) -> Iterator[Any]:
    """The options of everything in a file."""
    yield file.options
    messages = list(file.message_type)
    enums, extensions = list(file.enum_type), list(file.extension)
    for message in messages:
        messages += message.nested_type
        enums += message.enum_type
        extensions += (*message.extension, *message.field)
        yield message.options
        yield from (each.options for each in message.oneof_decl)
    for enum in enums:
        yield enum.options
        yield from (each.options for each in enum.value)
    yield from (each.options for each in extensions)
    for service in file.service:
        yield service.options
        yield from (each.options for each in service.method)


def _proto(file: FileDescriptor) -> pb.FileDescriptorProto:
    """Return the file with all its types resolved."""
    found = pb.FileDescriptorProto()
    file.CopyToProto(found)
    return _without_usual_names(found)


def _without_usual_names(file: pb.FileDescriptorProto) -> pb.FileDescriptorProto:
    """Leave out the names in JSON that follow from the names of fields, which only some descriptors have."""
    messages = list(file.message_type)
    for message in messages:
        messages += message.nested_type
        for field in message.field:
            first, *others = field.name.split("_")
            if field.json_name == "".join((first, *(each[:1].upper() + each[1:] for each in others))):
                field.ClearField("json_name")
    return file


def _canonical(text: str, file: pb.FileDescriptorProto, found: FileDescriptor, pool: descriptor_pool.DescriptorPool) -> str:
    """Return the schema as text without comments. A descriptor that text cannot express, for example one with the values of
    custom options, stays in base64."""
    written = write_proto(file)
    try:
        again = read_proto(written)
    except InvalidSchemaError:
        return text
    again.name = file.name
    return written if again == file or _is_same(written, found) else text


def _is_same(text: str, file: FileDescriptor) -> bool:
    """Return whether text means the same file."""
    try:
        again = read_proto(text)
        pool = descriptor_pool.DescriptorPool()
        known: set[str] = set()
        for each in _all_dependencies(file):
            pool.AddSerializedFile(each.serialized_pb)
            known.add(each.name)
        again.name = file.name
        is_same: bool = _proto(_add(pool, again, known)) == _proto(file)
    except InvalidSchemaError:
        return False
    return is_same


def _all_dependencies(file: FileDescriptor) -> list[FileDescriptor]:
    """Return the files that a file imports, each after those that it imports."""
    found: dict[str, FileDescriptor] = {}

    def visit(each: FileDescriptor) -> None:
        for dependency in each.dependencies:
            if dependency.name not in found:
                visit(dependency)
                found[dependency.name] = dependency

    visit(file)
    return list(found.values())


# ---- comparison ----------------------------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class _Comparison:
    """Compares pairs of messages, each once."""

    _seen: set[tuple[str, str]] = attrs.field(factory=set)

    def of_files(self, reader: FileDescriptor, writer: FileDescriptor) -> Iterator[str]:
        if _extensions(reader) != _extensions(writer):
            yield "extensions differ: it cannot be decided whether values of one are read by the other"
        readers = dict(_messages(reader.message_types_by_name.values()))
        for name, message in _messages(writer.message_types_by_name.values()):
            if name not in readers:
                yield f"message {name} is missing"
            else:
                yield from self._of_messages(readers[name], message)

    def _of_messages(self, reader: Descriptor, writer: Descriptor) -> Iterator[str]:
        stack = [(reader, writer)]
        while stack:
            new, old = stack.pop()
            if (new.full_name, old.full_name) in self._seen:
                continue
            self._seen.add((new.full_name, old.full_name))
            if len(self._seen) > MAX_COMPARISONS:
                yield f"the schemas are too large to compare: they have more than {MAX_COMPARISONS} pairs of messages"
                return
            fields = {each.number: each for each in old.fields}
            for field in new.fields:
                before = fields.pop(field.number, None)
                if before is None:
                    if field.is_required:
                        yield f"field {field.full_name} is required, and new"
                    continue
                yield from _differences(field, before)
                if field.message_type is not None and before.message_type is not None:
                    stack.append((field.message_type, before.message_type))
            for field in fields.values():
                if field.is_required:
                    yield f"field {field.full_name} was required, and is missing"
                if _oneof(field) is not None:
                    yield f"field {field.full_name} of oneof {_oneof(field)} is missing"
            yield from _moved_together(new, old)


def _differences(new: FieldDescriptor, old: FieldDescriptor) -> Iterator[str]:
    kinds = _kind(new), _kind(old)
    if kinds[0] != kinds[1] and not any(kinds[0] in group and kinds[1] in group for group in ALIKE):
        yield f"field {new.full_name} is {kinds[0]}, and was {kinds[1]}"
    if new.is_repeated != old.is_repeated:
        yield f"field {new.full_name} {'becomes' if new.is_repeated else 'is no longer'} repeated"
    if new.is_required and not old.is_required:
        yield f"field {new.full_name} becomes required"


def _kind(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return f"message {field.message_type.full_name}"
    if field.enum_type is not None:
        return f"enum {field.enum_type.full_name}"
    return str(pb.FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


def _oneof(field: FieldDescriptor) -> str | None:
    """The name of the oneof of a field; None also for the one of an optional field."""
    oneof = field.containing_oneof
    return None if oneof is None or (oneof.name.endswith(f"_{field.name}") and len(oneof.fields) == 1) else str(oneof.name)


def _moved_together(new: Descriptor, old: Descriptor) -> Iterator[str]:
    fields: Mapping[int, FieldDescriptor] = {each.number: each for each in old.fields}
    for oneof in new.oneofs:
        before = [_oneof(fields[each.number]) for each in oneof.fields if each.number in fields]
        if len(before) > 1 and (None in before or len(set(before)) > 1):
            yield f"fields of {new.full_name} move into oneof {oneof.name} together"


def _messages(messages: Any, level: int = 0) -> Iterator[tuple[str, Descriptor]]:
    if level > MAX_NESTING:
        raise InvalidSchemaError(f"the schema is nested more than {MAX_NESTING} levels deep")
    for each in messages:
        yield each.full_name, each
        yield from _messages(each.nested_types, level + 1)


def _extensions(file: FileDescriptor) -> set[tuple[str, int, str]]:
    messages = [each for _, each in _messages(file.message_types_by_name.values())]
    fields = [*file.extensions_by_name.values(), *(field for each in messages for field in each.extensions)]
    return {(each.containing_type.full_name, each.number, _kind(each)) for each in fields}
