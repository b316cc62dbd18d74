"""Protobuf schemas: text and descriptors, and which changes a reader survives."""

from __future__ import annotations

import base64
from typing import Any, Final

import pytest
from google.protobuf import any_pb2, api_pb2, descriptor_pb2, duration_pb2, struct_pb2, type_pb2, wrappers_pb2
from triolog.server.registry.errors import InvalidSchemaError
from triolog.server.registry.formats.parsed import Dependency
from triolog.server.registry.formats.parsing import parse
from triolog.server.registry.formats.proto_reader import read_proto
from triolog.server.registry.formats.proto_writer import write_proto

EVERYTHING: Final = """syntax = "proto2";
package a.b;

import "google/protobuf/timestamp.proto";

option java_package = "x.\\"y";
option optimize_for = SPEED;
option (my.file) = { a : 1 b : "x" };

message Order {
  option deprecated = true;
  reserved 4, 6 to 8, 100 to max;
  reserved "old";
  required int32 table = 1 [default = -7, (my.field) = "x"];
  optional string drink = 2 [default = "a\\"b", json_name = "D"];
  repeated Kind kinds = 3 [packed = true];
  map<string, Order.Item> items = 5;
  oneof paid {
    option (my.oneof) = true;
    bool cash = 9;
    google.protobuf.Timestamp later = 10;
  }
  optional double price = 11 [default = inf];
  extensions 20 to 30;

  message Item {
    optional bytes option = 1;
  }

  enum State {
    option allow_alias = true;
    reserved 5, 7 to max;
    reserved "GONE";
    NEW = 0;
    FRESH = 0 [deprecated = true];
  }
}

enum Kind {
  HOT = 0;
  COLD = -1;
}

extend Order {
  optional int32 extra = 20;
}

service Bar {
  option deprecated = false;
  rpc Get (Order) returns (stream Order.Item);
  rpc Put (stream Order) returns (Order) {
    option idempotency_level = IDEMPOTENT;
  }
}
"""


def proto(body: str, syntax: str = "proto3", package: str = "p") -> str:
    return f'syntax = "{syntax}";\npackage {package};\n{body}\n'


def schema(text: str, *dependencies: Dependency) -> Any:
    return parse("PROTOBUF", text, dependencies)


def test_text_is_written_as_it_was_read() -> None:
    assert write_proto(read_proto(EVERYTHING)) == EVERYTHING
    assert schema(EVERYTHING).canonical == EVERYTHING


def test_comments_and_white_space_are_not_part_of_a_schema() -> None:
    text = '// a\nsyntax="proto3";/* b\n */package p;message A{;int32 x=1;//c\nrepeated  .p . A  b = 0x2 ;}'
    assert schema(text).canonical == proto("\nmessage A {\n  int32 x = 1;\n  repeated p.A b = 2;\n}")


@pytest.mark.parametrize("module", [any_pb2, api_pb2, descriptor_pb2, duration_pb2, struct_pb2, type_pb2, wrappers_pb2])
def test_a_descriptor_keeps_its_meaning_as_text(module: Any) -> None:
    """Files of Google's. Where text cannot say it all, the descriptor stays."""
    given = schema(base64.b64encode(module.DESCRIPTOR.serialized_pb).decode())
    again = schema(given.canonical)
    assert again.normalized() == given.normalized()
    assert again.canonical == given.canonical
    assert given.incompatibilities(again) == again.incompatibilities(given) == []
    read = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(given.serialized()))
    assert [each.name for each in read.message_type] == list(module.DESCRIPTOR.message_types_by_name)


def test_normalized_text_has_full_names() -> None:
    first, second = (schema(proto(f"message A {{}}\nmessage B {{\n  {name} a = 1;\n}}")) for name in ("A", "p.A"))
    assert first.canonical != second.canonical
    assert first.normalized() == second.normalized()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message", "expected word"),
        ("message A {", "line 1"),
        ("\n\nmessage A { int32 x = 1 }", "line 3"),
        ("message A { int32 x = 1; }", "has a label"),
        (proto("message A { required int32 x = 1; }"), "no required fields"),
        (proto("message A { int32 x = 0; }"), "not valid"),
        (proto("message A { int32 x = 1; int32 y = 1; }"), "not valid"),
        (proto("message A { Missing x = 1; }"), "not valid"),
        (proto("message A {} message A {}"), "not valid"),
        (proto("enum E { A = 1; }"), "not valid"),
        (proto('import "other.proto";'), "not among its references"),
        (proto('import "google/protobuf/../x.proto";'), "not among its references"),
        (proto("message A { int32 x = 99999999999999999999999; }"), "too large"),
        (proto("message A { int32 x = 9999999999; }"), "invalid value"),
        (proto("message A { map<Missing> x = 1; }"), "expected ','"),
        (proto("message A { int32 x = 1 [packed = maybe]; }"), "invalid value"),
        (proto("message A { optional group G = 1 {} }", "proto2"), "groups"),
        ('edition = "2023";', "editions"),
        ('syntax = "proto4";', "neither proto2 nor proto3"),
        ("§", "unexpected"),
        ('"', "unexpected"),
        ("7", "unexpected"),
        ("option x = {", "expected"),
        ("message A { " * 5000, "nested"),
        ('option java_package = "\ud800";', "surrogates"),
        (base64.b64encode(b"abc\xff").decode(), "line 1"),
        (base64.b64encode(b"\x1a\x01\xff").decode(), "not UTF-8"),  # the name of an import
        (base64.b64encode(b"\x22\x05\x12\x03\x0a\x01\xff").decode(), "not UTF-8"),  # the name of a field
        (base64.b64encode(b"\x42\x03\x0a\x01\xff").decode(), "not UTF-8"),  # an option
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_what_is_not_a_schema_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        schema(text)


def test_imports_are_references() -> None:
    drink = Dependency("shop/drink.proto", proto("message Drink { string name = 1; }", package="shop"))
    order = proto(
        'import "shop/drink.proto";\nimport "google/protobuf/timestamp.proto";\n'
        "message Order {\n  shop.Drink drink = 1;\n  google.protobuf.Timestamp at = 2;\n}"
    )
    first = schema(order, drink)
    changed = Dependency(drink.name, drink.schema.replace("string name", "int32 name"))
    assert first.incompatibilities(schema(order, drink)) == []
    assert "Drink.name" in first.incompatibilities(schema(order, changed))[0]


BASE: Final = "message A { int32 x = 1; string s = 2; oneof o { int32 a = 3; int32 b = 4; } repeated int32 r = 5; }"
CHANGES: Final = [
    # the reader's messages, whether it reads BASE
    (BASE, True),
    (BASE + " message B {}", True),
    (BASE.replace("int32 x = 1;", "int32 renamed = 1;"), True),
    (BASE.replace("int32 x = 1;", ""), True),
    (BASE.replace("int32 x = 1;", "int32 x = 1; int32 y = 9;"), True),
    (BASE.replace("int32 x", "int64 x"), True),
    (BASE.replace("int32 x", "bool x"), True),
    (BASE.replace("string s", "bytes s"), True),
    (BASE.replace("int32 x", "optional int32 x"), True),
    (BASE.replace("int32 x", "sint32 x"), False),
    (BASE.replace("int32 x", "string x"), False),
    (BASE.replace("int32 x", "A x"), False),
    (BASE.replace("int32 x", "repeated int32 x"), False),
    (BASE.replace("repeated int32 r", "int32 r"), False),
    (BASE.replace("int32 b = 4;", ""), False),
    (BASE.replace("oneof o {", "oneof o { int32 x = 1; ").replace("A { int32 x = 1;", "A {"), False),
    (BASE.replace("int32 x = 1;", "oneof n { int32 x = 1; }"), True),
    (BASE.replace("int32 x = 1; string s = 2;", "oneof n { int32 x = 1; string s = 2; }"), False),
    (BASE.replace("message A", "message B"), False),
]


@pytest.mark.parametrize(("changed", "reads"), CHANGES)
def test_the_table_of_changes(changed: str, reads: bool) -> None:
    found = schema(proto(changed)).incompatibilities(schema(proto(BASE)))
    assert (found == []) is reads, found


@pytest.mark.parametrize(
    ("reader", "writer", "reads"),
    [
        ("message A { required int32 x = 1; }", "message A { required int32 x = 1; }", True),
        ("message A { required int32 x = 1; }", "message A { optional int32 x = 1; }", False),
        ("message A { required int32 x = 1; }", "message A {}", False),
        ("message A {}", "message A { required int32 x = 1; }", False),
        ("message A { optional E e = 1; } enum E { X = 0; }", "message A { optional E e = 1; } enum E { Y = 1; }", True),
        ("message A { extensions 1; } extend A { optional int32 x = 1; }", "message A { extensions 1; }", False),
        ("message A { message B { optional A a = 1; } }", "message A { message B { optional A a = 1; } }", True),
        ("message A {}", "message A { message B {} }", False),
    ],
)
def test_changes_of_proto2_and_of_messages_in_messages(reader: str, writer: str, reads: bool) -> None:
    found = schema(proto(reader, "proto2")).incompatibilities(schema(proto(writer, "proto2")))
    assert (found == []) is reads, found


def test_another_package_has_other_messages() -> None:
    assert schema(proto("message A {}", package="q")).incompatibilities(schema(proto("message A {}"))) != []


def test_a_value_with_a_number_without_end_is_refused_after_its_first_bytes() -> None:
    for start in (b"", b"\x02"):  # the number of indexes, and an index
        with pytest.raises(ValueError, match="a number of more than 10 bytes"):
            schema(proto("message A {}")).decode(start + b"\xff" * 1000)
