"""Serializers of Confluent's client, unchanged, against the registry."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from triolog.server.embedded import BlockingBroker

from tests.support.registry_client import RegistryClient, record

pytest.importorskip("authlib", reason="confluent-kafka[schemaregistry] is not installed")

from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory, struct_pb2, timestamp_pb2
from triolog.server.registry.formats.proto_reader import read_proto

CONTEXT: Final = SerializationContext("orders", MessageField.VALUE)
ORDER: Final = json.dumps(record("Order", "drink: string"))
JSON_ORDER: Final = json.dumps({"title": "Order", "type": "object", "properties": {"drink": {"type": "string"}}})
PROTO_ORDER: Final = """syntax = "proto3";
package triolog.tests;

import "google/protobuf/timestamp.proto";

message Order {
  string drink = 1;
  google.protobuf.Timestamp at = 2;
}
"""
FOR_PROTOBUF: Final = {"use.deprecated.format": False}


@pytest.fixture
def client(broker: BlockingBroker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
        yield client


def coded(kind: str, client: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    """(serializer, deserializer, a value)"""
    if kind == "AVRO":
        return AvroSerializer(client, ORDER), AvroDeserializer(client), {"drink": "espresso"}
    if kind == "JSON":
        # Its format checker compiles 39 grammars: a second in each process that collects this file.
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        return JSONSerializer(JSON_ORDER, client), JSONDeserializer(None, schema_registry_client=client), {"drink": "espresso"}
    order = message_of_a_program()
    serializer = ProtobufSerializer(order, client, {**FOR_PROTOBUF, "skip.known.types": False})
    deserializer = ProtobufDeserializer(order, FOR_PROTOBUF, client)
    return serializer, deserializer, order(drink="espresso", at=timestamp_pb2.Timestamp(seconds=7))


@functools.cache
def message_of_a_program() -> Any:
    """A class as protoc generates it, of a file that imports another one."""
    assert timestamp_pb2.DESCRIPTOR
    file = read_proto(PROTO_ORDER)
    file.name = "tests_of_the_registry.proto"
    found = descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(found.message_types_by_name["Order"])


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_values_of_each_kind_come_back(client: SchemaRegistryClient, kind: str) -> None:
    serialize, deserialize, value = coded(kind, client)
    data = serialize(value, CONTEXT)
    assert deserialize(data, CONTEXT) == value
    stored = client.get_latest_version("orders-value")
    assert (int.from_bytes(data[1:5]), kind) == (stored.schema_id, stored.schema.schema_type)
    if kind == "PROTOBUF":
        assert stored.schema.schema_str == PROTO_ORDER
        assert [each.subject for each in stored.schema.references] == ["google/protobuf/timestamp.proto"]


def test_a_protobuf_schema_of_a_client_is_text_in_the_registry(client: SchemaRegistryClient, registry: RegistryClient) -> None:
    """Its own options are lost in none of the forms."""
    ProtobufSerializer(struct_pb2.Struct, client, FOR_PROTOBUF)(struct_pb2.Struct(), CONTEXT)
    text = registry.get("/subjects/orders-value/versions/latest")["schema"]
    assert text.startswith('syntax = "proto3";\npackage google.protobuf;\n')
    assert "map<string, google.protobuf.Value> fields = 1;" in text
    assert registry.register("copy", text, schemaType="PROTOBUF") == 1
    serialized = registry.get("/subjects/orders-value/versions/latest?format=serialized")["schema"]
    assert registry.register("again", serialized, schemaType="PROTOBUF") == 1


def test_a_client_administers_the_registry(client: SchemaRegistryClient) -> None:
    schema = Schema(ORDER, "AVRO")
    assert client.register_schema("s", schema) == 1
    assert client.lookup_schema("s", schema).version == 1
    assert client.get_subjects() == ["s"]
    assert client.get_versions("s") == [1]
    assert client.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
    guid = client.register_schema_full_response("t", schema).guid
    assert json.loads(client.get_schema_by_guid(guid).schema_str) == json.loads(client.get_schema(1).schema_str)
    client.set_config("s", ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("s").compatibility_level == ConfigCompatibilityLevel.FULL
    assert not client.test_compatibility("s", Schema(json.dumps(record("Order", "table: int")), "AVRO"))
    with pytest.raises(SchemaRegistryError) as raised:
        client.register_schema("s", Schema(json.dumps(record("Order", "table: int")), "AVRO"))
    assert (raised.value.http_status_code, raised.value.error_code) == (409, 409)
    references = [SchemaReference("Order", "s", 1)]
    assert client.register_schema("u", Schema(json.dumps(record("Use", "order: Order")), "AVRO", references)) == 2
    assert client.delete_subject("u") == client.delete_subject("u", permanent=True) == [1]
    assert client.delete_version("s", 1) == 1
    assert client.get_subjects() == ["t"]
