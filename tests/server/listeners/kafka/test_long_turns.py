"""Requests whose answers, or whose contents, are large take no long turn of the event loop (counted: `tests.support.turns`)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cramjam import zstd  # type: ignore[attr-defined]
from triolog.protocol.coordinator.group_metadata import GroupMetadataValue
from triolog.protocol.errors import ErrorCode
from triolog.protocol.types import CompressionType

from tests.server.listeners.test_turns import served, short_turns
from tests.support.client_metrics import setting
from tests.support.kafka_asking import ask

GROUPS: Final = 4_000
EMPTY_RESOURCE: Final = b"\x0a\x00"
"""A message without a field, in the protobuf of OpenTelemetry."""


async def test_a_small_push_of_telemetry_that_unpacks_to_much_takes_no_long_turn(fast_path: Path) -> None:
    async with served(fast_path, telemetry_enable=True) as attacked:
        await attacked.kafka.call(setting("all", metrics="*"), 1)
        told = await attacked.kafka.call(ask("GetTelemetrySubscriptions", client_instance_id=bytes(16)), 0)
        data = bytes(zstd.compress(EMPTY_RESOURCE * 200_000))
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


async def test_a_list_of_many_groups_takes_no_long_turn(fast_path: Path) -> None:
    async with served(fast_path) as attacked:
        await attacked.server.broker.offsets.commit("first", [])
        topic = attacked.server.broker._coordinators.committed_offsets.topic
        await topic.ensure()
        value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None, members=[])
        for number in range(GROUPS):
            name = f"group-{number:05}"
            topic.contents(topic.partition_of(name)).put_group(name, value)
        with short_turns():
            answer = await attacked.kafka.call(ask("ListGroups"), 4)
        assert [each.group_id for each in answer.groups] == [f"group-{number:05}" for number in range(GROUPS)]
