"""GetTelemetrySubscriptions and PushTelemetry: on the wire, and by a real client, librdkafka, whose metrics are on /metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.apis import ApiKey
from triolog.protocol.kafka.messages.admin.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from triolog.protocol.kafka.messages.api_versions import ApiVersionsRequest
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.listeners.http.metrics import scrape
from triolog.server.settings.broker_config import Address

from tests.support.client_metrics import setting
from tests.support.kafka_server import kafka_server
from tests.support.kafka_wire import KafkaWire

VERSIONS = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")
ASKED = GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16))
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


async def test_they_are_advertised_where_telemetry_is_enabled(fast_path: Path) -> None:
    for is_enabled in (False, True):
        async with kafka_server(fast_path, telemetry_enable=is_enabled) as kafka, kafka.connected() as client:
            answer = await client.call(VERSIONS, 3)
            assert TELEMETRY & {each.api_key for each in answer.api_keys} == (TELEMETRY if is_enabled else set())


async def test_a_client_asks_what_it_is_to_send_and_sends_it(fast_path: Path) -> None:
    async with kafka_server(fast_path, telemetry_enable=True, telemetry_max_bytes=50) as kafka:
        async with kafka.connected() as client:
            await client.call(setting("all", metrics="x.", interval_ms="3600000", match="client_source_address=127.0.0.1"), 1)
            told = await client.call(ASKED, 0)
            assert (told.error_code, list(told.requested_metrics), told.push_interval_ms) == (0, ["x."], 300_000)
            assert (told.telemetry_max_bytes, told.delta_temporality) == (50, True)
            assert list(told.accepted_compression_types) == [4, 3, 1, 2]
            whose: dict[str, Any] = {
                "client_instance_id": told.client_instance_id,
                "subscription_id": told.subscription_id,
                "terminating": False,
                "compression_type": 0,
            }
            unreadable = PushTelemetryRequest(**whose, metrics=b"\xff\xff")
            assert (await client.call(unreadable, 0)).error_code == ErrorCode.INVALID_RECORD
            again = GetTelemetrySubscriptionsRequest(client_instance_id=told.client_instance_id)
            assert (await client.call(again, 0)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            stranger = PushTelemetryRequest(**{**whose, "client_instance_id": bytes(16)}, metrics=b"")
            assert (await client.call(stranger, 0)).error_code == ErrorCode.INVALID_REQUEST
            assert kafka.broker.telemetry.pushes == {"INVALID_RECORD": 1, "INVALID_REQUEST": 1}
            assert len(kafka.broker.telemetry.instances) == 1


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(MEMORY, native=None, kafka=Address("127.0.0.1", 0), topics=["t"], telemetry=True) as broker:
        yield broker


def test_what_librdkafka_sends_is_on_metrics(broker: BlockingBroker) -> None:
    with KafkaWire.connect(broker.kafka) as admin:
        admin.call(setting("producers", metrics="org.apache.kafka.producer.", interval_ms="100", match="client_id=sensor"), 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "sensor", "enable.metrics.push": True})
    producer.produce("t", b"value")
    producer.flush(60)
    pushed = broker.requests.wait_for("PushTelemetry", count=2, answered=True, timeout_s=60)
    assert all(not each.errors for each in pushed)
    text = broker.call(lambda: scrape(broker._target.core, {})).decode()
    lines = [line for line in text.splitlines() if line.startswith("triolog_client_metric{")]
    assert any('client_id="sensor"' in line and 'metric="org.apache.kafka.producer.' in line for line in lines), text[-2000:]
    producer.close()


def addresses(broker: BlockingBroker) -> list[Address]:
    """Of its nodes."""
    nodes = broker.call_now(lambda: broker._target.life.nodes)
    return [Address(*each[1:]) for each in nodes.addresses.values()]


def test_a_subscription_holds_at_every_node_after_a_crash_and_in_a_fork_and_its_interval_follows_the_clock() -> None:
    kafka = Address("127.0.0.1", 0)
    with BlockingBroker(MEMORY, native=None, kafka=kafka, nodes=2, telemetry=True) as broker:
        first, second = addresses(broker)
        with KafkaWire.connect(first) as client:
            client.call(setting("all", metrics="x.", interval_ms="60000"), 1)
        with KafkaWire.connect(second) as client:
            told = client.call(ASKED, 0)
            assert list(told.requested_metrics) == ["x."]
            again = GetTelemetrySubscriptionsRequest(client_instance_id=told.client_instance_id)
            assert client.call(again, 0).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            broker.clock.advance(60)
            assert client.call(again, 0).error_code == 0
        broker.crash()
        broker.restart()
        with broker.fork() as fork:
            for address in (first, second, *addresses(fork)):
                with KafkaWire.connect(address) as client:
                    assert list(client.call(ASKED, 0).requested_metrics) == ["x."]
