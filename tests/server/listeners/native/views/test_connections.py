"""The call `list_connections` on a server with both listeners."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from triolog.protocol.kafka.messages.cluster import ApiVersionsRequest
from triolog.protocol.native import messages as m
from triolog.server.embedded import BlockingBroker
from triolog.tools.client.blocking import BlockingAdmin, BlockingClient
from triolog.tools.client.config import ClientConfig

from tests.support.kafka_quotas import PRODUCED, altering
from tests.support.kafka_server import batch, produce_request
from tests.support.kafka_wire import CLIENT_ID, KafkaWire
from tests.support.wire_client import WireClient

TOPIC = "topic"


@pytest.fixture
def client(broker: BlockingBroker) -> Iterator[BlockingClient]:
    with BlockingClient(broker.native, ClientConfig(client_id="onlooker")) as client:
        yield client


def kafka(broker: BlockingBroker) -> KafkaWire:
    return KafkaWire.connect(broker.kafka)


def listed(client: BlockingClient, **asked: int) -> dict[str, m.ListedConnection]:
    """By client id."""
    return {each.client_id: each for each in BlockingAdmin(client).list_connections(**asked).connections}


def test_clients_of_both_protocols_are_told_apart(broker: BlockingBroker, client: BlockingClient) -> None:
    with kafka(broker) as wire:
        wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1.0"), 3)
        told = listed(client)
        assert told.keys() == {"onlooker", CLIENT_ID}
        me, other = told["onlooker"], told[CLIENT_ID]
        assert (me.protocol, me.listener, me.software_name, me.user) == (
            "native",
            str(broker.native),
            "triolog-python",
            "User:ANONYMOUS",
        )
        assert (other.protocol, other.listener, other.software_name, other.software_version) == (
            "kafka",
            str(broker.kafka),
            "wire",
            "1.0",
        )
        host, port = wire.socket.getsockname()
        assert other.peer == f"{host}:{port}"
        assert (other.requests, other.requests_in_flight, me.requests_in_flight) == (1, 0, 1)
        assert not me.is_encrypted
        assert not me.is_throttled
        assert me.since_timestamp == pytest.approx(time.time() * 1000, abs=600_000)


def test_bytes_and_requests_are_counted(broker: BlockingBroker, client: BlockingClient) -> None:
    with kafka(broker) as wire:
        before = listed(client)[CLIENT_ID] if wire.call(produce_request(batch("x"), topic=TOPIC), 9) else None
        assert before is not None
        body = produce_request(batch("x" * 5_000), topic=TOPIC)
        for _ in range(3):
            wire.call(body, 9)
        after = listed(client)[CLIENT_ID]
        assert after.requests == before.requests + 3
        assert 15_000 < after.received_bytes - before.received_bytes < 17_000
        assert 0 <= before.sent_bytes <= after.sent_bytes < 1_000


def test_a_client_that_is_above_its_quota_is_throttled(broker: BlockingBroker, client: BlockingClient) -> None:
    with kafka(broker) as wire:
        wire.call(altering(([("client-id", CLIENT_ID)], [(PRODUCED, 100.0)])), 1)
        assert not listed(client)[CLIENT_ID].is_throttled
        wire.call(produce_request(batch("x" * 20_000), topic=TOPIC), 9)
        assert listed(client)[CLIENT_ID].is_throttled


def test_a_request_that_waits_is_in_flight(broker: BlockingBroker, client: BlockingClient) -> None:
    with WireClient.connect(broker.native) as waiting:
        waiting.send(m.FetchRequest((m.FetchPartition(TOPIC, 0, 0),), max_wait_ms=600_000))
        while listed(client)["wire-client"].requests < 2:
            """It is on its way."""
        assert listed(client)["wire-client"].requests_in_flight == 1


def test_there_are_no_more_than_asked_for_the_oldest_first(broker: BlockingBroker, client: BlockingClient) -> None:
    listed(client)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(kafka(broker)).call(ApiVersionsRequest(), 0)
        answer = BlockingAdmin(client).list_connections(max_connections=2)
        assert ([each.client_id for each in answer.connections], answer.left_out) == (["onlooker", CLIENT_ID], 2)
        assert BlockingAdmin(client).list_connections(max_connections=0).left_out == 4
    while BlockingAdmin(client).list_connections().left_out or len(listed(client)) > 1:
        """Those that have ended go."""


def test_one_that_has_not_said_hello_is_there_without_a_name(broker: BlockingBroker, client: BlockingClient) -> None:
    with WireClient.connect(broker.native, say_hello=False) as silent:
        while len(told := listed(client)) < 2:
            """It is not accepted yet."""
        assert (told[""].software_name, told[""].requests) == ("", 0)
        assert told[""].peer.endswith(f":{silent.socket.getsockname()[1]}")
