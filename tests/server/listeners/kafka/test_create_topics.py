"""CreateTopics: what Kafka 4.3 makes and refuses, what lenient servers do instead, and what is answered in each version.
DeleteTopics, CreatePartitions and DeleteRecords: versions, errors, and what becomes of those who use a topic that goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.types import TopicPartition
from triolog.server.config import KEPT_KEYS, TOPIC_KEYS

from tests.server.listeners.kafka.test_list_offsets import commit_code, committing, fetched, fetching
from tests.support.brokers import actor_of, until
from tests.support.kafka_admin import (
    NO_ID,
    by_hand,
    create_topics,
    delete_records,
    delete_states,
    delete_topics,
    error_names,
    more_partitions,
    new_topic,
)
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_partition, fetch_request, kafka_server, produced
from tests.support.kafka_stream import KafkaStream

VERSIONS = range(2, 8)
LATEST = 7


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_made_and_described_as_its_version_does(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    answer = await client.call(create_topics(new_topic("new", 3, 1, configs={"retention.ms": "5"})), version)
    [result] = answer.topics
    assert (result.name, result.error_code, result.error_message) == ("new", 0, None)
    assert len(kafka.broker.topics.metadata("new").leader_epochs) == 3
    assert kafka.broker.topics.describe("new").config == {"retention.ms": "5"}
    assert result.topic_id == (kafka.topic_id("new") if version >= 7 else NO_ID)
    assert (result.num_partitions, result.replication_factor) == ((3, 1) if version >= 5 else (-1, -1))
    values = {config.name: (config.value, config.config_source, config.read_only) for config in result.configs or ()}
    assert values.keys() == ({*TOPIC_KEYS, *KEPT_KEYS} if version >= 5 else set())
    assert not values or (values["retention.ms"], values["segment.bytes"][1]) == (("5", 1, False), 5)


@pytest.mark.parametrize("version", [4, LATEST])
async def test_minus_one_is_the_default(fast_path: Path, version: int) -> None:
    async with kafka_server(fast_path, num_partitions=4) as kafka, kafka.connected() as client:
        [result] = (await client.call(create_topics(new_topic("new", -1, -1)), version)).topics
        assert result.error_code == 0
        assert len(kafka.broker.topics.metadata("new").leader_epochs) == 4


async def test_validating_makes_all_checks_and_no_topic(kafka: KafkaServer, client: KafkaStream) -> None:
    asked = create_topics(new_topic("new", 2), new_topic("three", 1, 3), new_topic(TOPIC), validate_only=True)
    answer = await client.call(asked, LATEST)
    assert error_names(answer.topics) == ["NONE", "INVALID_REPLICATION_FACTOR", "TOPIC_ALREADY_EXISTS"]
    made = answer.topics[0]
    assert (made.topic_id, made.num_partitions, len(made.configs)) == (NO_ID, 2, len(TOPIC_KEYS) + len(KEPT_KEYS))
    assert list(kafka.broker.topics.names()) == [TOPIC]


REFUSED = [
    (new_topic("new", 1, 0), "INVALID_REPLICATION_FACTOR"),
    (new_topic("new", 1, -2), "INVALID_REPLICATION_FACTOR"),
    (new_topic("new", 1, 2), "INVALID_REPLICATION_FACTOR"),
    (new_topic("new", 0, 0), "INVALID_REPLICATION_FACTOR"),
    (new_topic("new", 0), "INVALID_PARTITIONS"),
    (new_topic("new", -2), "INVALID_PARTITIONS"),
    (new_topic("new", 10_001), "INVALID_PARTITIONS"),
    (by_hand("new", [1], partitions=1), "INVALID_REQUEST"),
    (by_hand("new", [1], replicas=1), "INVALID_REQUEST"),
    (by_hand("new", []), "INVALID_REPLICA_ASSIGNMENT"),
    (by_hand("new", [1, 1]), "INVALID_REPLICA_ASSIGNMENT"),
    (by_hand("new", [9]), "INVALID_REPLICA_ASSIGNMENT"),
    (new_topic("new", -1, -1, [(0, [1]), (2, [1])]), "INVALID_REPLICA_ASSIGNMENT"),
    (new_topic("new", -1, -1, [(0, [1]), (0, [1])]), "INVALID_REPLICA_ASSIGNMENT"),
    (new_topic("new", -1, -1, [(1, [1])]), "INVALID_REPLICA_ASSIGNMENT"),
    (new_topic("new", configs={"no.such.key": "1"}), "INVALID_CONFIG"),
    (new_topic("new", configs={"retention.ms": "x"}), "INVALID_CONFIG"),
    (new_topic("new", configs={"retention.ms": None}), "INVALID_CONFIG"),
    (new_topic("new", configs={"remote.storage.enable": "true"}), "INVALID_CONFIG"),
    (new_topic("bad name"), "INVALID_TOPIC_EXCEPTION"),
    (new_topic(""), "INVALID_TOPIC_EXCEPTION"),
    (new_topic("."), "INVALID_TOPIC_EXCEPTION"),
    (new_topic("x" * 250), "INVALID_TOPIC_EXCEPTION"),
    (new_topic("__stage_commits"), "INVALID_TOPIC_EXCEPTION"),
    (new_topic("__consumer_offsets", configs={"cleanup.policy": "delete"}), "POLICY_VIOLATION"),
    (new_topic("__cluster_metadata"), "INVALID_REQUEST"),
    (new_topic("to.pic"), "INVALID_TOPIC_EXCEPTION"),
    (new_topic(TOPIC, 0, 0), "TOPIC_ALREADY_EXISTS"),
    (new_topic(TOPIC, configs={"retention.ms": None}), "TOPIC_ALREADY_EXISTS"),
]


async def test_what_kafka_refuses_is_refused_alone(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("to_pic")
    for number, (topic, error) in enumerate(REFUSED):
        answer = await client.call(create_topics(topic, new_topic(f"beside-{number}")), LATEST)
        assert error_names(answer.topics) == [error, "NONE"], topic
        refused = answer.topics[0]
        assert (refused.name, refused.topic_id) == (topic["name"], NO_ID), topic
        assert (refused.num_partitions, refused.replication_factor) == (-1, -1), topic
        assert refused.error_message, topic
    beside = {f"beside-{number}" for number in range(len(REFUSED))}
    assert set(kafka.broker.topics.names()) == {*beside, "to_pic", TOPIC}


async def test_the_coordinators_topics_can_be_made_before_they_are_needed(fast_path: Path) -> None:
    """The set-up of many suites does so; what is stored in them is there after a restart."""
    names = ("__consumer_offsets", "__transaction_state")
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        for expected in ("NONE", "TOPIC_ALREADY_EXISTS"):
            answer = await client.call(create_topics(*(new_topic(name, 3) for name in names)), LATEST)
            assert error_names(answer.topics) == [expected] * 2
        for name in names:
            assert kafka.broker.topics.describe(name).config["cleanup.policy"] == "compact"
        await kafka.broker.topics.create(TOPIC)
        assert await commit_code(client, committing(5)) == 0
        assert kafka.broker.topics.partition_count(names[0]) == 3
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        assert await fetched(client, 8, fetching(8, [0])) == (0, {0: (5, 7, "note", 0)})


async def test_a_topic_that_is_there_twice_is_refused_once(kafka: KafkaServer, client: KafkaStream) -> None:
    answer = await client.call(create_topics(new_topic("twice"), new_topic("once"), new_topic("twice", 2)), LATEST)
    assert {result.name: error for result, error in zip(answer.topics, error_names(answer.topics), strict=True)} == {
        "twice": "INVALID_REQUEST",
        "once": "NONE",
    }
    assert list(kafka.broker.topics.names()) == ["once", TOPIC]


async def test_partitions_assigned_by_hand_are_made(client: KafkaStream) -> None:
    [result] = (await client.call(create_topics(by_hand("new", [1], [1])), LATEST)).topics
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


async def test_harmless_keys_are_kept(kafka: KafkaServer, client: KafkaStream) -> None:
    configs: dict[str, str | None] = {
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
        "local.retention.ms": "1000",
        "follower.replication.throttled.replicas": "*",
        "message.format.version": "2.8-IV1",
        "message.downconversion.enable": "false",
    }
    [result] = (await client.call(create_topics(new_topic("new", configs=configs)), LATEST)).topics
    assert result.error_code == 0
    assert kafka.broker.topics.describe("new").config == configs


LENIENT = [
    new_topic("new", 2, 3),
    by_hand("new", [1, 2, 3], [3, 1, 2]),
    new_topic("new", 2, configs={"no.such.key": "1", "remote.storage.enable": "true"}),
]


@pytest.mark.parametrize("topic", LENIENT, ids=["replicas", "assigned", "keys"])
async def test_a_lenient_server_serves_tests_and_says_so(
    fast_path: Path, topic: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with kafka_server(fast_path, lenient=True) as kafka, kafka.connected() as client:
        [result] = (await client.call(create_topics(topic), LATEST)).topics
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)
        assert kafka.broker.topics.describe("new").config == {each["name"]: each["value"] for each in topic["configs"]}
    assert any("topic new" in message for message in caplog.messages)


async def test_a_lenient_server_still_checks_what_has_a_meaning(fast_path: Path) -> None:
    async with kafka_server(fast_path, lenient=True) as kafka, kafka.connected() as client:
        wrong = [new_topic("a", 0), new_topic("b", 1, 0), new_topic("c", configs={"retention.ms": "x"}), by_hand("d", [])]
        assert error_names((await client.call(create_topics(*wrong), LATEST)).topics) == [
            "INVALID_PARTITIONS",
            "INVALID_REPLICATION_FACTOR",
            "INVALID_CONFIG",
            "INVALID_REPLICA_ASSIGNMENT",
        ]


PATIENT_MS = 60_000


@pytest.mark.parametrize("version", range(1, 6))
async def test_topics_are_deleted_by_name(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    await kafka.broker.topics.create("another")
    answer = await client.call(delete_topics(TOPIC, "nope", "another", "another"), version)
    assert [result.name for result in answer.responses] == [TOPIC, "nope", "another"]
    assert error_names(answer.responses) == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"]
    assert [result.error_message is not None for result in answer.responses] == [False, version >= 5, version >= 5]
    assert list(kafka.broker.topics.names()) == ["another"]


async def test_version_6_deletes_by_name_or_id(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("another")
    topic_id, another_id = kafka.topic_id(), kafka.topic_id("another")
    answer = await client.call(delete_states((None, topic_id), ("another", NO_ID)), 6)
    assert [(each.name, each.topic_id, each.error_code) for each in answer.responses] == [
        (TOPIC, topic_id, 0),
        ("another", another_id, 0),
    ]
    assert list(kafka.broker.topics.names()) == []


async def test_version_6_refuses_what_means_no_topic_or_one_twice(kafka: KafkaServer, client: KafkaStream) -> None:
    topic_id = kafka.topic_id()
    asked = [(None, bytes(15) + b"x"), (None, NO_ID), ("both", topic_id), (TOPIC, NO_ID), (None, topic_id)]
    answer = await client.call(delete_states(*asked), 6)
    assert error_names(answer.responses) == ["UNKNOWN_TOPIC_ID", *["INVALID_REQUEST"] * 4]
    assert [(each.name, each.topic_id) for each in answer.responses] == asked
    assert list(kafka.broker.topics.names()) == [TOPIC]


async def test_a_topic_of_the_server_stays(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.offsets.commit("group", [(TopicPartition(TOPIC, 0), 1, None)])
    answer = await client.call(delete_topics("__consumer_offsets"), 5)
    assert error_names(answer.responses) == ["INVALID_TOPIC_EXCEPTION"]
    assert "__consumer_offsets" in kafka.broker.topics.names()


@pytest.mark.parametrize(("version", "next_error"), [(12, "UNKNOWN_TOPIC_OR_PARTITION"), (13, "UNKNOWN_TOPIC_ID")])
async def test_a_waiting_fetch_ends_with_its_topic(
    kafka: KafkaServer, client: KafkaStream, version: int, next_error: str
) -> None:
    async with kafka.connected() as waiting:
        request = fetch_request(fetch_partition(), topic_id=kafka.topic_id(), max_wait_ms=PATIENT_MS, session_epoch=-1)
        await waiting.send(request, version)
        await until(lambda: bool(actor_of(kafka.broker, TopicPartition(TOPIC, 0)).waiters.events))
        with trio.fail_after(PATIENT_MS / 2000):
            await client.call(delete_topics(TOPIC), 5)
            answer = await waiting.receive()
            after = await waiting.call(request, version)
    assert error_names(answer.responses[0].partitions) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert error_names(after.responses[0].partitions) == [next_error]


@pytest.mark.parametrize("version", range(4))
async def test_topics_grow_unless_it_is_only_validated(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    assert error_names((await client.call(more_partitions((TOPIC, 5), validate_only=True), version)).results) == ["NONE"]
    assert len(kafka.broker.topics.metadata(TOPIC).leader_epochs) == 3
    assert error_names((await client.call(more_partitions((TOPIC, 5)), version)).results) == ["NONE"]
    assert len(kafka.broker.topics.metadata(TOPIC).leader_epochs) == 5
    assert await produced(client, batch("x"), partition=4) == 0


@pytest.mark.parametrize("validate_only", [False, True], ids=["done", "validated"])
async def test_a_number_that_cannot_be_is_refused(kafka: KafkaServer, client: KafkaStream, validate_only: bool) -> None:
    numbers = [((TOPIC, number), "INVALID_PARTITIONS") for number in (3, 2, 0, -1, 10_001)]
    assignments = ([[1]], [], [[1], [9]], [[1], [1, 1]], [[1], []])
    assigned = [((TOPIC, 5, each), "INVALID_REPLICA_ASSIGNMENT") for each in assignments]
    for asked, error in (*numbers, (("nope", 3), "UNKNOWN_TOPIC_OR_PARTITION"), *assigned):
        answer = await client.call(more_partitions(asked, validate_only=validate_only), 3)
        assert error_names(answer.results) == [error], asked
        assert answer.results[0].error_message, asked
        assert len(kafka.broker.topics.metadata(TOPIC).leader_epochs) == 3, asked


async def test_new_partitions_are_assigned_and_a_topic_named_twice_stays(kafka: KafkaServer, client: KafkaStream) -> None:
    assert error_names((await client.call(more_partitions((TOPIC, 5), (TOPIC, 6)), 3)).results) == ["INVALID_REQUEST"]
    assert len(kafka.broker.topics.metadata(TOPIC).leader_epochs) == 3
    assert error_names((await client.call(more_partitions((TOPIC, 5, [[1], [1]])), 3)).results) == ["NONE"]
    assert len(kafka.broker.topics.metadata(TOPIC).leader_epochs) == 5


@pytest.mark.parametrize("version", range(3))
async def test_records_below_an_offset_are_deleted(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    for _ in range(3):
        await produced(client, batch("a", "b"))
    first, second = [await client.call(delete_records((TOPIC, 0, offset)), version) for offset in (3, -1)]
    low = [answer.topics[0].partitions[0].low_watermark for answer in (first, second)]
    assert low == [3, 6]
    assert kafka.broker.reader.snapshot(TopicPartition(TOPIC, 0)).log_start_offset == 6


async def test_records_that_are_not_there_or_must_stay_are_refused(kafka: KafkaServer, client: KafkaStream) -> None:
    await kafka.broker.topics.create("compacted", 1, {"cleanup.policy": "compact"})
    await kafka.broker.offsets.commit("group", [(TopicPartition(TOPIC, 0), 1, None)])
    asked = [(TOPIC, 0, 1), (TOPIC, 0, -2), (TOPIC, 9, 0), ("nope", 0, 0), ("compacted", 0, 0), ("__consumer_offsets", 0, 0)]
    answer = await client.call(delete_records(*asked), 2)
    partitions = [topic.partitions[0] for topic in answer.topics]
    assert error_names(partitions) == [
        "OFFSET_OUT_OF_RANGE",
        "OFFSET_OUT_OF_RANGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "POLICY_VIOLATION",
        "INVALID_TOPIC_EXCEPTION",
    ]
    assert {partition.low_watermark for partition in partitions} == {-1}
