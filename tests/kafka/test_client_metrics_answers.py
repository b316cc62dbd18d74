"""Subscriptions to clients' metrics (KIP-714) configured at Apache Kafka 4.3.1 and at triolog: the same answers, but for their
words."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import triolog
from triolog.protocol.errors import ErrorCode
from triolog.server.config.broker_config import Address
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support import client_metrics
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_wire import KafkaWire, ask

# A broker starts. The commit tier has what it answered: server/listeners/kafka/test_telemetry.py.


def clear(client: KafkaWire) -> None:
    everything = ask("ListConfigResources", resource_types=[client_metrics.CLIENT_METRICS])
    while found := client.call(everything, 1).config_resources:
        for each in found:
            client.call(
                client_metrics.altering(
                    each.resource_name, *((key, client_metrics.DELETE, None) for key in ("metrics", "interval.ms", "match"))
                ),
                1,
            )


def answers(address: Address) -> list[Any]:
    with closing(KafkaWire.connect(address)) as client:
        found: list[Any] = []
        for body in client_metrics.ALTERATIONS:
            found.append(client_metrics.altered(client.call(body, 1)))
        while not client_metrics.is_known(client):
            """Kafka's controller takes them before its broker knows of them."""
        found += [client_metrics.described(client.call(body, version)) for body, version in client_metrics.DESCRIPTIONS]
        clear(client)
        return found


def test_answers_are_those_of_kafka(broker: BlockingBroker, apache: KafkaBroker) -> None:
    ours, expected = answers(broker.kafka), answers(Address.parse(apache.address))
    both = zip([*client_metrics.ALTERATIONS, *client_metrics.DESCRIPTIONS], ours, expected, strict=True)
    for each in both:
        assert each[1] == each[2], each


def pushed(address: Address) -> list[Any]:
    """What becomes of what a client asks and sends, on one connection: each request is made of the answers before it."""
    with closing(KafkaWire.connect(address)) as client:
        client.call(client_metrics.setting("mine", metrics="a.,b.", interval_ms="3600000", match="client_id=kafka-wire"), 1)
        client.call(client_metrics.setting("last", metrics="c.", match="client_id=nobody"), 1)
        while not client_metrics.is_known(client):
            """Kafka's controller takes them before its broker knows of them."""
        asked = client.call(ask("GetTelemetrySubscriptions", client_instance_id=bytes(16)), 0)
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
            found.append(ErrorCode(client.call(ask("PushTelemetry", **fields), 0).error_code).name)

        def get(instance_id: bytes) -> None:
            answer = client.call(ask("GetTelemetrySubscriptions", client_instance_id=instance_id), 0)
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
        clear(client)
        return found


def test_what_clients_ask_and_send_is_answered_as_by_kafka(apache: KafkaBroker) -> None:
    """Without a plug-in Kafka does not advertise these APIs, answers them all the same, and throws away what it is sent."""
    with triolog.blocking.open(MEMORY, kafka=Address("127.0.0.1", 0), lenient=False, telemetry=True) as broker:
        assert pushed(broker.kafka) == pushed(Address.parse(apache.address))
