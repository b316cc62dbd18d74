"""AlterConfigs replaces, IncrementalAlterConfigs changes; both validate, and refuse what Kafka refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from tests.support import kafka_admin
from tests.support.kafka_admin import APPEND, BROKER_TYPE, DELETE, SET, SUBTRACT, TOPIC_TYPE, alter, error_names
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream

Operations = Sequence[tuple[str, int, str | None]]

BEFORE = {"segment.bytes": "5000", "cleanup.policy": "compact"}


@pytest.fixture
async def kafka(kafka: KafkaServer) -> KafkaServer:
    """The same, its topic configured."""
    await kafka.broker.topics.alter_configs(TOPIC, BEFORE)
    return kafka


def configs(kafka: KafkaServer) -> dict[str, str]:
    return kafka.broker.topics.describe(TOPIC).config


async def change(client: KafkaStream, *operations: tuple[str, int, str | None], version: int = 1) -> str:
    """The error of a change of TOPIC."""
    answer = await client.call(kafka_admin.alter_incrementally((TOPIC_TYPE, TOPIC, operations)), version)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [(TOPIC_TYPE, TOPIC)]
    return error_names(answer.responses)[0]


@pytest.mark.parametrize("version", range(3))
async def test_what_is_not_named_follows_the_defaults_again(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    request = (TOPIC_TYPE, TOPIC, [("retention.ms", "7")])
    assert error_names((await client.call(alter(request, validate_only=True), version)).responses) == ["NONE"]
    assert configs(kafka) == BEFORE
    assert error_names((await client.call(alter(request), version)).responses) == ["NONE"]
    assert configs(kafka) == {"retention.ms": "7"}


REFUSED: list[tuple[int, str, list[tuple[str, str | None]], str]] = [
    (TOPIC_TYPE, TOPIC, [("no.such.key", "1")], "INVALID_CONFIG"),
    (TOPIC_TYPE, TOPIC, [("retention.ms", "x")], "INVALID_CONFIG"),
    (TOPIC_TYPE, TOPIC, [("retention.ms", None)], "INVALID_REQUEST"),
    (TOPIC_TYPE, TOPIC, [("retention.ms", "1"), ("retention.ms", "2")], "INVALID_REQUEST"),
    (TOPIC_TYPE, "nope", [("retention.ms", "1")], "UNKNOWN_TOPIC_OR_PARTITION"),
    (TOPIC_TYPE, "nope", [("compression.type", "none")], "INVALID_CONFIG"),  # which is said first
    (TOPIC_TYPE, "", [("retention.ms", "1")], "INVALID_REQUEST"),
    (BROKER_TYPE, "1", [("num.partitions", "2")], "INVALID_REQUEST"),
    (BROKER_TYPE, "", [("log.retention.ms", "x")], "INVALID_CONFIG"),
    (BROKER_TYPE, "", [("retention.ms", "2")], "INVALID_REQUEST"),
    (BROKER_TYPE, "7", [], "INVALID_REQUEST"),
    (8, "1", [("root", "DEBUG")], "INVALID_REQUEST"),
    (16, "x", [("interval.ms", "1")], "INVALID_REQUEST"),
    (32, "group", [("consumer.session.timeout.ms", "1")], "INVALID_CONFIG"),
    (99, "x", [("x", "1")], "INVALID_REQUEST"),
]


@pytest.mark.parametrize("incremental", [False, True], ids=["replaced", "changed"])
async def test_what_kafka_refuses_is_refused_alone(kafka: KafkaServer, client: KafkaStream, incremental: bool) -> None:
    await kafka.broker.topics.create("beside")
    for kind, name, pairs, error in REFUSED:
        beside = (TOPIC_TYPE, "beside", [("retention.ms", "7")])
        if incremental:
            asked = [(kind, name, [(key, SET, value) for key, value in pairs]), (*beside[:2], [("retention.ms", SET, "7")])]
            answer = await client.call(kafka_admin.alter_incrementally(*asked), 1)
        else:
            answer = await client.call(alter((kind, name, pairs), beside), 2)
        assert error_names(answer.responses) == [error, "NONE"], (kind, name, pairs)
        assert answer.responses[0].error_message
    assert configs(kafka) == BEFORE


async def test_a_resource_that_is_there_twice_is_left_as_it_is(kafka: KafkaServer, client: KafkaStream) -> None:
    resource = (TOPIC_TYPE, TOPIC, [("retention.ms", "7")])
    assert error_names((await client.call(alter(resource, resource), 2)).responses) == ["INVALID_REQUEST"] * 2
    assert configs(kafka) == BEFORE


async def test_changing_nothing_of_a_broker_succeeds(client: KafkaStream) -> None:
    """kafka-reassign-partitions deletes the throttles that it may have set."""
    assert error_names((await client.call(alter((BROKER_TYPE, "1", [])), 2)).responses) == ["NONE"]
    unset = (BROKER_TYPE, "1", [("leader.replication.throttled.rate", DELETE, None)])
    assert error_names((await client.call(kafka_admin.alter_incrementally(unset), 1)).responses) == ["NONE"]


@pytest.mark.parametrize("version", range(2))
async def test_single_keys_are_set_and_deleted(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    operations: Operations = [
        ("retention.ms", SET, "7"),
        ("segment.bytes", DELETE, None),
        ("flush.ms", DELETE, None),
        ("no.such.key", DELETE, None),
    ]
    request = kafka_admin.alter_incrementally((TOPIC_TYPE, TOPIC, operations), validate_only=True)
    assert error_names((await client.call(request, version)).responses) == ["NONE"]
    assert configs(kafka) == BEFORE
    assert await change(client, *operations, version=version) == "NONE"
    assert configs(kafka) == {"cleanup.policy": "compact", "retention.ms": "7"}


async def test_lists_take_and_lose_parts(kafka: KafkaServer, client: KafkaStream) -> None:
    policies = []
    for operation, value in [
        (APPEND, "delete"),
        (APPEND, "delete,compact"),
        (SUBTRACT, "compact"),
        (SUBTRACT, "compact"),
        (APPEND, "compact, delete"),
        (SUBTRACT, "compact, delete"),
    ]:
        assert await change(client, ("cleanup.policy", operation, value)) == "NONE"
        policies.append(configs(kafka)["cleanup.policy"])
    assert policies == ["compact,delete", "compact,delete", "delete", "delete", "delete,compact", ""]


async def test_a_list_begins_with_its_default(kafka: KafkaServer, client: KafkaStream) -> None:
    assert await change(client, ("cleanup.policy", DELETE, None)) == "NONE"
    assert await change(client, ("cleanup.policy", APPEND, "compact")) == "NONE"
    assert await change(client, ("leader.replication.throttled.replicas", APPEND, "0:1,1:1")) == "NONE"
    assert configs(kafka)["cleanup.policy"] == "delete,compact"
    assert configs(kafka)["leader.replication.throttled.replicas"] == "0:1,1:1"


IMPOSSIBLE: list[tuple[tuple[str, int, str | None], str]] = [
    (("retention.ms", APPEND, "1"), "INVALID_CONFIG"),
    (("retention.ms", SUBTRACT, "1"), "INVALID_CONFIG"),
    (("no.such.key", APPEND, "1"), "INVALID_CONFIG"),
    (("cleanup.policy", APPEND, "bogus"), "INVALID_CONFIG"),
    (("cleanup.policy", APPEND, None), "INVALID_REQUEST"),
    (("cleanup.policy", 4, "delete"), "INVALID_REQUEST"),
    (("cleanup.policy", -1, "delete"), "INVALID_REQUEST"),
]


async def test_an_operation_that_cannot_be_is_refused(kafka: KafkaServer, client: KafkaStream) -> None:
    for operation, error in IMPOSSIBLE:
        assert await change(client, ("retention.bytes", SET, "7"), operation) == error, operation
        assert configs(kafka) == BEFORE, operation


async def test_parts_that_many_append_at_once_are_all_there(kafka: KafkaServer) -> None:
    pairs = [f"{number}:1" for number in range(10)]

    async def append(pair: str) -> None:
        async with kafka.connected() as client:
            assert await change(client, ("leader.replication.throttled.replicas", APPEND, pair)) == "NONE"

    async with trio.open_nursery() as nursery:
        for pair in pairs:
            nursery.start_soon(append, pair)
    assert sorted(configs(kafka)["leader.replication.throttled.replicas"].split(",")) == pairs


async def test_a_lenient_server_keeps_unknown_keys(fast_path: Path) -> None:
    async with kafka_server(fast_path / "lenient", lenient=True) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC)
        assert await change(client, ("no.such.key", SET, "1"), ("remote.storage.enable", SET, "true")) == "NONE"
        assert configs(kafka) == {"no.such.key": "1", "remote.storage.enable": "true"}
        assert await change(client, ("no.such.key", DELETE, None)) == "NONE"
        assert await change(client, ("retention.ms", SET, "x")) == "INVALID_CONFIG"
