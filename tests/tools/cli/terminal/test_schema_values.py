"""`triolog consume --schema-registry`: values of each kind of schema, decoded."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
import triolog
from google.protobuf import struct_pb2
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support.registry_client import RegistryClient, record

from ..conftest import Cli

pytest.importorskip("avro", reason="the extra registry is not installed")

ORDER: Final = record(
    "shop.Order", "table: int", "drink: Drink", {"name": "raw", "type": ["null", "bytes", {"type": "map", "values": "bytes"}]}
)
DRINK: Final = record("shop.Drink", "name: string")
PROTO: Final = """syntax = "proto3";
import "google/protobuf/struct.proto";
import "drink.proto";
message Other {}
message Order { message Line { Drink drink = 1; google.protobuf.Value more = 2; } }
"""


def head(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4)


@pytest.fixture
def registry(broker: BlockingBroker) -> RegistryClient:
    broker.create_topic("t")
    return RegistryClient(broker.schema_registry_url)


def consumed(cli: Cli, registry: RegistryClient, *arguments: str) -> list[tuple[Any, Any]]:
    lines = cli.lines("consume", "t", "--schema-registry", registry.url, *arguments)
    return [(each["key"], each["value"]) for each in lines]


def test_values_of_avro_come_as_json(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    registry.register("drink", DRINK)
    reference = {"name": "shop.Drink", "subject": "drink", "version": 1}
    order, text = registry.register("t-value", ORDER, references=[reference]), registry.register("t-key", '"string"')
    values = [b"\x0e\x02x\x00", b"\x0e\x02x\x02\x04\xff\xfe", b"\x0e\x02x\x04\x02\x02k\x02b\x00"]
    broker.append("t", [(None, head(text) + b"\x02k", head(order) + each, ()) for each in values])
    broker.append("t", [(None, b"plain", b"\1plain", ()), (None, None, None, ())])
    common = {"table": 7, "drink": {"name": "x"}}
    assert consumed(cli, registry) == [
        ("k", {**common, "raw": None}),
        ("k", {**common, "raw": {"base64": "//4="}}),
        ("k", {**common, "raw": {"k": "b"}}),
        ("plain", "\1plain"),
        (None, None),
    ]
    raw = cli.ok("consume", "t", "--schema-registry", registry.url, "--format", "raw", "--max", "1")
    assert json.loads(raw) == {**common, "raw": None}
    assert '"table":7' in cli.ok("consume", "t", "--schema-registry", registry.url, "--format", "table", "--max", "1")


def test_values_of_json_schema_and_protobuf_come_as_json(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    registry.register("drink", 'syntax = "proto3"; message Drink { string long_name = 1; }', schemaType="PROTOBUF")
    references = [{"name": "drink.proto", "subject": "drink", "version": 1}]
    proto = registry.register("line", PROTO, schemaType="PROTOBUF", references=references)
    plain = registry.register("json", '{"type":"object"}', schemaType="JSON")
    more = struct_pb2.Value(number_value=7).SerializeToString()
    message = b"\x0a\x03\x0a\x01x" + b"\x12" + bytes([len(more)]) + more
    broker.append("t", [(None, None, head(proto) + b"\x04\x02\x00" + message, ()), (None, None, head(proto) + b"\0", ())])
    broker.append("t", [(None, None, head(plain) + b'{"a": [1]}', ())])
    assert [value for _, value in consumed(cli, registry)] == [{"drink": {"long_name": "x"}, "more": 7.0}, {}, {"a": [1]}]


@pytest.mark.parametrize("value", [b"", b"\x0e", b"\x0e\x80", b"\x0e\x01", b"\x0e\x02x\x7f"])
def test_a_value_that_does_not_fit_its_schema_ends_with_the_reason(
    cli: Cli, broker: BlockingBroker, registry: RegistryClient, value: bytes
) -> None:
    registry.register("drink", DRINK)
    reference = {"name": "shop.Drink", "subject": "drink", "version": 1}
    broker.append("t", [(None, None, head(registry.register("t-value", ORDER, references=[reference])) + value, ())])
    assert "cannot be decoded by schema 2" in cli.refused("consume", "t", "--schema-registry", registry.url)


def test_an_unknown_schema_and_a_missing_registry_end_with_the_reason(
    cli: Cli, broker: BlockingBroker, registry: RegistryClient
) -> None:
    broker.append("t", [(None, None, head(7) + b"x", ())])
    assert "Schema 7 not found" in cli.refused("consume", "t", "--schema-registry", registry.url)
    missing = cli.refused("consume", "t", "--schema-registry", "http://127.0.0.1:1", code=3)
    assert "no response from the schema registry at 127.0.0.1:1" in missing
    assert "expected a URL" in cli.refused("consume", "t", "--schema-registry", "127.0.0.1:8081", code=2)


def test_a_user_of_the_url_logs_in(cli: Cli, broker: BlockingBroker, registry: RegistryClient) -> None:
    """At a registry with users, which another broker has."""
    with triolog.blocking.open(MEMORY, kafka="127.0.0.1:0", users={"bob": "x:y/z"}) as other:
        url = other.schema_registry_url
        schema_id = RegistryClient(url, "bob", "x:y/z").register("s", '"int"')
        broker.append("t", [(None, None, head(schema_id) + b"\x0e", ())])
        assert "Unauthorized" in cli.refused("consume", "t", "--schema-registry", url)
        lines = cli.lines("consume", "t", "--schema-registry", url.replace("://", "://bob:x%3Ay%2Fz@"))
        assert [each["value"] for each in lines] == [7]
