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
from tests.support.kafka_server import TOPIC, KafkaServer, batch, kafka_server, produced
from tests.support.kafka_stream import KafkaStream, connected
from tests.support.kafka_wire import api_of, ask

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


UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def updating(*updates: tuple[str, int, int], validate_only: bool = False) -> Any:
    """(feature, level, type) of each update."""
    named = [{"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in updates]
    return ask("UpdateFeatures", feature_updates=named, validate_only=validate_only)


async def levels(client: KafkaStream) -> dict[str, int]:
    answer = await client.call(ask("ApiVersions", client_software_name="t", client_software_version="1"), 4)
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    return {each.name: each.max_version_level for each in answer.finalized_features}


HIGHEST = {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("updates", "left"),
    [
        ([("group.version", 1, UPGRADE)], {}),
        ([], {}),
        ([("share.version", 0, SAFE_DOWNGRADE)], {"share.version": None}),
        (
            [("share.version", 1, UNSAFE_DOWNGRADE), ("transaction.version", 0, SAFE_DOWNGRADE)],
            {"share.version": 1, "transaction.version": None},
        ),
        ([("group.version", 0, SAFE_DOWNGRADE), ("group.version", 1, UPGRADE)], {}),
        ([("streams.version", 1, UNSAFE_DOWNGRADE)], {}),
    ],
    ids=str,
)
async def test_levels_of_features_are_set_together(
    client: KafkaStream, updates: list[tuple[str, int, int]], left: dict[str, int | None], version: int
) -> None:
    """As Kafka 4.3.1 and 4.4.0 answer: `kafka/test_broker_answers.py`."""
    assert (await client.call(updating(*updates, validate_only=True), version)).error_code == 0
    assert await levels(client) == HIGHEST
    answer = await client.call(updating(*updates), version)
    expected = [name for name, *_ in updates] if version == 1 else []
    assert (answer.error_code, [each.feature for each in answer.results]) == (0, expected)
    assert await levels(client) == {name: level for name, level in {**HIGHEST, **left}.items() if level is not None}
    back = [(name, HIGHEST[name], UPGRADE) for name in left]
    assert (await client.call(updating(*back), version)).error_code == 0
    assert await levels(client) == HIGHEST


@pytest.mark.parametrize(
    "update",
    [
        ("group.version", 0, UPGRADE),
        ("group.version", 9, UPGRADE),
        ("group.version", -1, SAFE_DOWNGRADE),
        ("group.version", 0, 0),
        ("transaction.version", 1, 4),
        ("share.version", 3, SAFE_DOWNGRADE),
        ("no.such.version", 1, UPGRADE),
        ("", 0, SAFE_DOWNGRADE),
    ],
    ids=str,
)
async def test_one_wrong_level_changes_none(client: KafkaStream, update: tuple[str, int, int]) -> None:
    answer = await client.call(updating(("share.version", 1, SAFE_DOWNGRADE), update), 2)
    assert error_names([answer]) == ["INVALID_UPDATE_VERSION"]
    assert f"for feature {update[0]}" in answer.error_message
    assert await levels(client) == HIGHEST


async def test_without_types_a_level_can_only_go_up(client: KafkaStream) -> None:
    """Kafka ignores `allow_downgrade` too."""
    down = [{"feature": "share.version", "max_version_level": 1, "allow_downgrade": True}]
    assert error_names([await client.call(ask("UpdateFeatures", feature_updates=down), 0)]) == ["INVALID_UPDATE_VERSION"]
    assert (await client.call(updating(("share.version", 1, SAFE_DOWNGRADE)), 1)).error_code == 0
    up = [{"feature": "share.version", "max_version_level": 2}]
    assert (await client.call(ask("UpdateFeatures", feature_updates=up), 0)).error_code == 0
    refused = await client.call(updating(("share.version", 1, SAFE_DOWNGRADE), ("share.version", 2, UNSAFE_DOWNGRADE)), 2)
    assert refused.error_code == 0


async def test_the_epoch_of_features_goes_up_and_levels_stay_after_a_restart(tmp_path: Path) -> None:
    """A Java client keeps the features with the highest epoch."""
    epochs = []
    request = ask("ApiVersions", client_software_name="t", client_software_version="1")
    for expected in (2, 1, 1):
        async with kafka_server(tmp_path) as server, server.connected() as client:
            assert (await levels(client))["share.version"] == expected
            epochs.append((await client.call(request, 4)).finalized_features_epoch)
            assert (await client.call(updating(("share.version", 1, SAFE_DOWNGRADE)), 2)).error_code == 0
    assert epochs[0] < epochs[1] == epochs[2]


OF_SHARE_VERSION: dict[str, dict[str, Any]] = {
    "ShareGroupHeartbeat": {"group_id": "g", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [TOPIC]},
    "ShareGroupDescribe": {"group_ids": ["g", "h"], "include_authorized_operations": False},
    "ShareFetch": {"group_id": "g", "member_id": "m", "topics": [], "forgotten_topics_data": []},
    "ShareAcknowledge": {"group_id": "g", "member_id": "m", "topics": []},
    "DescribeShareGroupOffsets": {"groups": [{"group_id": "g", "topics": None}]},
    "AlterShareGroupOffsets": {"group_id": "g", "topics": [{"topic_name": TOPIC, "partitions": []}]},
    "DeleteShareGroupOffsets": {"group_id": "g", "topics": [{"topic_name": TOPIC}]},
}
OF_OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ConsumerGroupHeartbeat": ("group.version", {"group_id": "g", "member_id": "m", "member_epoch": 0}),
    "ConsumerGroupDescribe": ("group.version", {"group_ids": ["g"]}),
    "StreamsGroupHeartbeat": ("streams.version", {"group_id": "g", "member_id": "m", "member_epoch": 0}),
    "StreamsGroupDescribe": ("streams.version", {"group_ids": ["g"]}),
}
OF_FEATURES = {name: ("share.version", fields) for name, fields in OF_SHARE_VERSION.items()} | OF_OTHERS


@pytest.mark.parametrize("name", OF_FEATURES)
async def test_a_disabled_feature_has_no_apis_and_comes_back(client: KafkaStream, name: str) -> None:
    feature, fields = OF_FEATURES[name]
    request = ask(name, **fields)
    version = api_of(request).highest
    assert (await client.call(updating((feature, 0, SAFE_DOWNGRADE)), 2)).error_code == 0
    answer = await client.call(request, version)
    groups = getattr(answer, "groups", None)
    expected = len(groups) if groups else 1
    assert error_names(groups or [answer]) == ["UNSUPPORTED_VERSION"] * expected
    assert (await client.call(updating((feature, HIGHEST[feature], UPGRADE)), 2)).error_code == 0
    answer = await client.call(request, version)
    assert "UNSUPPORTED_VERSION" not in error_names(getattr(answer, "groups", None) or [answer])


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
