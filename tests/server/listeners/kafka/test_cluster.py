"""DescribeCluster, DescribeQuorum, elections, reassignments, features: the answers of one node, which has nothing to move.
DescribeLogDirs and AlterReplicaLogDirs: where partitions lie, how large they are, and that they stay there."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.limits import INT32_MIN
from triolog.protocol.types import TopicPartition
from triolog.server.config.broker_config import Address
from triolog.server.listeners.connections.sockets import Admission
from triolog.server.listeners.kafka.calls import listener_of
from triolog.server.listeners.kafka.door import KafkaDoor

from tests.support.brokers import actor_of, running_broker
from tests.support.kafka_admin import error_names
from tests.support.kafka_server import TOPIC, KafkaServer, batch, produced
from tests.support.kafka_stream import KafkaStream, connected
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


def asking(topics: dict[str, list[int]] | None) -> Any:
    asked = topics and [{"topic": name, "partitions": numbers} for name, numbers in topics.items()]
    return ask("DescribeLogDirs", topics=[] if topics == {} else asked)


@pytest.mark.parametrize("version", range(1, 6))
async def test_sizes_of_partitions_and_the_room_of_the_device(client: KafkaStream, fast_path: Path, version: int) -> None:
    await produced(client, batch("x"), partition=1)
    answer = await client.call(asking(None), version)
    [directory] = answer.results
    assert (answer.error_code, directory.error_code, directory.log_dir) == (0, 0, str(fast_path))
    [topic] = directory.topics
    assert topic.name == TOPIC
    assert [(each.partition_index, each.partition_size) for each in topic.partitions] == [(0, 0), (1, len(batch("x"))), (2, 0)]
    assert {(each.offset_lag, each.is_future_key) for each in topic.partitions} == {(0, False)}
    total = shutil.disk_usage(fast_path).total if version >= 4 else -1
    assert directory.total_bytes == total
    assert -1 <= directory.usable_bytes <= total
    assert (directory.usable_bytes > -1) == (version >= 4)
    assert not directory.is_cordoned


@pytest.mark.parametrize(
    ("topics", "found"), [({TOPIC: [2, 9], "nope": [0]}, [2]), ({TOPIC: []}, []), ({}, [])], ids=["some", "none", "empty"]
)
async def test_only_partitions_asked_for_are_told(client: KafkaStream, topics: dict[str, list[int]], found: list[int]) -> None:
    [directory] = (await client.call(asking(topics), 4)).results
    assert [each.partition_index for topic in directory.topics for each in topic.partitions] == found


@pytest.fixture
async def two_directories(tmp_path: Path) -> AsyncIterator[tuple[KafkaStream, Path, Path]]:
    """A connection to a server of which the second log directory cannot be used, and has two others."""
    (tmp_path / "file").touch()
    paths = [tmp_path / "a", tmp_path / "file", tmp_path / "b"]
    async with running_broker(*paths) as broker, trio.open_nursery() as nursery:
        await broker.topics.create(TOPIC, 2)
        listener = listener_of(KafkaDoor(broker), Address("127.0.0.1", 0), Admission.of(broker.config))
        address = await nursery.start(listener.run)
        async with connected(address) as client:
            first, second = (Path(broker.directories.of(TopicPartition(TOPIC, number))) for number in (0, 1))
            yield client, first, second
        nursery.cancel_scope.cancel()


async def test_every_directory_is_told_also_one_that_is_out_of_service(two_directories: tuple[KafkaStream, Path, Path]) -> None:
    client, first, second = two_directories
    answer = await client.call(asking(None), 4)
    found = {each.log_dir: each for each in answer.results}
    broken = found.pop(str(first.parent / "file"))
    assert (error_names([broken]), broken.topics, broken.total_bytes) == (["KAFKA_STORAGE_ERROR"], [], -1)
    assert error_names(found.values()) == ["NONE", "NONE"]
    for number, path in enumerate((first, second)):
        [topic] = found[str(path)].topics
        assert [each.partition_index for each in topic.partitions] == [number]


@pytest.mark.parametrize("version", [1, 2])
async def test_partitions_stay_where_they_are_and_say_so(two_directories: tuple[KafkaStream, Path, Path], version: int) -> None:
    client, first, second = two_directories
    moves = [(first, TOPIC, 0), (second, TOPIC, 0), (first.parent / "file", TOPIC, 0), (Path("/none"), TOPIC, 0)]
    moves += [(first, TOPIC, 9), (first, "nope", 0)]
    request = ask(
        "AlterReplicaLogDirs",
        dirs=[{"path": str(path), "topics": [{"name": name, "partitions": [number]}]} for path, name, number in moves],
    )
    answer = await client.call(request, version)
    assert error_names(topic.partitions[0] for topic in answer.results) == [
        "NONE",
        "INVALID_REQUEST",
        "KAFKA_STORAGE_ERROR",
        "LOG_DIR_NOT_FOUND",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
