"""One request about thousands of partitions takes no long turn of the event loop, whichever API it is of, on either door. A
small request does not make a large answer, or a large work, of what is named in it again and again. Requests whose answers, or
whose contents, are large take no long turn of the event loop (counted: `tests.support.turns`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from cramjam import zstd  # type: ignore[attr-defined]
from triolog.protocol.coordinator.classic_group_records import GroupMetadataValue
from triolog.protocol.errors import MAX_MESSAGE_CHARS, ErrorCode
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.native import messages
from triolog.protocol.schema.primitives import MAX_ELEMENTS
from triolog.protocol.types import CompressionType, TopicPartition

from tests.server.listeners.kafka.test_cost import of_others
from tests.server.listeners.test_turns import Served, served, short_turns
from tests.support.client_metrics import setting
from tests.support.kafka_admin import create_topics, new_topic
from tests.support.kafka_server import TOPIC, KafkaServer, batch, kafka_server, produce_request, produced
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

BIG: Final = "big"
COUNT: Final = 2_000
NUMBERS: Final = list(range(COUNT))


def each(**fields: Any) -> list[dict[str, Any]]:
    """A partition's entry for each partition."""
    return [{"partition_index": number, **fields} for number in NUMBERS]


FETCHED: Final = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1000} for number in NUMBERS]
ASKED: Final[list[tuple[str, int, dict[str, Any]]]] = [
    ("Metadata", 12, {"topics": None, "allow_auto_topic_creation": False}),
    ("Metadata", 12, {"topics": [{"name": BIG}], "allow_auto_topic_creation": False}),
    ("DescribeTopicPartitions", 0, {"topics": [{"name": BIG}], "response_partition_limit": COUNT}),
    ("DescribeLogDirs", 4, {"topics": None}),
    ("DescribeLogDirs", 4, {"topics": [{"topic": BIG, "partitions": NUMBERS}]}),
    ("OffsetCommit", 8, {"group_id": "g", "topics": [{"name": BIG, "partitions": each(committed_offset=0)}]}),
    ("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": None}]}),
    ("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": [{"name": BIG, "partition_indexes": NUMBERS}]}]}),
    ("ListOffsets", 6, {"replica_id": -1, "topics": [{"name": BIG, "partitions": each(timestamp=-1)}]}),
    ("Fetch", 12, {"topics": [{"topic": BIG, "partitions": FETCHED}], "max_wait_ms": 1, "min_bytes": 1, "max_bytes": 10**6}),
    ("DeleteRecords", 2, {"topics": [{"name": BIG, "partitions": each(offset=-1)}], "timeout_ms": 60_000}),
    ("ElectLeaders", 2, {"topic_partitions": None, "election_type": 0, "timeout_ms": 1000}),
    ("OffsetDelete", 0, {"group_id": "g", "topics": [{"name": BIG, "partitions": each()}]}),
]


async def transaction(attacked: Served) -> None:
    """Of all partitions, and with offsets for all of them."""
    call = attacked.kafka.call
    got = await call(ask("InitProducerId", transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1), 4)
    whose = {"producer_id": got.producer_id, "producer_epoch": got.producer_epoch}
    joining = {f"v3_and_below_{name}": value for name, value in {**whose, "transactional_id": "t"}.items()}
    topics = [{"name": BIG, "partitions": NUMBERS}]
    assert await call(ask("AddPartitionsToTxn", **joining, v3_and_below_topics=topics), 3)
    assert not (await call(ask("EndTxn", transactional_id="t", **whose, committed=True), 3)).error_code
    group: dict[str, Any] = {"transactional_id": "t", "group_id": "in a transaction", **whose}
    assert not (await call(ask("AddOffsetsToTxn", **group), 3)).error_code
    offsets = [{"name": BIG, "partitions": each(committed_offset=0)}]
    assert await call(ask("TxnOffsetCommit", **group, generation_id=-1, topics=offsets), 3)
    assert not (await call(ask("EndTxn", transactional_id="t", **whose, committed=True), 3)).error_code


NATIVE: Final[list[Callable[[], messages.RequestMessage]]] = [
    lambda: messages.MetadataRequest(),
    lambda: messages.CommitOffsetsRequest("n", tuple(messages.CommittedPartition(BIG, number, 0) for number in NUMBERS)),
    lambda: messages.FetchOffsetsRequest("n", None),
    lambda: messages.DeleteRecordsRequest(tuple(messages.DeleteRecordsPartition(BIG, number, -1) for number in NUMBERS)),
    lambda: messages.OffsetsForTimesRequest(tuple(messages.OffsetsForTimesPartition(BIG, number, -1) for number in NUMBERS)),
    lambda: messages.FetchRequest(tuple(messages.FetchPartition(BIG, number, 0, 1000) for number in NUMBERS)),
]


@pytest.mark.merge
async def test_requests_about_many_partitions_take_no_long_turn(fast_path: Path) -> None:
    async with served(fast_path) as attacked:
        steps: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("create", lambda: attacked.native.call(messages.CreateTopicsRequest((messages.NewTopic(BIG, COUNT),)))),
            *(
                (name, lambda name=name, version=version, fields=fields: attacked.kafka.call(ask(name, **fields), version))  # type: ignore[misc]
                for name, version, fields in ASKED
            ),
            ("a transaction", lambda: transaction(attacked)),
            *((f"native {number}", lambda make=make: attacked.native.call(make())) for number, make in enumerate(NATIVE)),  # type: ignore[misc]
            ("delete", lambda: attacked.kafka.call(ask("DeleteTopics", topics=[{"name": BIG}], timeout_ms=60_000), 6)),
        ]
        failed = []
        for name, step in steps:
            try:
                with short_turns():
                    await step()
            except AssertionError as exc:
                failed.append(f"{name}: {exc}")
        assert not failed, "\n".join(failed)


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


LONG: Final = "t" * 200
"""Topics with such names take more than BYTES_PER_ELEMENT each."""


@pytest.mark.parametrize(
    ("names", "count", "is_taken"),
    [
        ([TOPIC], MAX_ELEMENTS, True),
        ([TOPIC], MAX_ELEMENTS + 1, False),
        ([TOPIC, *[LONG] * 20_000], MAX_ELEMENTS + 20_001, True),
    ],
    ids=["most", "above", "more in a larger request"],
)
async def test_a_request_has_a_limit_of_elements(client: KafkaStream, names: list[str], count: int, is_taken: bool) -> None:
    topics: list[dict[str, Any]] = [{"topic": TOPIC, "partitions": [0] * (count - len(names))}]
    topics += [{"topic": name, "partitions": []} for name in names[1:]]
    await client.send(ask("DescribeLogDirs", topics=topics), 4)
    if is_taken:
        [directory] = (await client.receive()).results
        assert [len(each.partitions) for each in directory.topics] == [1]
    else:
        assert await client.is_closed_by_server()


GROUPS: Final = 3_000
EMPTY_RESOURCE: Final = b"\x0a\x00"
"""A message without a field, in the protobuf of OpenTelemetry."""


@pytest.mark.merge
async def test_a_small_push_of_telemetry_that_unpacks_to_much_takes_no_long_turn(fast_path: Path) -> None:
    async with served(fast_path, telemetry_enable=True) as attacked:
        await attacked.kafka.call(setting("all", metrics="*"), 1)
        told = await attacked.kafka.call(ask("GetTelemetrySubscriptions", client_instance_id=bytes(16)), 0)
        data = bytes(zstd.compress(EMPTY_RESOURCE * 150_000))
        push = ask(
            "PushTelemetry",
            client_instance_id=told.client_instance_id,
            subscription_id=told.subscription_id,
            terminating=False,
            compression_type=int(CompressionType.ZSTD),
            metrics=data,
        )
        assert len(data) < 1000
        with short_turns():
            assert (await attacked.kafka.call(push, 0)).error_code == ErrorCode.INVALID_RECORD


async def put_groups(server: KafkaServer) -> list[str]:
    """Have the broker know many groups; answers their names."""
    topic = server.broker._coordinators.committed_offsets.topic
    await topic.ensure()
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None, members=[])
    names = [f"group-{number:05}" for number in range(GROUPS)]
    for name in names:
        topic.contents(topic.partition_of(name)).put_group(name, value)
    return names


async def test_a_list_of_many_groups_takes_no_long_turn(fast_path: Path) -> None:
    async with served(fast_path) as attacked:
        names = await put_groups(attacked.server)
        with short_turns():
            answer = await attacked.kafka.call(ask("ListGroups"), 4)
        assert [each.group_id for each in answer.groups] == names


async def test_a_list_of_groups_that_the_client_may_not_see_takes_no_long_turn(fast_path: Path) -> None:
    async with kafka_server(fast_path, acl_enable=True) as server, server.connected() as client:
        await put_groups(server)
        with short_turns():
            assert (await client.call(ask("ListGroups"), 4)).groups == []


async def test_a_request_of_much_that_the_client_may_not_do_takes_no_long_turn(fast_path: Path) -> None:
    names = [f"{number}" for number in range(GROUPS)]
    requests = [
        (ask("DescribeGroups", groups=names), 5, "groups"),
        (ask("DeleteTopics", topics=[{"name": name, "topic_id": bytes(16)} for name in names]), 6, "responses"),
    ]
    async with kafka_server(fast_path, acl_enable=True) as server, server.connected() as client:
        for request, version, field in requests:
            with short_turns():
                answer = await client.call(request, version)
            assert len(getattr(answer, field)) == GROUPS
            assert all(each.error_code for each in getattr(answer, field))


async def test_a_request_about_tens_of_thousands_of_partitions_is_answered(fast_path: Path) -> None:
    numbers = list(range(30_000))
    async with served(fast_path) as attacked:
        request = ask("DescribeLogDirs", topics=[{"topic": TOPIC, "partitions": numbers}])
        with short_turns():
            answer = await attacked.kafka.call(request, 4)
        assert [len(topic.partitions) for each in answer.results for topic in each.topics] == [1]
