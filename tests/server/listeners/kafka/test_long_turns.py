"""Requests whose answers, or whose contents, are large take no long turn of the event loop (counted: `tests.support.turns`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cramjam import zstd  # type: ignore[attr-defined]
from triolog.protocol.coordinator.classic_group_records import GroupMetadataValue
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import CompressionType

from tests.server.listeners.test_turns import served, short_turns
from tests.support.client_metrics import setting
from tests.support.kafka_server import TOPIC, KafkaServer, kafka_server
from tests.support.kafka_wire import ask

GROUPS: Final = 3_000
EMPTY_RESOURCE: Final = b"\x0a\x00"
"""A message without a field, in the protobuf of OpenTelemetry."""


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
