"""Peers that open connections to the limit, and ask for what nobody has asked for yet, beside clients that are at work."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.kafka.apis import APIS
from triolog.protocol.kafka.messages.api_versions import ApiVersionsRequest
from triolog.protocol.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from triolog.protocol.native.connection import NativeConnection, Role
from triolog.protocol.native.messages import AuthenticateRequest

from tests.support.certificates import HOST, make_certificates
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
from tests.support.scram_client import ScramClient
from tests.support.server_process import ServerFolder, ServerProcess, python_command
from tests.support.wire_client import WireClient

COMMAND: Final = python_command(f"{TELLS_IMPORTS}{limited_to(256)}")
TOPIC: Final = "at-work"
"""Not what the attacks name: they may delete that."""
ROUNDS: Final = counts(60)
PASSWORD: Final = "of alice"
DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
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


@pytest.mark.parametrize("security", ["sasl_plaintext", "sasl_ssl"])
def test_clients_log_in_on_either_protocol_where_no_descriptor_is_left(tmp_path: Path, security: str) -> None:
    """Their connections were accepted before; handshakes and logins, by every mechanism, come when nothing can be opened."""
    certificates = make_certificates(tmp_path / "certificates")
    users, config = tmp_path / "users.toml", tmp_path / "server.toml"
    users.write_text(f'[alice]\npassword = "{PASSWORD}"\n')
    config.write_text(
        f'kafka_security = "{security}"\nnative_security = "{security}"\nsasl_users_file = "{users}"\n'
        f'ssl_certificate_file = "{certificates.server}"\nlog_level = "debug"\n'
    )
    context = certificates.client_context() if security == "sasl_ssl" else None
    with ServerFolder(tmp_path, command=COMMAND) as folder, ExitStack() as stack:
        server = folder.start("--config", str(config), "--kafka", "127.0.0.1:0")
        listening = server.open_sockets()
        by_native = ["PLAIN", *DIGESTS] if context is not None else list(DIGESTS)
        doors = {server.address: by_native, kafka_address(server): ["PLAIN", *DIGESTS]}
        opened = {
            (address, mechanism): stack.enter_context(socket.create_connection(address, 60))
            for address, mechanisms in doors.items()
            for mechanism in mechanisms
        }
        server.wait_sockets(listening + len(opened))
        exhaust(server)
        for (address, mechanism), plain in opened.items():
            connection = plain if context is None else stack.enter_context(context.wrap_socket(plain, server_hostname=HOST))
            log_in = native_login if address == server.address else kafka_login
            log_in(connection, mechanism)
        assert server.stderr().count("logged in as alice") == len(opened)
        relieve(server)
        assert server.stop() == 0
        assert "Traceback" not in server.stderr()


def native_login(connection: socket.socket, mechanism: str) -> None:
    client = WireClient(connection, NativeConnection(Role.CLIENT))
    client.say_hello()
    if mechanism == "PLAIN":
        assert client.call(AuthenticateRequest(mechanism, f"\0alice\0{PASSWORD}".encode())).done
        return
    exchange = ScramClient(DIGESTS[mechanism], "alice", PASSWORD)
    first = client.call(AuthenticateRequest(mechanism, exchange.first()))
    last = client.call(AuthenticateRequest(mechanism, exchange.final(first.data)))
    assert last.done
    assert exchange.check(last.data)


def kafka_login(connection: socket.socket, mechanism: str) -> None:
    client = KafkaWire(connection)
    assert client.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    if mechanism == "PLAIN":
        answer = client.call(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()), 2)
        assert answer.error_code == 0
        return
    exchange = ScramClient(DIGESTS[mechanism], "alice", PASSWORD)
    first = client.call(SaslAuthenticateRequest(auth_bytes=exchange.first()), 2)
    assert exchange.check(client.call(SaslAuthenticateRequest(auth_bytes=exchange.final(first.auth_bytes)), 2).auth_bytes)
