"""A client of the native protocol that is above its quota: it is not told, and read from no more until its time is over."""

from __future__ import annotations

import select

import pytest
from triolog.protocol.native import messages
from triolog.protocol.native.messages import FetchPartition, FetchRequest, MetadataRequest, ProducePartition, ProduceRequest
from triolog.server.embedded import BlockingBroker

from tests.support.kafka_quotas import FETCHED, PRODUCED, altering
from tests.support.kafka_server import batch
from tests.support.kafka_wire import KafkaWire
from tests.support.wire_client import WireClient

TOPIC = "topic"
KILOBYTES = batch("x" * 20_000)
PRODUCE = ProduceRequest((ProducePartition(TOPIC, 0, KILOBYTES),))
FETCH = FetchRequest((FetchPartition(TOPIC, 0, 0, 30_000),), max_bytes=30_000)


def connected(broker: BlockingBroker) -> WireClient:
    return WireClient.connect(broker.native)


def limit(broker: BlockingBroker, key: str) -> None:
    with KafkaWire.connect(broker.kafka) as admin:
        [entry] = admin.call(altering(([("client-id", "wire-client")], [(key, 100.0)])), 1).entries
        assert entry.error_code == 0


@pytest.mark.parametrize(
    ("key", "request_", "is_muted"),
    [(PRODUCED, PRODUCE, True), (FETCHED, FETCH, True), (PRODUCED, FETCH, False), (FETCHED, PRODUCE, False)],
)
def test_what_follows_a_call_above_the_quota_waits_for_its_time(
    broker: BlockingBroker, key: str, request_: messages.RequestMessage, is_muted: bool
) -> None:
    with connected(broker) as client, connected(broker) as other:
        client.call(PRODUCE)
        limit(broker, key)
        client.call(request_)
        asked = client.send(MetadataRequest())
        if is_muted:
            broker.clock.advance(100)
            other.call(MetadataRequest())
            readable, _, _ = select.select([client.socket], [], [], 0)
            assert not readable
            broker.clock.advance(200)
        assert client.receive_answer(asked)
