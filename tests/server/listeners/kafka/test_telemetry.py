"""Metrics of clients (KIP-714): subscriptions, as Kafka 4.3.1 takes and refuses them, and what librdkafka pushes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triolog
from confluent_kafka import Producer
from triolog.protocol.errors import ErrorCode, InvalidConfigError
from triolog.protocol.kafka.apis import ApiKey
from triolog.server.config.broker_config import Address
from triolog.server.config.resource_keys import MATCHED, subscription
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.figures.prometheus import scrape

from tests.support.client_metrics import ALTERATIONS, DESCRIPTIONS, altered, altering, described, describing, setting
from tests.support.kafka_server import kafka_server
from tests.support.kafka_wire import KafkaWire, ask

VERSIONS = ask("ApiVersions", client_software_name="wire", client_software_version="1.0")
ASKED = ask("GetTelemetrySubscriptions", client_instance_id=bytes(16))
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
            unreadable = ask("PushTelemetry", **whose, metrics=b"\xff\xff")
            assert (await client.call(unreadable, 0)).error_code == ErrorCode.INVALID_RECORD
            again = ask("GetTelemetrySubscriptions", client_instance_id=told.client_instance_id)
            assert (await client.call(again, 0)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            stranger = ask("PushTelemetry", **{**whose, "client_instance_id": bytes(16)}, metrics=b"")
            assert (await client.call(stranger, 0)).error_code == ErrorCode.INVALID_REQUEST
            assert kafka.broker.telemetry.pushes == {"INVALID_RECORD": 1, "INVALID_REQUEST": 1}
            assert len(kafka.broker.telemetry.instances) == 1


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), topics=["t"], telemetry=True) as broker:
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
    with triolog.blocking.open(MEMORY, kafka=kafka, nodes=2, telemetry=True) as broker:
        first, second = addresses(broker)
        with KafkaWire.connect(first) as client:
            client.call(setting("all", metrics="x.", interval_ms="60000"), 1)
        with KafkaWire.connect(second) as client:
            told = client.call(ASKED, 0)
            assert list(told.requested_metrics) == ["x."]
            again = ask("GetTelemetrySubscriptions", client_instance_id=told.client_instance_id)
            assert client.call(again, 0).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            broker.clock.advance(60)
            assert client.call(again, 0).error_code == 0
        broker.crash()
        broker.restart()
        with broker.fork() as fork:
            for address in (first, second, *addresses(fork)):
                with KafkaWire.connect(address) as client:
                    assert list(client.call(ASKED, 0).requested_metrics) == ["x."]


INVALID, WRONG = "INVALID_REQUEST", "INVALID_CONFIG"
ANSWERS = [
    *("NONE", "NONE", WRONG, WRONG, WRONG, "NONE"),
    *(INVALID, "NONE", INVALID, WRONG, INVALID, WRONG, WRONG, WRONG, WRONG, "NONE", WRONG),
    *("NONE", INVALID, "NONE", "NONE", "NONE", "NONE"),
]


async def test_what_is_taken_and_refused_is_what_kafka_does(fast_path: Path) -> None:
    async with kafka_server(fast_path, lenient=False) as kafka, kafka.connected() as client:
        assert [altered(await client.call(body, 1)) for body in ALTERATIONS] == [[name] for name in ANSWERS]
        found = [described(await client.call(body, version)) for body, version in DESCRIPTIONS]
    assert found[0] == [
        ("NONE", [("interval.ms", "300000", 5), ("match", "", 5), ("metrics", "org.apache.kafka.producer.,x", 7)])
    ]
    assert found[2] == [("NONE", [("metrics", "org.apache.kafka.producer.,x", 7)])]
    assert found[3] == [(INVALID, [])]
    assert found[4] == found[5] == [(16, name) for name in ("empty", "last", "some", "wrong")]


async def test_a_subscription_is_there_after_a_restart_until_its_keys_are_deleted(fast_path: Path) -> None:
    expected = [("NONE", [("interval.ms", "1000", 7), ("match", "", 5), ("metrics", "*", 7)])]
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        await client.call(setting("all", metrics="*", interval_ms="1000"), 1)
        assert described(await client.call(describing("all"), 4)) == expected
    async with kafka_server(fast_path) as kafka, kafka.connected() as client:
        assert described(await client.call(describing("all"), 4)) == expected
        assert list(kafka.broker.client_metrics.subscriptions) == ["all"]
        await client.call(altering("all", ("metrics", 1, None), ("interval.ms", 1, None)), 1)
        assert kafka.broker.client_metrics.subscriptions == {}


def test_a_client_is_chosen_by_all_its_parts_that_are_asked_for_and_an_expression_has_a_limit() -> None:
    wanted = subscription({"match": "client_id=a.*, client_software_name=librdkafka"})
    assert wanted.matches({"client_id": "abc", "client_software_name": "librdkafka"})
    assert not wanted.matches({"client_id": "abc", "client_software_name": "java"})
    assert not wanted.matches({"client_id": "xabc", "client_software_name": "librdkafka"}), "the whole of a part has to match"
    assert not wanted.matches({})
    assert subscription({}).matches({})
    assert {part for part in MATCHED if subscription({"match": f"{part}=1"}).matches({part: "1"})} == set(MATCHED)
    with pytest.raises(InvalidConfigError, match="Illegal client matching pattern"):
        subscription({"match": f"client_id={'a' * 256}"})
