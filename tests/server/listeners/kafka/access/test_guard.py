"""ACLs where Kafka's answer hangs on more than one right, on what else is wrong, or on what there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.authorization import AclOperation, ResourceType
from triolog.server.listeners.access.rules import finish
from triolog.server.listeners.kafka.door import NO_TOPIC_ID
from triolog.server.listeners.kafka.guard import PATHS, RULES

from tests.support import kafka_admin
from tests.support.kafka_acls import allow, forbid
from tests.support.kafka_admin import BROKER_TYPE, TOPIC_TYPE, alter, delete_states, error_names, new_topic
from tests.support.kafka_asking import ask
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream

HIDDEN, GROUP = "hidden", "group"
OF_TOPIC = "TOPIC_AUTHORIZATION_FAILED"
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DELETE, DESCRIBE, READ = AclOperation.DELETE, AclOperation.DESCRIBE, AclOperation.READ


@pytest.fixture
async def kafka(fast_path: Path) -> AsyncIterator[KafkaServer]:
    """A listener with a topic of two partitions that everybody may see, and another one."""
    async with kafka_server(fast_path, acl_enable=True, lenient=True) as server:
        await server.broker.topics.create(TOPIC, 2)
        await server.broker.topics.create(HIDDEN, 2)
        await allow(server, DESCRIBE, ResourceType.TOPIC, TOPIC)
        yield server


async def test_topics_that_may_not_be_seen_use_up_no_room_and_are_no_cursor(client: KafkaStream) -> None:
    for names in ([], [HIDDEN, TOPIC]):
        request = ask(
            "DescribeTopicPartitions",
            topics=[{"name": name} for name in names],
            response_partition_limit=1,
            cursor={"topic_name": HIDDEN},
        )
        answer = await client.call(request, 0)
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (TOPIC, 1)
        [seen, *refused] = answer.topics
        assert (seen.name, len(seen.partitions), seen.topic_authorized_operations) == (TOPIC, 1, 1 << DESCRIBE)
        assert [(each.name, each.error_code, each.topic_id) for each in refused] == [
            (name, DENIED, NO_TOPIC_ID) for name in names if name == HIDDEN
        ]


async def test_a_topic_to_delete_is_told_apart_as_far_as_it_may_be_seen(kafka: KafkaServer, client: KafkaStream) -> None:
    await allow(kafka, DESCRIBE, ResourceType.TOPIC, "gone")
    by_name = (await client.call(kafka_admin.delete_topics(TOPIC, HIDDEN, "gone", "nowhere", "twice", "twice"), 5)).responses
    assert {(each.name, ErrorCode(each.error_code).name) for each in by_name} == {
        (TOPIC, OF_TOPIC),
        (HIDDEN, OF_TOPIC),
        ("gone", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("nowhere", OF_TOPIC),
        ("twice", "INVALID_REQUEST"),
    }
    ids = [kafka.topic_id(TOPIC), kafka.topic_id(HIDDEN), b"nobody's id 1234"]
    by_id = (await client.call(delete_states(*((None, each) for each in ids)), 6)).responses
    assert {(each.name, each.topic_id, ErrorCode(each.error_code).name) for each in by_id} == {
        (TOPIC, ids[0], OF_TOPIC),
        (None, ids[1], OF_TOPIC),
        (None, ids[2], "UNKNOWN_TOPIC_ID"),
    }


async def test_what_is_wrong_with_a_request_is_said_to_everybody(kafka: KafkaServer, client: KafkaStream) -> None:
    twice = [(TOPIC_TYPE, TOPIC, [("retention.ms", "5")])] * 2
    told = [
        (await client.call(kafka_admin.create_topics(new_topic("new"), new_topic("new")), 7)).topics,
        (await client.call(kafka_admin.more_partitions((TOPIC, 5), (TOPIC, 6)), 3)).results,
        (await client.call(delete_states((TOPIC, kafka.topic_id())), 6)).responses,
        (await client.call(alter(*twice), 2)).responses,
        (await client.call(alter((TOPIC_TYPE, TOPIC, [("retention.ms", None)])), 2)).responses,
        (await client.call(alter((BROKER_TYPE, "99", [])), 2)).responses,
        (await client.call(kafka_admin.describe((7, TOPIC)), 4)).results,
    ]
    assert {name for results in told for name in error_names(results)} == {"INVALID_REQUEST"}
    deleting = kafka_admin.alter_incrementally((TOPIC_TYPE, TOPIC, [("retention.ms", 1, None)]))
    assert error_names((await client.call(deleting, 1)).responses) == [OF_TOPIC]


async def commit(kafka: KafkaServer, client: KafkaStream) -> None:
    """One offset for each of the topics, by somebody who may; afterwards only `TOPIC` may be seen."""
    topics = [{"name": name, "partitions": [{"committed_offset": 5, "committed_leader_epoch": 7}]} for name in (TOPIC, HIDDEN)]
    await allow(kafka, AclOperation.ALL, ResourceType.GROUP, GROUP)
    await allow(kafka, READ, ResourceType.TOPIC, TOPIC)
    await allow(kafka, READ, ResourceType.TOPIC, HIDDEN)
    answer = await client.call(ask("OffsetCommit", group_id=GROUP, topics=topics), 8)
    assert [partition.error_code for topic in answer.topics for partition in topic.partitions] == [0, 0]
    await forbid(kafka, ResourceType.TOPIC, HIDDEN)


@pytest.mark.parametrize("version", [9, 10])
async def test_offsets_of_a_hidden_topic_are_not_told(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    await commit(kafka, client)
    named = [{"name": name, "topic_id": kafka.topic_id(name), "partition_indexes": [0]} for name in (TOPIC, HIDDEN)]
    for topics, expected in ((named, [(0, 5, 7), (DENIED, -1, -1)]), (None, [(0, 5, 7)])):
        group = {"group_id": GROUP, "member_id": None, "topics": topics}
        [found] = (await client.call(ask("OffsetFetch", groups=[group]), version)).groups
        told = [topic.partitions[0] for topic in found.topics]
        assert [(each.error_code, each.committed_offset, each.committed_leader_epoch) for each in told] == expected


async def test_topic_id_of_no_topic_is_unknown_rather_than_denied(kafka: KafkaServer, client: KafkaStream) -> None:
    await commit(kafka, client)
    for topic_id in (bytes(16), b"nobody's id 1234"):
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        request = ask("OffsetCommit", group_id=GROUP, topics=[{"topic_id": topic_id, "partitions": [part]}])
        [topic] = (await client.call(request, 10)).topics
        assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        group = {"group_id": GROUP, "member_id": None, "topics": [{"topic_id": topic_id, "partition_indexes": [0]}]}
        [found] = (await client.call(ask("OffsetFetch", groups=[group]), 10)).groups
        assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_an_error_of_a_whole_group_stands_alone(kafka: KafkaServer, client: KafkaStream) -> None:
    await allow(kafka, DELETE, ResourceType.GROUP, GROUP)
    await allow(kafka, READ, ResourceType.TOPIC, TOPIC)
    part = [{"partition_index": 0}]
    topics = [{"name": name, "partitions": part} for name in (TOPIC, HIDDEN)]
    answer = await client.call(ask("OffsetDelete", group_id=GROUP, topics=topics), 0)
    assert (answer.error_code, answer.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    only_hidden = await client.call(ask("OffsetDelete", group_id=GROUP, topics=topics[1:]), 0)
    assert (only_hidden.error_code, only_hidden.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_a_group_with_a_topic_that_may_not_be_seen_is_not_described(kafka: KafkaServer, client: KafkaStream) -> None:
    await allow(kafka, READ, ResourceType.GROUP, GROUP)
    join = ask("ConsumerGroupHeartbeat", group_id=GROUP, member_id="member", rebalance_timeout_ms=60_000, topic_partitions=[])
    join.subscribed_topic_names = [TOPIC, HIDDEN]
    assert (await client.call(join, 1)).error_code == DENIED
    join.subscribed_topic_names, join.subscribed_topic_regex = None, ".*"
    assert (await client.call(join, 1)).error_code == 0
    asking = ask("ConsumerGroupDescribe", group_ids=[GROUP], include_authorized_operations=True)
    [refused] = (await client.call(asking, 1)).groups
    assert (refused.group_id, refused.error_code, refused.members, refused.group_state) == (GROUP, DENIED, [], "")
    await allow(kafka, DESCRIBE, ResourceType.TOPIC, HIDDEN)
    [seen] = (await client.call(asking, 1)).groups
    assert (seen.error_code, [member.member_id for member in seen.members]) == (0, ["member"])
    assert seen.authorized_operations == 1 << READ | 1 << DESCRIBE


def test_every_rule_finds_what_it_is_about() -> None:
    assert {key for key in ApiKey if PATHS[key]} == {key for key, rules in RULES.items() if rules.each}


def test_a_rule_about_what_no_field_stands_for_lets_nobody_pass() -> None:
    call: Any = None  # nothing is asked of it
    body = ask("InitProducerId", transactional_id="id", transaction_timeout_ms=1)
    with pytest.raises(AssertionError, match="InitProducerId has no field for a groupId"):
        finish(RULES[ApiKey.HEARTBEAT].whole[0].check(call, body))
