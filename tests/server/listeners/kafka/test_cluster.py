"""DescribeCluster, DescribeQuorum, elections, reassignments, features: the answers of one node, which has nothing to move."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import INT32_MIN
from triolog.protocol.types import TopicPartition

from tests.support.brokers import actor_of
from tests.support.kafka_admin import error_names
from tests.support.kafka_server import TOPIC, KafkaServer
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

PREFERRED, UNCLEAN = 0, 1
QUORUM_TOPIC = "__cluster_metadata"
ALL_CLUSTER_OPERATIONS = 8096
"""What Kafka 4.3 answers where nobody is kept from anything."""


def cluster(*, operations: bool = False, endpoints: int = 1) -> Any:
    return ask(
        "DescribeCluster",
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoints,
        include_fenced_brokers=True,
    )


@pytest.mark.parametrize("version", range(3))
async def test_the_controller_is_a_node_that_is_listed(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    answer = await client.call(cluster(), version)
    assert (answer.error_code, answer.cluster_id) == (0, kafka.broker.cluster_id)
    [broker] = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (kafka.broker.node_id, *kafka.address)
    assert answer.controller_id == broker.broker_id
    assert not broker.is_fenced
    assert answer.cluster_authorized_operations == INT32_MIN
    assert (await client.call(cluster(operations=True), version)).cluster_authorized_operations == ALL_CLUSTER_OPERATIONS


@pytest.mark.parametrize(("endpoints", "error"), [(2, "MISMATCHED_ENDPOINT_TYPE"), (0, "UNSUPPORTED_ENDPOINT_TYPE")])
async def test_other_endpoints_are_not_here(client: KafkaStream, endpoints: int, error: str) -> None:
    answer = await client.call(cluster(endpoints=endpoints), 1)
    assert (error_names([answer]), answer.brokers) == ([error], [])


async def elected(client: KafkaStream, asked: dict[str, list[int]] | None, kind: int, version: int = 2) -> Any:
    partitions = asked and [{"topic": name, "partitions": numbers} for name, numbers in asked.items()]
    answer = await client.call(ask("ElectLeaders", election_type=kind, topic_partitions=partitions), version)
    found = {topic.topic: error_names(topic.partition_result) for topic in answer.replica_election_results}
    return found if answer.error_code == 0 else ErrorCode(answer.error_code).name


@pytest.mark.parametrize("version", range(3))
async def test_no_election_is_needed(client: KafkaStream, version: int) -> None:
    asked = {TOPIC: [0, 9], "nope": [0]}
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    expected = {TOPIC: ["ELECTION_NOT_NEEDED", unknown], "nope": [unknown]}
    assert await elected(client, asked, PREFERRED, version) == expected
    assert await elected(client, None, PREFERRED, version) == {TOPIC: []}


async def test_a_partition_that_is_offline_gets_no_leader(kafka: KafkaServer, client: KafkaStream) -> None:
    actor_of(kafka.broker, TopicPartition(TOPIC, 1)).take_offline("its disk is gone")
    assert await elected(client, {TOPIC: [1]}, PREFERRED) == {TOPIC: ["PREFERRED_LEADER_NOT_AVAILABLE"]}
    assert await elected(client, {TOPIC: [1]}, UNCLEAN) == {TOPIC: ["ELIGIBLE_LEADERS_NOT_AVAILABLE"]}
    assert await elected(client, None, PREFERRED) == {TOPIC: ["PREFERRED_LEADER_NOT_AVAILABLE"]}
    assert await elected(client, {TOPIC: [0]}, 9) == "INVALID_REQUEST", "there is no such kind"


@pytest.mark.parametrize("version", range(2))
async def test_a_partition_is_where_it_is(client: KafkaStream, version: int) -> None:
    asked = [(0, [1]), (1, None), (2, [9]), (2, []), (2, [1, 1]), (7, [1]), (8, None)]
    topics = [
        {"name": name, "partitions": [{"partition_index": number, "replicas": replicas} for number, replicas in pairs]}
        for name, pairs in ((TOPIC, asked), ("nope", asked[:1]))
    ]
    answer = await client.call(ask("AlterPartitionReassignments", topics=topics), version)
    assert answer.error_code == 0
    here, nowhere = (error_names(topic.partitions) for topic in answer.responses)
    assert here == [
        "NONE",
        "NO_REASSIGNMENT_IN_PROGRESS",
        *["INVALID_REPLICA_ASSIGNMENT"] * 3,
        *["UNKNOWN_TOPIC_OR_PARTITION"] * 2,
    ]
    assert nowhere == ["UNKNOWN_TOPIC_OR_PARTITION"]


@pytest.mark.parametrize("topics", [None, [TOPIC], ["nope"]], ids=str)
async def test_nothing_moves(client: KafkaStream, topics: list[str] | None) -> None:
    asked = topics and [{"name": name, "partition_indexes": [0]} for name in topics]
    answer = await client.call(ask("ListPartitionReassignments", topics=asked), 0)
    assert (answer.error_code, answer.topics) == (0, [])


@pytest.mark.parametrize(
    ("updates", "error"),
    [
        ({"group.version": 1}, "NONE"),
        ({}, "NONE"),
        ({"group.version": 0}, "INVALID_UPDATE_VERSION"),
        ({"group.version": 9}, "INVALID_UPDATE_VERSION"),
        ({"group.version": 1, "no.such.version": 1}, "INVALID_UPDATE_VERSION"),
    ],
    ids=str,
)
async def test_levels_of_features_stay(client: KafkaStream, updates: dict[str, int], error: str) -> None:
    asked = [{"feature": name, "max_version_level": level, "allow_downgrade": True} for name, level in updates.items()]
    for version in range(3):
        answer = await client.call(ask("UpdateFeatures", feature_updates=asked, validate_only=False), version)
        expected = list(updates) if error == "NONE" and version < 2 else []
        assert (error_names([answer]), [each.feature for each in answer.results]) == ([error], expected), version


def asking_for_quorum(*named: tuple[str, list[int]]) -> Any:
    return ask(
        "DescribeQuorum",
        topics=[
            {"topic_name": name, "partitions": [{"partition_index": number} for number in numbers]} for name, numbers in named
        ],
    )


@pytest.mark.parametrize("version", range(3))
async def test_the_node_leads_and_votes_alone(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    answer = await client.call(asking_for_quorum((QUORUM_TOPIC, [0])), version)
    [partition] = answer.topics[0].partitions
    node_id = kafka.broker.node_id
    assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, node_id)
    assert [each.replica_id for each in partition.current_voters] == [node_id]
    assert partition.observers == []
    nodes = [(node.node_id, [(each.host, each.port) for each in node.listeners]) for node in answer.nodes]
    assert nodes == ([(node_id, [tuple(kafka.address)])] if version >= 2 else [])


@pytest.mark.parametrize(
    "named",
    [
        [],
        [("x", [0])],
        [(QUORUM_TOPIC, [1])],
        [(QUORUM_TOPIC, [0, 1])],
        [(QUORUM_TOPIC, [0]), ("x", [0])],
        [(QUORUM_TOPIC, [0]), (QUORUM_TOPIC, [0])],
    ],
)
async def test_only_that_partition_alone_is_known(client: KafkaStream, named: list[tuple[str, list[int]]]) -> None:
    """As a broker of Kafka 4.3.1 answers."""
    answer = await client.call(asking_for_quorum(*named), 2)
    found = [(topic.topic_name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]
    assert (answer.error_code, found) == (0, named)
    codes = {each.error_code for topic in answer.topics for each in topic.partitions}
    assert codes == ({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if named else set())
    assert named or answer.nodes == []
