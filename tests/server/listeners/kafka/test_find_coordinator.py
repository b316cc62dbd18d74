"""FindCoordinator: this broker coordinates everything; clients go where they are sent."""

from __future__ import annotations

import pytest
from triolog.protocol.kafka.messages.find_coordinator import FindCoordinatorRequest

from tests.support.kafka_server import KafkaServer
from tests.support.kafka_stream import KafkaStream

INVALID_REQUEST = 42
GROUP, TRANSACTION, SHARE = 0, 1, 2


def asking(*keys: str, key_type: int = GROUP) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=keys[0] if keys else "", key_type=key_type, coordinator_keys=list(keys))


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
async def test_keys_are_answered_with_this_broker_in_their_order(
    kafka: KafkaServer, client: KafkaStream, key_type: int
) -> None:
    here = (0, kafka.broker.node_id, *kafka.address)
    for version in range(4):
        answer = await client.call(asking("key", key_type=key_type), version)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == here, version
        assert answer.coordinators == [], version
    for version in range(4, 7):
        answer = await client.call(asking("b", "a", "b", key_type=key_type), version)
        found = [(each.key, each.error_code, each.node_id, each.host, each.port) for each in answer.coordinators]
        assert found == [(key, *here) for key in ("b", "a", "b")], version
        assert (await client.call(asking(), version)).coordinators == [], version


@pytest.mark.parametrize("key_type", [SHARE, 77, -1])
async def test_other_kinds_have_no_coordinator(client: KafkaStream, key_type: int) -> None:
    for version in range(1, 7):
        answer = await client.call(asking("key", key_type=key_type), version)
        only = answer if version < 4 else answer.coordinators[0]
        assert (only.error_code, only.node_id, only.host, only.port) == (INVALID_REQUEST, -1, "", -1), version
        assert only.error_message, version
