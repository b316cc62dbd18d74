"""Changes of topics above a quota, at Apache Kafka 4.3.1 and at triolog: who is refused, and who has to be quiet."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker

from tests.support import kafka_quotas
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_wire import CLIENT_ID, KafkaWire

# A broker starts. Scripts compare what is set and described (test_differential.py); the commit tier has what Kafka answered.

LAST: Final = [("user", "last")]
OWN: Final = [("client-id", CLIENT_ID)]


def wait_for_last(client: KafkaWire) -> None:
    """Kafka's controller takes quotas before its broker knows of them; what came first is known then, too."""
    client.call(kafka_quotas.altering((LAST, [("producer_byte_rate", 1.0)])), 1)
    while not client.call(kafka_quotas.asking(("user", 0, "last")), 1).entries:
        """Asked again: the answer says it when it is so."""


def clear(client: KafkaWire) -> None:
    while entries := client.call(kafka_quotas.asking(), 1).entries or ():
        for entry in entries:
            parts = [(each.entity_type, each.entity_name) for each in entry.entity]
            client.call(kafka_quotas.altering((parts, [(each.key, None) for each in entry.values])), 1)


def changes(address: Address) -> list[tuple[list[str], bool]]:
    """What becomes of changes of topics above a quota, and whether their client has to be quiet: each on a connection of its
    own, since nobody listens to who has to be quiet."""
    with closing(KafkaWire.connect(address)) as client:
        client.call(kafka_quotas.altering((OWN, [(kafka_quotas.MUTATIONS, 0.1)])), 1)
        wait_for_last(client)
    found = []
    for body, version in [*kafka_quotas.mutations(is_strict=True), *kafka_quotas.mutations(is_strict=False)]:
        with closing(KafkaWire.connect(address)) as client:
            answer = client.call(body, version)
            found.append((kafka_quotas.mutated(answer), answer.throttle_time_ms > 0))
    with closing(KafkaWire.connect(address)) as client:
        clear(client)
    return found


def test_changes_of_topics_are_limited_as_by_kafka(broker: BlockingBroker, apache: KafkaBroker) -> None:
    ours = changes(broker.kafka)
    assert changes(Address.parse(apache.address)) == ours
    refused, granted = (["THROTTLING_QUOTA_EXCEEDED"], True), (["NONE"], True)
    assert ours == [(["NONE"], False), *[refused] * 3, *[granted] * 4]
