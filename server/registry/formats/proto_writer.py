"""Writes `.proto` files: FileDescriptorProto to text, in the layout of Confluent's registry. The text lacks what only a
descriptor can have, such as the values of custom options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from .proto_reader import FIELD_NUMBERS, LABELS, SCALARS, quoted

NAMES: Final = {number: name for name, number in SCALARS.items()}


def write_proto(file: pb.FileDescriptorProto) -> str:
    """Return the text of a file. It lacks what only a descriptor can have."""
    return "\n".join(_file_lines(file)) + "\n"


def _file_lines(file: pb.FileDescriptorProto) -> Iterator[str]:
    yield f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield f"package {file.package};"
    if file.dependency:
        yield ""
    for index, name in enumerate(file.dependency):
        kind = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
        yield f"import {kind}{quoted(name)};"
    options = list(_option_texts(file.options))
    if options:
        yield ""
    yield from (f"option {each};" for each in options)
    for message in file.message_type:
        yield ""
        yield from _message_lines(message, file.syntax)
    for enum in file.enum_type:
        yield ""
        yield from _enum_lines(enum)
    yield from _extend_lines(file.extension, file.syntax)
    for service in file.service:
        yield ""
        yield from _service_lines(service)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" if line else "" for line in lines)


def _message_lines(message: pb.DescriptorProto, syntax: str) -> Iterator[str]:
    yield f"message {message.name} {{"
    yield from _indented(_message_body(message, syntax))
    yield "}"


def _message_body(message: pb.DescriptorProto, syntax: str) -> Iterator[str]:
    yield from (f"option {each};" for each in _option_texts(message.options))
    yield from _reserved_lines(message, FIELD_NUMBERS, 1)
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    written: set[int] = set()
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            if field.oneof_index not in written:
                written.add(field.oneof_index)
                oneof = message.oneof_decl[field.oneof_index]
                fields = [
                    each for each in message.field if each.HasField("oneof_index") and each.oneof_index == field.oneof_index
                ]
                yield f"oneof {oneof.name} {{"
                yield from (f"  option {each};" for each in _option_texts(oneof.options))
                yield from (f"  {_field_line(each, '', {})}" for each in fields)
                yield "}"
        else:
            yield _field_line(field, _label(field, syntax), maps)
    for each in message.extension_range:
        yield f"extensions {_range(each.start, each.end - 1, FIELD_NUMBERS - 1)};"
    for nested in message.nested_type:
        if nested.name not in maps:
            yield ""
            yield from _message_lines(nested, syntax)
    for enum in message.enum_type:
        yield ""
        yield from _enum_lines(enum)
    yield from _extend_lines(message.extension, syntax)


def _label(field: pb.FieldDescriptorProto, syntax: str) -> str:
    if field.label == LABELS["repeated"]:
        return "repeated "
    if field.label == LABELS["required"]:
        return "required "
    return "optional " if field.proto3_optional or syntax != "proto3" else ""


def _field_line(field: pb.FieldDescriptorProto, label: str, maps: dict[str, pb.DescriptorProto]) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        kind, label = f"map<{_type_name(entry.field[0])}, {_type_name(entry.field[1])}>", ""
    else:
        kind = _type_name(field)
    options = []
    if field.HasField("default_value"):
        is_text = field.type in (SCALARS["string"], SCALARS["bytes"])
        options.append(f"default = {quoted(field.default_value) if is_text else field.default_value}")
    if field.HasField("json_name"):
        options.append(f"json_name = {quoted(field.json_name)}")
    options += _option_texts(field.options)
    return f"{label}{kind} {field.name} = {field.number}{_in_brackets(options)};"


def _in_brackets(options: Sequence[str]) -> str:
    return f" [{', '.join(options)}]" if options else ""


def _type_name(field: pb.FieldDescriptorProto) -> str:
    name: str = field.type_name or NAMES[field.type]
    return name.removeprefix(".")


def _extend_lines(extensions: Any, syntax: str) -> Iterator[str]:
    for field in extensions:
        yield ""
        yield f"extend {field.extendee.removeprefix('.')} {{"
        yield f"  {_field_line(field, _label(field, syntax), {})}"
        yield "}"


def _enum_lines(enum: pb.EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    yield from (f"  option {each};" for each in _option_texts(enum.options))
    yield from _indented(_reserved_lines(enum, 2**31, 0))
    for value in enum.value:
        options = list(_option_texts(value.options))
        yield f"  {value.name} = {value.number}{_in_brackets(options)};"
    yield "}"


def _reserved_lines(of: Any, most: int, exclusive: int) -> Iterator[str]:
    if of.reserved_range:
        ranges = (_range(each.start, each.end - exclusive, most - 1) for each in of.reserved_range)
        yield f"reserved {', '.join(ranges)};"
    if of.reserved_name:
        yield f"reserved {', '.join(map(quoted, of.reserved_name))};"


def _range(start: int, end: int, most: int) -> str:
    return str(start) if start == end else f"{start} to {'max' if end == most else end}"


def _service_lines(service: pb.ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from (f"  option {each};" for each in _option_texts(service.options))
    for method in service.method:
        sent, received = (
            f"({'stream ' if streams else ''}{name})"
            for streams, name in (
                (method.client_streaming, method.input_type.removeprefix(".")),
                (method.server_streaming, method.output_type.removeprefix(".")),
            )
        )
        options = list(_option_texts(method.options))
        yield f"  rpc {method.name} {sent} returns {received}{' {' if options else ';'}"
        yield from (f"    option {each};" for each in options)
        if options:
            yield "  }"
    yield "}"


def _option_texts(options: Any) -> Iterator[str]:
    for field, value in options.ListFields():
        if field.is_repeated:
            continue
        if field.enum_type is not None:
            yield f"{field.name} = {field.enum_type.values_by_number[value].name}"
        elif field.type == SCALARS["bool"] and field.name != "map_entry":
            yield f"{field.name} = {'true' if value else 'false'}"
        elif field.type == SCALARS["string"]:
            yield f"{field.name} = {quoted(value)}"
    for each in options.uninterpreted_option:
        yield f"{each.name[0].name_part} = {each.aggregate_value}"
