"""A small request does not make a large answer, or a large work, of what is named in it again and again."""

from __future__ import annotations

from typing import Any

import pytest
from triolog.protocol.errors import MAX_MESSAGE_CHARS, ErrorCode
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.schema.primitives import MAX_ELEMENTS
from triolog.protocol.types import TopicPartition

from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_server import TOPIC, KafkaServer, batch, produce_request, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

from .test_cost import of_others

TIMES = 50


@pytest.mark.parametrize("version", [8, 9, 12])
async def test_a_name_as_long_as_it_can_be_is_quoted_in_part(client: KafkaStream, version: int) -> None:
    answer = await client.call(produce_request(batch("x"), topic="n" * 32_767), version)
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(partition.error_message) <= MAX_MESSAGE_CHARS + len("...")


NAMED: list[tuple[ApiKey, str, int, str]] = [
    (ApiKey.DESCRIBE_GROUPS, "groups", 5, "group_id"),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids", 1, "group_id"),
    (ApiKey.SHARE_GROUP_DESCRIBE, "group_ids", 1, "group_id"),
    (ApiKey.STREAMS_GROUP_DESCRIBE, "group_ids", 0, "group_id"),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "groups", 0, "group_id"),
    (ApiKey.DESCRIBE_TRANSACTIONS, "transactional_ids", 0, "transactional_id"),
    (ApiKey.OFFSET_FETCH, "groups", 8, "group_id"),
]


@pytest.mark.parametrize(("key", "path", "version", "name"), NAMED)
async def test_what_is_repeated_is_answered_once(client: KafkaStream, key: ApiKey, path: str, version: int, name: str) -> None:
    answer = await client.call(of_others(key, path, ["g"] * TIMES), version)
    found = answer.transaction_states if key is ApiKey.DESCRIBE_TRANSACTIONS else answer.groups
    assert [getattr(each, name) for each in found] == ["g"]


@pytest.mark.parametrize("version", [5, 8])
async def test_a_partition_named_again_has_its_offset_once(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    await kafka.broker.offsets.commit("g", [(TopicPartition(TOPIC, 1), 7, "m" * 4000)])
    topics = [{"name": TOPIC, "partition_indexes": [1] * TIMES}] * TIMES
    asked = ask("OffsetFetch", group_id="g", topics=topics, require_stable=False)
    if version >= 8:
        asked = ask("OffsetFetch", groups=[{"group_id": "g", "topics": topics}])
    answer = await client.call(asked, version)
    found = answer.groups[0].topics if version >= 8 else answer.topics
    assert [each.committed_offset for topic in found for each in topic.partitions] == [7]


async def test_the_producers_of_a_partition_that_is_named_again_are_told_once(client: KafkaStream) -> None:
    await produced(client, batch("x", producer_id=7, producer_epoch=0, base_sequence=0))
    topic = {"name": TOPIC, "partition_indexes": [0] * TIMES}
    answer = await client.call(ask("DescribeProducers", topics=[topic] * TIMES), 0)
    assert [each.active_producers[0].producer_id for topic in answer.topics for each in topic.partitions] == [7]


async def test_a_resource_that_is_named_again_is_described_once_with_all_keys_that_were_asked_for(client: KafkaStream) -> None:
    def resource(*keys: str) -> dict[str, Any]:
        return {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": list(keys) or None}

    async def keys_of(*resources: dict[str, Any]) -> list[str]:
        [result] = (await client.call(ask("DescribeConfigs", resources=list(resources)), 4)).results
        return [each.name for each in result.configs]

    keys = ["retention.ms", "cleanup.policy", "segment.ms"]
    assert sorted(await keys_of(*[resource(each) for each in keys] * TIMES)) == sorted(keys)
    assert len(await keys_of(resource("retention.ms"), resource(), resource("segment.ms"))) > len(keys)


async def test_a_request_may_ask_for_ten_thousand_partitions_in_all(kafka: KafkaServer, client: KafkaStream) -> None:
    """As many as one topic may have, and as Kafka takes in a request."""
    fitting = [new_topic("a", 6000), new_topic("b", 3999), new_topic("refused", 10_001)]
    checked = await client.call(create_topics(*fitting, new_topic("c"), validate_only=True), 7)
    assert [each.error_code for each in checked.topics] == [0, 0, ErrorCode.INVALID_PARTITIONS, 0]
    refused = await client.call(create_topics(*fitting, new_topic("c", 2)), 7)
    assert [each.error_code for each in refused.topics] == [ErrorCode.POLICY_VIOLATION] * 4
    assert set(kafka.broker.topics.names()) == {TOPIC}


@pytest.mark.parametrize(("count", "is_taken"), [(MAX_ELEMENTS, True), (MAX_ELEMENTS + 1, False)])
async def test_a_request_has_a_limit_of_elements(client: KafkaStream, count: int, is_taken: bool) -> None:
    topics = [{"topic": TOPIC, "partitions": [0] * (count - 1)}]
    await client.send(ask("DescribeLogDirs", topics=topics), 4)
    if is_taken:
        [directory] = (await client.receive()).results
        assert [len(each.partitions) for each in directory.topics] == [1]
    else:
        assert await client.is_closed_by_server()
