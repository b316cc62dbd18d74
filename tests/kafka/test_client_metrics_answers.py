"""Subscriptions to clients' metrics (KIP-714) configured at Apache Kafka 4.3.1 and at triolog: the same answers, but for their
words."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.server.settings.broker_config import Address
from triolog.tools.bench.kafka.jars import kafka_jars

from tests.support.client_metrics import ALTERATIONS, DESCRIPTIONS, altered, described, is_known
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_wire import KafkaWire

# A broker starts. The quick suite has what it answered: server/listeners/kafka/test_client_metrics.py.
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
    with BlockingBroker(tmp_path / "ours", native=None, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
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
