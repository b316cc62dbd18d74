"""A real client above its quota: librdkafka is told, nothing is lost, and it goes on when its time is over.

Nothing would go on within the test if the broker's clock were not moved. Of admin clients only Java's knows quotas, of which is
kafka/test_admin_tools.py.
"""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, ThrottleEvent, TopicPartition
from triolog.server.embedded import BlockingBroker

from tests.support.kafka_quotas import FETCHED, PRODUCED, altering
from tests.support.kafka_wire import KafkaWire

TOPIC: Final = "topic"
CLIENT_ID: Final = "greedy"
VALUE: Final = b"x" * 20_000
BOUND: Final = 100.0
LEAST_S: Final = (len(VALUE) / 10 - BOUND) / BOUND * 10
"""For how long who has used this much at once is quiet at least."""
PATIENCE_S: Final = 60.0


def limited(broker: BlockingBroker, key: str, told: list[ThrottleEvent]) -> dict[str, Any]:
    """What a client is configured with that has this quota."""
    with KafkaWire.connect(broker.kafka) as admin:
        [entry] = admin.call(altering(([("client-id", CLIENT_ID)], [(key, BOUND)])), 1).entries
    assert entry.error_code == 0
    return {"bootstrap.servers": str(broker.kafka), "client.id": CLIENT_ID, "throttle_cb": told.append}


def test_a_throttled_producer_is_told_and_goes_on_when_its_time_is_over(broker: BlockingBroker) -> None:
    told: list[ThrottleEvent] = []
    producer = Producer({**limited(broker, PRODUCED, told), "linger.ms": 0})
    try:
        producer.produce(TOPIC, VALUE)
        while not told:
            assert producer.poll(PATIENCE_S), "nothing was told"
        assert told[0].throttle_time >= LEAST_S
        producer.produce(TOPIC, VALUE)
        broker.clock.advance(told[0].throttle_time)  # the next event may be one of 0 ms
        assert producer.flush(PATIENCE_S) == 0
    finally:
        producer.close()
    assert [record.value for record in broker.log(TOPIC).fetch()] == [VALUE, VALUE]


def received(consumer: Consumer) -> Message:
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None
    return message


def test_a_throttled_consumer_is_told_and_misses_nothing(broker: BlockingBroker) -> None:
    told: list[ThrottleEvent] = []
    for _ in range(2):
        broker.append(TOPIC, [VALUE])
    consumer = Consumer({**limited(broker, FETCHED, told), "group.id": "group", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        assert received(consumer).offset() == 0
        deadline = time.monotonic() + PATIENCE_S
        while not told:
            assert consumer.poll(0.2) is None, "it is above its quota"
            assert time.monotonic() < deadline
        assert told[0].throttle_time > LEAST_S - 1, "the window has 10 to 11 seconds, by when it asks again"
        broker.clock.advance(told[0].throttle_time)
        assert received(consumer).offset() == 1
    finally:
        consumer.close()
