"""DescribeTopicPartitions: order, cursor and limit, as a broker of Kafka 4.3 answers them."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import TopicPartition

from tests.support.brokers import actor_of
from tests.support.kafka_server import KafkaServer
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

Cursor = tuple[str, int]
ALL_TOPIC_OPERATIONS = 3576
"""What Kafka 4.3 answers where nobody is kept from anything."""


@pytest.fixture
async def kafka(kafka: KafkaServer) -> KafkaServer:
    """The same with the topics `many` of five partitions and `one` of one, and no other."""
    await kafka.broker.topics.delete("topic")
    await kafka.broker.topics.create("one")
    await kafka.broker.topics.create("many", 5)
    return kafka


async def described(client: KafkaStream, names: list[str], limit: int = 2000, cursor: Cursor | None = None) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    asked = [{"name": name} for name in names]
    return await client.call(ask("DescribeTopicPartitions", topics=asked, response_partition_limit=limit, cursor=at), 0)


PAGES: list[tuple[list[str], int, Cursor | None, dict[str, list[int]], Cursor | None]] = [
    (["one"], 2000, None, {"one": [0]}, None),
    ([], 2000, None, {"many": [0, 1, 2, 3, 4], "one": [0]}, None),
    (["one", "many", "many"], 2000, None, {"many": [0, 1, 2, 3, 4], "one": [0]}, None),
    (["many", "one"], 3, None, {"many": [0, 1, 2]}, ("many", 3)),
    (["many", "one"], 3, ("many", 3), {"many": [3, 4], "one": [0]}, None),
    (["many", "one"], 5, None, {"many": [0, 1, 2, 3, 4]}, ("one", 0)),
    (["many"], 5, None, {"many": [0, 1, 2, 3, 4]}, None),
    (["many", "one"], 1, ("many", 4), {"many": [4]}, ("one", 0)),
    (["many", "one"], 2000, ("one", 0), {"one": [0]}, None),
    ([], 2, ("many", 2), {"many": [2, 3]}, ("many", 4)),
    ([], 2, ("nope", 3), {"one": [0]}, None),
    (["many"], 2000, ("many", 77), {"many": []}, None),
    (["many"], 0, None, {"many": [0]}, ("many", 1)),
    (["many"], -5, None, {"many": [0]}, ("many", 1)),
]
"""Names, limit and cursor of a request -> partitions and cursor of its answer."""


async def test_an_answer_goes_from_the_cursor_to_the_limit(kafka: KafkaServer, client: KafkaStream) -> None:
    for names, limit, cursor, found, next_cursor in PAGES:
        answer = await described(client, names, limit, cursor)
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics] == list(found.items())
        following = answer.next_cursor and (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        assert following == next_cursor, (names, limit, cursor)
        for topic in answer.topics:
            assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, kafka.topic_id(topic.name), False)
            assert topic.topic_authorized_operations == ALL_TOPIC_OPERATIONS


async def test_topics_that_are_not_there_have_their_error_and_count_for_nothing(client: KafkaStream) -> None:
    answer = await described(client, ["nope", "one", "bad name"], 1)
    assert [(topic.name, ErrorCode(topic.error_code).name, len(topic.partitions)) for topic in answer.topics] == [
        ("bad name", "INVALID_TOPIC_EXCEPTION", 0),
        ("nope", "UNKNOWN_TOPIC_OR_PARTITION", 0),
        ("one", "NONE", 1),
    ]
    full = await described(client, ["many", "nope"], 5)
    assert (full.next_cursor.topic_name, full.next_cursor.partition_index) == ("nope", 0)


@pytest.mark.parametrize("cursor", [("many", -1), ("nope", 0)])
async def test_a_cursor_that_cannot_be_is_refused(client: KafkaStream, cursor: Cursor) -> None:
    answer = await described(client, ["many", "one"], cursor=cursor)
    assert [(topic.name, ErrorCode(topic.error_code).name) for topic in answer.topics] == [
        ("many", "INVALID_REQUEST"),
        ("one", "INVALID_REQUEST"),
    ]


async def test_a_partition_that_is_offline_has_no_leader(kafka: KafkaServer, client: KafkaStream) -> None:
    actor_of(kafka.broker, TopicPartition("many", 1)).take_offline("its disk is gone")
    partitions = (await described(client, ["many"])).topics[0].partitions
    node = kafka.broker.node_id
    told = [(p.error_code, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes, p.offline_replicas) for p in partitions]
    assert told[:2] == [(0, node, 0, [node], [node], []), (5, -1, -1, [node], [], [node])]
    assert all(p.eligible_leader_replicas == p.last_known_elr == [] for p in partitions)
