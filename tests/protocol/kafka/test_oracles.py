"""Bytes and declarations of messages in every served version, against kafka-python, which is made from Kafka's schemas.
Where messages name topics, groups and the rest: what rules, error answers and the log of requests go by.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Final

import pytest
from triolog.protocol.kafka import apis
from triolog.protocol.kafka.apis import APIS, ApiKey, ApiTable
from triolog.protocol.kafka.messages import offsets
from triolog.protocol.kafka.messages.configs import DescribeConfigsResource
from triolog.protocol.schema import codec
from triolog.protocol.schema.fields import INT16_MAX, Entity

from tests.support.counts import seeds
from tests.support.kafka_oracles import LACKING, NEWER, KafkaPython, declared_here
from tests.support.kafka_values import MESSAGES, random_value, without_absent

KAFKA_PYTHON: Final = KafkaPython()
KNOWN: Final = [message for message in MESSAGES if KAFKA_PYTHON.knows(message)]


def test_the_rest_is_compared_with_kafkas_own_files_alone() -> None:
    """In the merge tier, by `kafka/test_message_definitions.py`."""
    rest = {(message.api.name, message.version) for message in MESSAGES if message not in KNOWN}
    assert {name for name, _ in rest - NEWER} == LACKING
    assert rest >= NEWER


def test_both_write_the_same_bytes_and_each_reads_them_as_the_value() -> None:
    for message, seed in product(KNOWN, seeds(30)):
        value = random_value(message.cls, message.version, Random(seed))
        theirs = KAFKA_PYTHON.encode(message, value)
        assert b"".join(codec.write(value, message.version, flexible=message.flexible)) == theirs, message
        assert KAFKA_PYTHON.decode(message, theirs) == value, message
        read = codec.read(message.cls, message.version, memoryview(theirs), flexible=message.flexible)
        assert read == (value, len(theirs)), message


def test_fields_are_declared_as_in_kafkas_schema() -> None:
    for message in KNOWN:
        assert declared_here(message.cls, message.version) == KAFKA_PYTHON.declared(message), message


def test_fields_that_a_version_lacks_are_left_out_and_read_as_their_defaults() -> None:
    for message, seed in product(MESSAGES, seeds(30)):
        value = random_value(message.cls, message.version, Random(seed), absent_too=True)
        data = b"".join(codec.write(value, message.version, flexible=message.flexible))
        read = codec.read(message.cls, message.version, memoryview(data), flexible=message.flexible)
        assert read == (without_absent(value, message.version), len(data)), message


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
    for message in KNOWN:
        first, _, _ = KAFKA_PYTHON.schema(message)._json["flexibleVersions"].partition("+")
        assert message.flexible == (first != "none" and message.version >= int(first)), message


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
