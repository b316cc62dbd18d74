"""Metadata: topics in every version, made by being asked for, by id, offline. FindCoordinator: this broker, for all keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import INT32_MIN
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.listeners.kafka.door import NO_TOPIC_ID

from tests.support.brokers import actor_of
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

VERSIONS = range(14)
GROUP, TRANSACTION, SHARE = 0, 1, 2


def asking(*names: str | None, topic_id: bytes = NO_TOPIC_ID, may_create: bool = False, with_operations: bool = False) -> Any:
    return ask(
        "Metadata",
        topics=[{"topic_id": topic_id, "name": name} for name in names],
        allow_auto_topic_creation=may_create,
        include_cluster_authorized_operations=with_operations,
        include_topic_authorized_operations=with_operations,
    )


def asking_for_all() -> Any:
    return ask("Metadata", topics=None, include_cluster_authorized_operations=False, include_topic_authorized_operations=False)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_described_as_far_as_the_version_goes(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    answer = await client.call(asking(TOPIC), version)
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (kafka.broker.node_id, *kafka.address)
    assert answer.controller_id == (broker.node_id if version >= 1 else -1)
    assert answer.cluster_id == (kafka.broker.cluster_id if version >= 2 else None)
    [topic] = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, TOPIC, False)
    assert topic.topic_id == (kafka.topic_id() if version >= 10 else NO_TOPIC_ID)
    for number, partition in enumerate(topic.partitions):
        assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, number, broker.node_id)
        assert partition.replica_nodes == partition.isr_nodes == [broker.node_id]
        assert partition.offline_replicas == []
        assert partition.leader_epoch == (0 if version >= 7 else -1)
    assert len(topic.partitions) == 3


async def test_all_topics_are_a_null_list_and_in_version_0_an_empty_one(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("another")
    for version in VERSIONS:
        answer = await client.call(asking_for_all() if version else asking(), version)
        assert [topic.name for topic in answer.topics] == ["another", TOPIC], version
    for version in VERSIONS[1:]:
        answer = await client.call(asking(), version)
        assert (answer.topics, len(answer.brokers)) == ([], 1), version


async def test_a_topic_that_is_named_twice_is_answered_once(client: KafkaStream) -> None:
    answer = await client.call(asking(TOPIC, "missing", TOPIC, "missing"), 9)
    assert [topic.name for topic in answer.topics] == [TOPIC, "missing"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_topic_is_made_when_the_request_lets_it(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    """Before version 4 every request does. The answer has it already."""
    answer = await client.call(asking("new", may_create=True), version)
    assert [(topic.error_code, topic.name, len(topic.partitions)) for topic in answer.topics] == [(0, "new", 1)]
    refused = await client.call(asking("other", may_create=False), version)
    assert refused.topics[0].error_code == (0 if version < 4 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert ("other" in kafka.broker.topics.names()) is (version < 4)


async def test_a_topic_that_was_just_deleted_is_unknown_once_more_and_made(kafka: KafkaServer, client: KafkaStream) -> None:
    """Whoever deletes a topic and waits until it is gone sees that it is, as with Kafka."""
    for _ in range(2):
        await kafka.broker.topics.delete(TOPIC)
        codes = [(await client.call(asking(TOPIC, may_create=True), 9)).topics[0].error_code for _ in range(2)]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


async def test_no_topic_is_made_where_the_server_does_not_let_it(fast_path: Path) -> None:
    async with kafka_server(fast_path, auto_create_topics_enable=False) as kafka, kafka.connected() as client:
        answer = await client.call(asking("new", may_create=True), 9)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert list(kafka.broker.topics.names()) == []


async def test_a_topic_that_is_made_has_as_many_partitions_as_the_server_says(fast_path: Path) -> None:
    async with kafka_server(fast_path, num_partitions=7) as kafka, kafka.connected() as client:
        answer = await client.call(asking("new", may_create=True), 9)
        assert len(answer.topics[0].partitions) == 7


@pytest.mark.parametrize("may_create", [True, False])
async def test_a_name_that_no_topic_can_have_is_refused(kafka: KafkaServer, client: KafkaStream, may_create: bool) -> None:
    await kafka.broker.topics.create("a.b")
    assert (await client.call(asking("a_b", may_create=True), 9)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    for name in ("", "..", "with space", "x" * 250, "\u00e4"):
        answer = await client.call(asking(name, may_create=may_create), 9)
        assert [(topic.error_code, topic.name) for topic in answer.topics] == [(ErrorCode.INVALID_TOPIC_EXCEPTION, name)]


async def test_an_internal_topic_is_marked_and_not_made_by_its_name(client: KafkaStream, kafka: KafkaServer) -> None:
    """It is made when it is needed; until then a client may ask again."""
    [topic] = (await client.call(asking("__consumer_offsets", may_create=True), 9)).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    await kafka.broker.offsets.commit("group", [(TopicPartition(TOPIC, 0), 1, None)])
    answer = await client.call(asking_for_all(), 9)
    assert {topic.name: topic.is_internal for topic in answer.topics} == {"__consumer_offsets": True, TOPIC: False}


@pytest.mark.parametrize("version", VERSIONS[10:])
async def test_a_topic_is_found_by_its_id_from_version_12_on(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    """An answer of the versions before cannot leave a name out."""
    for topic_id, error, name in ((kafka.topic_id(), 0, TOPIC), (b"\x07" * 16, ErrorCode.UNKNOWN_TOPIC_ID, None)):
        [topic] = (await client.call(asking(None, topic_id=topic_id, may_create=version >= 12), version)).topics
        expected = (error, name) if version >= 12 else (ErrorCode.INVALID_REQUEST, "")
        assert (topic.error_code, topic.name, topic.topic_id) == (*expected, topic_id)


async def test_neither_a_name_nor_an_id_is_refused(client: KafkaStream) -> None:
    for version in VERSIONS[10:]:
        [topic] = (await client.call(asking(None), version)).topics
        assert topic.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_TOPIC_EXCEPTION)


async def test_operations_are_told_where_they_are_asked_for_also_of_a_missing_topic(client: KafkaStream) -> None:
    for version in VERSIONS[8:]:
        answer = await client.call(asking(TOPIC, "missing"), version)
        assert {topic.topic_authorized_operations for topic in answer.topics} == {INT32_MIN}
        assert answer.cluster_authorized_operations == INT32_MIN
    [topic] = (await client.call(asking("nowhere", with_operations=True), 8)).topics
    assert topic.error_code != 0
    assert topic.topic_authorized_operations != INT32_MIN


async def test_clients_are_sent_where_they_came_from_or_where_they_are_told(fast_path: Path) -> None:
    advertised = Address("broker.example", 19092)
    async with kafka_server(fast_path, door={"advertised": advertised}) as kafka, kafka.connected() as client:
        [broker] = (await client.call(asking(), 9)).brokers
        assert (broker.host, broker.port) == advertised


async def test_a_partition_that_is_offline_has_no_leader(kafka: KafkaServer, client: KafkaStream) -> None:
    actor_of(kafka.broker, TopicPartition(TOPIC, 1)).take_offline("the test says so")
    [topic] = (await client.call(asking(TOPIC), 9)).topics
    assert [(each.error_code, each.leader_id) for each in topic.partitions] == [
        (0, kafka.broker.node_id),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (0, kafka.broker.node_id),
    ]
    assert topic.partitions[1].offline_replicas == [kafka.broker.node_id]


def asking_for_coordinators(*keys: str, key_type: int = GROUP) -> Any:
    return ask("FindCoordinator", key=keys[0] if keys else "", key_type=key_type, coordinator_keys=list(keys))


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
async def test_keys_are_answered_with_this_broker_in_order(kafka: KafkaServer, client: KafkaStream, key_type: int) -> None:
    here = (0, kafka.broker.node_id, *kafka.address)
    for version in range(4):
        answer = await client.call(asking_for_coordinators("key", key_type=key_type), version)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == here, version
        assert answer.coordinators == [], version
    for version in range(4, 7):
        answer = await client.call(asking_for_coordinators("b", "a", "b", key_type=key_type), version)
        found = [(each.key, each.error_code, each.node_id, each.host, each.port) for each in answer.coordinators]
        assert found == [(key, *here) for key in ("b", "a", "b")], version
        assert (await client.call(asking_for_coordinators(), version)).coordinators == [], version


@pytest.mark.parametrize("key_type", [SHARE, 77, -1])
async def test_other_kinds_have_no_coordinator(client: KafkaStream, key_type: int) -> None:
    for version in range(1, 7):
        answer = await client.call(asking_for_coordinators("key", key_type=key_type), version)
        only = answer if version < 4 else answer.coordinators[0]
        assert (only.error_code, only.node_id, only.host, only.port) == (ErrorCode.INVALID_REQUEST, -1, "", -1), version
        assert only.error_message, version
