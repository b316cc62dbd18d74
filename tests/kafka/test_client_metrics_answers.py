"""Subscriptions to clients' metrics (KIP-714) configured at Apache Kafka 4.3.1 and at triolog: the same answers, but for their
words."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.admin.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from triolog.server.embedded import BlockingBroker
from triolog.server.settings.broker_config import Address
from triolog.tools.bench.kafka.jars import kafka_jars

from tests.support.client_metrics import ALTERATIONS, DESCRIPTIONS, altered, described, is_known, setting
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import KafkaWire

# A broker starts. The quick suite has what it answered: server/listeners/kafka/test_telemetry.py.
pytestmark = pytest.mark.full


def answers(address: Address) -> list[Any]:
    with closing(KafkaWire.connect(address)) as client:
        found: list[Any] = []
        for body in ALTERATIONS:
            found.append(altered(client.call(body, 1)))
        while not is_known(client):
            """Kafka's controller takes them before its broker knows of them."""
        return found + [described(client.call(body, version)) for body, version in DESCRIPTIONS]


def test_answers_are_those_of_kafka(kafka: KafkaCalls, tmp_path: Path) -> None:
    with BlockingBroker(tmp_path / "ours", for_tests=True, native=None, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
        assert broker.kafka is not None
        ours = answers(broker.kafka)
    with KafkaBroker(tmp_path / "kafka", kafka_jars(), kafka) as theirs:
        theirs.format()
        theirs.start()
        expected = answers(Address.parse(theirs.address))
        theirs.stop()
    both = zip([*ALTERATIONS, *DESCRIPTIONS], ours, expected, strict=True)
    for each in both:
        assert each[1] == each[2], each


def pushed(address: Address) -> list[Any]:
    """What becomes of what a client asks and sends, on one connection: each request is made of the answers before it."""
    with closing(KafkaWire.connect(address)) as client:
        client.call(setting("mine", metrics="a.,b.", interval_ms="3600000", match="client_id=kafka-wire"), 1)
        client.call(setting("last", metrics="c.", match="client_id=nobody"), 1)
        while not is_known(client):
            """Kafka's controller takes them before its broker knows of them."""
        asked = client.call(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0)
        found: list[Any] = [
            *(asked.error_code, sorted(asked.requested_metrics), asked.push_interval_ms, asked.telemetry_max_bytes),
            *(asked.delta_temporality, list(asked.accepted_compression_types), asked.client_instance_id != bytes(16)),
        ]
        whose = asked.client_instance_id

        def push(**said: Any) -> None:
            fields = {
                "client_instance_id": whose,
                "subscription_id": asked.subscription_id,
                "terminating": False,
                "compression_type": 0,
                "metrics": b"",
                **said,
            }
            found.append(ErrorCode(client.call(PushTelemetryRequest(**fields), 0).error_code).name)

        def get(instance_id: bytes) -> None:
            answer = client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)
            found.append((ErrorCode(answer.error_code).name, answer.client_instance_id == instance_id))

        get(whose)
        push(client_instance_id=bytes(16))
        push(client_instance_id=bytes(15) + b"\1")
        push(subscription_id=asked.subscription_id + 1, compression_type=9, metrics=bytes(2**20 + 1))
        get(whose)
        push()
        push(terminating=True, compression_type=9, metrics=bytes(2**20 + 1))
        get(whose)
        push(terminating=True)
        push()
        push(terminating=True)
        get(bytes(range(16)))
        push(client_instance_id=bytes(range(1, 17)), terminating=True, subscription_id=7)
        push(client_instance_id=bytes(range(2, 18)), metrics=bytes(2**20 + 1))
        return found


def test_what_clients_ask_and_send_is_answered_as_by_kafka(kafka: KafkaCalls, tmp_path: Path) -> None:
    """Without a plug-in Kafka does not advertise these APIs, answers them all the same, and throws away what it is sent."""
    ours_at = Address("127.0.0.1", 0)
    with BlockingBroker(tmp_path / "ours", for_tests=True, native=None, kafka=ours_at, lenient=False, telemetry=True) as broker:
        assert broker.kafka is not None
        ours = pushed(broker.kafka)
    with KafkaBroker(tmp_path / "kafka", kafka_jars(), kafka) as theirs:
        theirs.format()
        theirs.start()
        expected = pushed(Address.parse(theirs.address))
        theirs.stop()
    assert ours == expected
