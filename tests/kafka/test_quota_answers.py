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
from tests.support.kafka_quotas import (
    ALTERATIONS,
    DESCRIPTIONS,
    MUTATIONS,
    altered,
    altering,
    asking,
    described,
    mutated,
    mutations,
)
from tests.support.kafka_wire import CLIENT_ID, KafkaWire

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
    with BlockingBroker(tmp_path / "ours", for_tests=True, native=None, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
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


def changes(address: Address) -> list[tuple[list[str], bool]]:
    """What becomes of changes of topics above a quota, and whether their client has to be quiet: each on a connection of its
    own, since nobody listens to who has to be quiet."""
    with closing(KafkaWire.connect(address)) as client:
        client.call(altering(([("client-id", CLIENT_ID)], [(MUTATIONS, 0.1)])), 1)
        wait_for_last(client)
    found = []
    for body, version in [*mutations(is_strict=True), *mutations(is_strict=False)]:
        with closing(KafkaWire.connect(address)) as client:
            answer = client.call(body, version)
            found.append((mutated(answer), answer.throttle_time_ms > 0))
    return found


def test_changes_of_topics_are_limited_as_by_kafka(kafka: KafkaCalls, tmp_path: Path) -> None:
    with BlockingBroker(tmp_path / "ours", for_tests=True, native=None, kafka=Address("127.0.0.1", 0), lenient=False) as broker:
        assert broker.kafka is not None
        ours = changes(broker.kafka)
    with KafkaBroker(tmp_path / "kafka", kafka_jars(), kafka) as theirs:
        theirs.format()
        theirs.start()
        assert changes(Address.parse(theirs.address)) == ours
        theirs.stop()
    refused, granted = (["THROTTLING_QUOTA_EXCEEDED"], True), (["NONE"], True)
    assert ours == [(["NONE"], False), *[refused] * 3, *[granted] * 4]
