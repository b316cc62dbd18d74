"""Client quotas asked of Apache Kafka 4.3.1 and of triolog: the answers are the same, but for their words."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from triolog.server.embedded import BlockingBroker
from triolog.server.settings.broker_config import Address
from triolog.tools.bench.kafka.jars import kafka_jars

from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_jars import KafkaCalls
from tests.support.kafka_quotas import ALTERATIONS, DESCRIPTIONS, altered, altering, asking, described
from tests.support.kafka_wire import KafkaWire

# A broker starts. The quick suite has what it answered: server/listeners/kafka/test_quotas.py.
pytestmark = pytest.mark.full

LAST = [("user", "last")]


def alter(client: KafkaWire) -> list[Any]:
    return [altered(client.call(body, 1)) for body in ALTERATIONS]


def describe(client: KafkaWire) -> list[Any]:
    return [described(client.call(body, 1)) for body in DESCRIPTIONS]


def wait_for_last(client: KafkaWire) -> None:
    """Kafka's controller takes quotas before its broker knows of them; what came first is known then, too."""
    client.call(altering((LAST, [("producer_byte_rate", 1.0)])), 1)
    while not client.call(asking(("user", 0, "last")), 1).entries:
        """Asked again: the answer says it when it is so."""


def test_answers_are_those_of_kafka(kafka: KafkaCalls, tmp_path: Path) -> None:
    with BlockingBroker(tmp_path / "ours", native=None, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
        assert broker.kafka is not None
        with closing(KafkaWire.connect(broker.kafka)) as client:
            ours = alter(client)
            wait_for_last(client)
            ours += describe(client)
    with KafkaBroker(tmp_path / "kafka", kafka_jars(), kafka) as theirs:
        theirs.format()
        theirs.start()
        with closing(KafkaWire.connect(Address.parse(theirs.address))) as client:
            expected = alter(client)
            wait_for_last(client)
            expected += describe(client)
        theirs.stop()
    for body, one, other in zip([*ALTERATIONS, *DESCRIPTIONS], ours, expected, strict=True):
        assert one == other, body
