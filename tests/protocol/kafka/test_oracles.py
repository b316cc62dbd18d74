"""Bytes and declarations of every message in every served version, against two libraries made from Kafka's schemas.
What fields stand for, against kio's types, which are made from `entityType` in Kafka's schemas. Where messages name topics,
groups and the rest: what rules, error answers and the log of requests go by.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any, Final

import pytest
from kio.index import load_request_schema
from triolog.protocol.kafka import apis
from triolog.protocol.kafka.apis import APIS, GROUP_ID, PRODUCER_ID, TOPIC_NAME, TRANSACTIONAL_ID, ApiKey, ApiTable
from triolog.protocol.kafka.messages import offsets
from triolog.protocol.kafka.messages.configs import DescribeConfigsResource
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import INT16_MAX, Entity, Primitive, fields_of

from tests.support.counts import seeds
from tests.support.kafka_oracles import (
    NEWER,
    ORACLES,
    WITHOUT_KAFKA_PYTHON,
    WITHOUT_KIO,
    declared_here,
    kio_element,
    kio_name,
    kio_schema,
)
from tests.support.kafka_values import MESSAGES, random_value, without_absent


def test_every_message_has_an_oracle_and_nearly_every_one_has_both() -> None:
    unknown = {name: {message for message in MESSAGES if not oracle.knows(message)} for name, oracle in ORACLES.items()}
    newer = {message for message in MESSAGES if (message.api.name, message.version) in NEWER}
    assert len(newer) == 2 * len(NEWER)
    assert {(message.api.name, message.version) for message in unknown["kio"] - newer} == WITHOUT_KIO
    assert {message.api.name for message in unknown["kafka-python"] - newer} == WITHOUT_KAFKA_PYTHON
    assert unknown["kio"] & unknown["kafka-python"] == newer


@pytest.mark.parametrize("name", ORACLES)
def test_both_write_the_same_bytes_and_each_reads_them_as_the_value(name: str) -> None:
    oracle = ORACLES[name]
    for message, seed in product(filter(oracle.knows, MESSAGES), seeds(30)):
        value = random_value(message.cls, message.version, Random(seed), oracle.choose)
        theirs = oracle.encode(message, value)
        assert b"".join(codec.write(value, message.version, flexible=message.flexible)) == theirs, message
        assert oracle.decode(message, theirs) == value, message
        read = codec.read(message.cls, message.version, memoryview(theirs), flexible=message.flexible)
        assert read == (value, len(theirs)), message


@pytest.mark.parametrize("name", ORACLES)
def test_fields_are_declared_as_in_kafkas_schema(name: str) -> None:
    oracle = ORACLES[name]
    for message in filter(oracle.knows, MESSAGES):
        assert declared_here(message.cls, message.version) == oracle.declared(message), message


def test_fields_that_a_version_lacks_are_left_out_and_read_as_their_defaults() -> None:
    for message, seed in product(MESSAGES, seeds(30)):
        value = random_value(message.cls, message.version, Random(seed), absent_too=True)
        data = b"".join(codec.write(value, message.version, flexible=message.flexible))
        read = codec.read(message.cls, message.version, memoryview(data), flexible=message.flexible)
        assert read == (without_absent(value, message.version), len(data)), message


KAFKAS: Final = {"TopicName": TOPIC_NAME, "GroupId": GROUP_ID, "TransactionalId": TRANSACTIONAL_ID, "ProducerId": PRODUCER_ID}


def entities_here(cls: type, version: int, path: str = "") -> Iterator[tuple[str, Entity]]:
    for field in fields_of(cls, version):
        if not isinstance(field.element, Primitive):
            yield from entities_here(field.element, version, f"{path}{field.name}.")
        elif field.entity in KAFKAS.values():
            yield path + field.name, field.entity


def entities_of_kio(schema: Any, path: str = "") -> Iterator[tuple[str, Entity]]:
    for field in dataclasses.fields(schema):
        name = path + kio_name(field)
        if (inner := kio_element(field)) is not None:
            yield from entities_of_kio(inner, f"{name}.")
        yield from ((name, entity) for kind, entity in KAFKAS.items() if f"types.{kind}" in str(field.type))


def test_fields_stand_for_what_kafkas_schema_says() -> None:
    seen: set[Entity] = set()
    for message in filter(ORACLES["kio"].knows, MESSAGES):
        here = dict(entities_here(message.cls, message.version))
        assert here == dict(entities_of_kio(kio_schema(message))), message
        seen |= set(here.values())
    assert seen == set(KAFKAS.values())


def test_every_key_has_its_api_and_only_produce_is_advertised_below_what_is_read() -> None:
    assert set(APIS) == set(ApiKey)
    assert [api.key for api in APIS.values()] == list(APIS)
    for api in APIS.values():
        assert 0 <= api.lowest <= api.lowest_read <= api.highest, api.name
        assert api.first_flexible == INT16_MAX or 0 <= api.first_flexible <= api.highest, api.name
    assert [api.key for api in APIS.values() if api.lowest != api.lowest_read] == [ApiKey.PRODUCE]


def test_the_names_and_first_flexible_versions_are_kafkas() -> None:
    for api in APIS.values():
        assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
        for version in range(api.lowest_read, api.highest + 1):
            if (api.name, version) in WITHOUT_KIO | NEWER:
                assert api.is_flexible(version) == ((api.name, version) in NEWER), (api.name, version)
                continue
            schema = load_request_schema(api.key, version)
            assert schema.__name__ == f"{api.name}Request"
            assert schema.__flexible__ == api.is_flexible(version), (api.name, version)


@pytest.mark.parametrize(
    ("key", "entity", "paths"),
    [
        (ApiKey.PRODUCE, apis.TOPIC_NAME, ["topic_data"]),
        (ApiKey.FETCH, apis.TOPIC_NAME, ["topics"]),  # and not what it forgets
        (ApiKey.OFFSET_FETCH, apis.TOPIC_NAME, ["topics", "groups.topics"]),
        (ApiKey.OFFSET_FETCH, apis.GROUP_ID, ["groups"]),
        (ApiKey.DELETE_TOPICS, apis.TOPIC_NAME, ["topics", "topic_names"]),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, apis.TOPIC_NAME, ["dirs.topics"]),
        (ApiKey.ADD_PARTITIONS_TO_TXN, apis.TOPIC_NAME, ["v3_and_below_topics"]),  # version 4 is not read here
        (ApiKey.HEARTBEAT, apis.GROUP_ID, []),  # a field, not a list
        (
            ApiKey.STREAMS_GROUP_HEARTBEAT,
            apis.TOPIC_NAME,
            [
                f"topology.subtopologies.{name}"
                for name in ("source_topics", "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics")
            ],
        ),
    ],
)
def test_lists_are_found_at_any_depth_in_versions_that_are_read(key: ApiKey, entity: Entity, paths: list[str]) -> None:
    assert [path for path, _ in apis.lists_naming(APIS[key], APIS[key].request, (entity,))] == paths


@pytest.mark.parametrize(
    ("key", "entity", "paths"),
    [
        (ApiKey.OFFSET_FETCH, apis.GROUP_ID, ["group_id", "groups.group_id"]),
        (ApiKey.TXN_OFFSET_COMMIT, apis.TRANSACTIONAL_ID, ["transactional_id"]),
        (ApiKey.ADD_PARTITIONS_TO_TXN, apis.TRANSACTIONAL_ID, ["v3_and_below_transactional_id"]),
        (ApiKey.API_VERSIONS, apis.TOPIC_NAME, []),
    ],
)
def test_paths_lead_to_fields_and_elements(key: ApiKey, entity: Entity, paths: list[str]) -> None:
    assert list(apis.paths_to(APIS[key], APIS[key].request, entity)) == paths


def test_values_at_a_path_are_those_of_every_element_and_null_has_none() -> None:
    groups = [offsets.OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b")]
    groups[1].topics = [offsets.OffsetFetchRequestTopics(name="t")]
    request = offsets.OffsetFetchRequest(groups=groups)
    assert list(apis.values_at(request, "groups.group_id")) == ["a", "b"]
    assert list(apis.values_at(request, "groups.topics.name")) == ["t"]
    assert list(apis.values_at(request, "topics.name")) == []


def test_an_element_is_a_name_or_has_one() -> None:
    resource = DescribeConfigsResource(resource_type=2, resource_name="topic", configuration_keys=None)
    assert apis.names_of(DescribeConfigsResource) == {apis.RESOURCE_TYPE: "resource_type", apis.RESOURCE_NAME: "resource_name"}
    assert apis.name_in(resource, apis.RESOURCE_NAME) == "topic"
    assert apis.name_in("topic", apis.TOPIC_NAME) == "topic"
    assert apis.names_of(offsets.OffsetFetchRequestTopics) == {apis.TOPIC_NAME: "name", apis.TOPIC_ID: "topic_id"}


def test_a_table_has_a_row_for_each_api_and_makes_it_once() -> None:
    made: list[str] = []
    table = ApiTable(lambda api: made.append(api.name) or api.name.lower())
    assert list(table) == list(ApiKey)
    assert (len(table), table[ApiKey.FETCH], table[ApiKey.FETCH], made) == (len(APIS), "fetch", "fetch", ["Fetch"])
