"""DeleteTopics, CreatePartitions and DeleteRecords: versions, errors, and what becomes of those who use a topic that goes."""

from __future__ import annotations

import pytest
import trio
from triolog.protocol.types import TopicPartition

from tests.support.brokers import actor_of, until
from tests.support.kafka_admin import NO_ID, delete_records, delete_states, delete_topics, error_names, more_partitions
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_partition, fetch_request, produced
from tests.support.kafka_stream import KafkaStream

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
async def test_a_waiting_fetch_learns_that_its_topic_is_gone(
    kafka: KafkaServer, client: KafkaStream, version: int, next_error: str
) -> None:
    async with kafka.connected() as waiting:
        request = fetch_request(fetch_partition(), topic_id=kafka.topic_id(), max_wait_ms=PATIENT_MS, session_epoch=-1)
        await waiting.send(request, version)
        await until(lambda: bool(actor_of(kafka.broker, TopicPartition(TOPIC, 0)).waiters._events))
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
