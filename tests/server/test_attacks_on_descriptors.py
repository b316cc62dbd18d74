"""Peers that open connections to the limit, and ask for what nobody has asked for yet, beside clients that are at work."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from triolog.protocol.kafka.apis import APIS
from triolog.protocol.kafka.messages.api_versions import ApiVersionsRequest

from tests.support.counts import counts
from tests.support.descriptor_limits import (
    TELLS_IMPORTS,
    exhaust,
    imports_of,
    kafka_address,
    limited_to,
    metrics_address,
    relieve,
)
from tests.support.kafka_requests import requests_of
from tests.support.kafka_server import fetch_partition, fetch_request, produce_request
from tests.support.kafka_wire import KafkaWire, frame
from tests.support.logs import batch
from tests.support.server_process import ServerFolder, ServerProcess, python_command
from tests.support.wire_client import WireClient

COMMAND: Final = python_command(f"{TELLS_IMPORTS}{limited_to(256)}")
TOPIC: Final = "at-work"
"""Not what the attacks name: they may delete that."""
ROUNDS: Final = counts(60)
ATTACKS: Final = [requests_of(api)[-1] for api in APIS.values()]
"""Of every API the newest version."""


def attack(server: ServerProcess, clients: ExitStack, number: int) -> None:
    """One more connection of each kind, which says something that was never said, and does not wait for what comes of it."""
    body, version = ATTACKS[number % len(ATTACKS)]
    said = {
        server.address: b"\x00\x00\x00\x03abc",
        kafka_address(server): frame(body, version, 1),
        metrics_address(server): b"GET /metrics HTTP/1.1\r\n",
    }
    for address, data in said.items():
        peer = clients.enter_context(socket.create_connection(address, 60))
        with suppress(ConnectionError):  # it was ended before it could say anything
            peer.sendall(data)


def work(native: WireClient, kafka: KafkaWire, number: int) -> None:
    """Two records, and two looks at them, whose answers are those that are due."""
    assert native.produce(TOPIC, 0, batch()) == 2 * number
    [produced] = kafka.call(produce_request(batch(), topic=TOPIC), 9).responses
    assert [each.base_offset for each in produced.partition_responses] == [2 * number + 1]
    assert native.high_watermark(TOPIC) == 2 * number + 2
    [fetched] = kafka.call(fetch_request(fetch_partition(2 * number), topic=TOPIC), 11).responses
    assert [each.high_watermark for each in fetched.partitions] == [2 * number + 2]


def test_clients_of_either_protocol_are_answered_while_others_take_all_connections_and_descriptors(tmp_path: Path) -> None:
    """Every answer is waited for before the next attack, so none can be missing, and none is late behind one."""
    with ServerFolder(tmp_path, command=COMMAND) as folder, ExitStack() as attackers:
        server = folder.start("--kafka", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--durability", "os")
        with WireClient.connect(server.address) as native, KafkaWire.connect(kafka_address(server)) as kafka:
            native.create_topic(TOPIC)
            kafka.call(ApiVersionsRequest(), 0)
            loaded = imports_of(tmp_path)
            for number in range(ROUNDS):
                attack(server, attackers, number)
                work(native, kafka, number)
            exhaust(server)
            for number in range(ROUNDS, 2 * ROUNDS):
                attack(server, attackers, number)
                work(native, kafka, number)
            assert imports_of(tmp_path)[len(loaded) :] == []
            attackers.close()
            relieve(server)
            with WireClient.connect(server.address) as late:
                assert late.high_watermark(TOPIC) == 4 * ROUNDS
        assert server.stop() == 0
        assert "met a bug" not in server.stderr()
        assert server.stderr().count("accepting on") <= 3
