"""TLS on a listener: what goes through, who is let in, and what ends a handshake."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import triolog
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.kafka.messages.topics import MetadataRequest
from triolog.server.config.broker_config import Address
from triolog.server.config.listener_security import ClientAuth, ListenerSecurity
from triolog.server.embedded import MEMORY, BlockingBroker
from triolog.server.listeners.connections.tls import distinguished_name, server_context
from triolog.server.listeners.opening import Addresses, Listeners

from tests.support import forwarding
from tests.support.brokers import broker_config, running_broker, until
from tests.support.certificates import HOST, Certificates
from tests.support.kafka_server import batch, fetch_partition, fetch_request, produce_request
from tests.support.kafka_wire import KafkaWire

ANY = Address("127.0.0.2", 0)
"""Where no other test listens: a client of theirs that comes back to a port that it knew would be a failed handshake here."""
LARGE_BYTES = 3_000_000
PATIENCE_S = 60.0


@contextmanager
def serving(certificates: Certificates, **keys: Any) -> Iterator[BlockingBroker]:
    """A broker whose Kafka listener speaks TLS."""
    security = {"kafka_security": "ssl", **certificates.server_keys(), **keys}
    config = {"max.message.bytes": str(2 * LARGE_BYTES), "retention.ms": "-1"}
    with triolog.blocking.open(MEMORY, kafka=ANY, security=security, config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[BlockingBroker]:
    with serving(certificates) as served:
        yield served


def shaken(broker: BlockingBroker, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(broker.kafka, PATIENCE_S)
    try:
        return context.wrap_socket(plain, server_hostname=HOST)
    except BaseException:
        plain.close()
        raise


def asked(connection: ssl.SSLSocket) -> int:
    """How many topics there are; the connection is closed."""
    with KafkaWire(connection) as wire:
        return len(wire.call(MetadataRequest(topics=None), 9).topics)


def failed(broker: BlockingBroker) -> int:
    """Handshakes."""
    return broker.call_now(lambda: broker._target.core.security.statistics.failed_handshakes)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_large_and_small_requests_and_answers_go_through(certificates: Certificates, version: ssl.TLSVersion) -> None:
    context = certificates.client_context()
    context.minimum_version = context.maximum_version = version
    with serving(certificates) as broker, KafkaWire(shaken(broker, context)) as wire:
        broker.create_topic("topic")
        for size in (1, 100, 16 * 1024, LARGE_BYTES):
            answer = wire.call(produce_request(batch("x" * size)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        answer = wire.call(fetch_request(fetch_partition(), max_bytes=2**30), 12)
        assert len(answer.responses[0].partitions[0].records) > LARGE_BYTES
        assert failed(broker) == 0


def test_requests_that_come_together_are_answered_in_order(broker: BlockingBroker, certificates: Certificates) -> None:
    with KafkaWire(shaken(broker, certificates.client_context())) as wire:
        for _ in range(200):
            wire.send(MetadataRequest(topics=None), 9)
        for _ in range(200):
            wire.receive()


def test_a_server_that_ends_a_connection_says_farewell(broker: BlockingBroker, certificates: Certificates) -> None:
    with shaken(broker, certificates.client_context()) as connection:
        connection.sendall(struct.pack(">i", -1))
        assert connection.recv(1) == b""  # would raise without one


@pytest.mark.parametrize(
    ("auth", "let_in", "kept_out"),
    [("none", [None], []), ("requested", [None, "client"], ["other_client"]), ("required", ["client"], [None, "other_client"])],
)
def test_client_certificates(
    certificates: Certificates, auth: str, let_in: list[str | None], kept_out: list[str | None]
) -> None:
    with serving(certificates, kafka_ssl_client_auth=auth) as broker:
        for shown in (*let_in, *kept_out):
            certificate = None if shown is None else getattr(certificates, shown)
            said = ""
            try:
                asked(shaken(broker, certificates.client_context(certificate)))
            except ssl.SSLError as exc:
                said = str(exc).upper()
            assert ("CERTIFICATE" in said or "UNKNOWN_CA" in said) is (shown in kept_out), shown
        forwarding.until(lambda: failed(broker) >= len(kept_out), "the count that follows the alert")
        assert failed(broker) == len(kept_out)


def test_a_client_that_does_not_trust_the_server_goes_away(broker: BlockingBroker, certificates: Certificates) -> None:
    before = failed(broker)
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(broker, certificates.client_context(ca=certificates.other_ca))
    while failed(broker) == before:
        """The server has not heard of it yet."""


@pytest.mark.parametrize("data", [b"\0\0\0\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 40])
def test_who_speaks_no_tls_is_ended_and_counted(broker: BlockingBroker, certificates: Certificates, data: bytes) -> None:
    before = failed(broker)
    with socket.create_connection(broker.kafka, PATIENCE_S) as plain:
        plain.sendall(data)
        plain.shutdown(socket.SHUT_WR)
        while plain.recv(4096):
            pass
    while failed(broker) == before:
        """The server has not heard of it yet."""
    assert asked(shaken(broker, certificates.client_context())) == 0


def test_a_handshake_that_stalls_is_ended_and_others_go_on(certificates: Certificates) -> None:
    with (
        serving(certificates, ssl_handshake_timeout_ms=1000) as broker,
        socket.create_connection(broker.kafka, PATIENCE_S) as stalled,
        socket.create_connection(broker.kafka, PATIENCE_S) as begun,
    ):
        begun.sendall(b"\x16\x03\x01")
        asked(shaken(broker, certificates.client_context()))
        assert (stalled.recv(1), begun.recv(1)) == (b"", b"")
        assert failed(broker) == 2


async def test_a_stop_does_not_wait_for_handshakes(tmp_path: Path, certificates: Certificates) -> None:
    keys = {"kafka_security": ListenerSecurity.SSL, **certificates.server_keys()}
    async with running_broker(tmp_path, **keys) as broker:
        listeners = Listeners(broker)
        async with trio.open_nursery() as nursery:
            addresses = await listeners.start(nursery, Addresses(None, ANY))
            stalled = await trio.open_tcp_stream(*addresses.kafka)
            [listener] = listeners._listeners
            await until(lambda: bool(listener._handshakes))
            with trio.fail_after(30):
                listeners.stop(60)
                while await stalled.receive_some(1):
                    pass
        await stalled.aclose()


def test_bytes_that_break_tls_end_the_connection(broker: BlockingBroker, certificates: Certificates) -> None:
    connection = shaken(broker, certificates.client_context())
    with socket.socket(fileno=connection.detach()) as raw:
        raw.settimeout(PATIENCE_S)
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        while raw.recv(4096):
            pass
    assert asked(shaken(broker, certificates.client_context())) == 0


def test_a_context_says_what_is_missing_or_wrong(tmp_path: Path, certificates: Certificates) -> None:
    other = tmp_path / "other.pem"
    other.write_text("no certificate")

    def refused(reason: str, auth: ClientAuth = ClientAuth.NONE, **keys: Any) -> None:
        with pytest.raises(InvalidConfigError, match=reason):
            server_context(broker_config(tmp_path, **keys), auth)

    refused("needs ssl_certificate_file")
    refused("ssl_client_ca_file, which is not set", ClientAuth.REQUIRED, ssl_certificate_file=certificates.server)
    refused("ssl_certificate_file .*none.pem", ssl_certificate_file=str(tmp_path / "none.pem"))
    refused("cannot use", ssl_certificate_file=certificates.server, ssl_key_file=str(other))
    refused(
        "cannot use ssl_client_ca_file .*other.pem", ssl_certificate_file=certificates.server, ssl_client_ca_file=str(other)
    )


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ((), ""),
        (((("countryName", "DE"),), (("commonName", "a"),)), "CN=a,C=DE"),
        (((("organizationName", "Smith, Sons"),), (("commonName", "#a "),)), "CN=\\#a\\ ,O=Smith\\, Sons"),
        (((("commonName", "a"), ("userId", "b")),), "CN=a+UID=b"),
        (((("emailAddress", "a@b"),),), "emailAddress=a@b"),
    ],
)
def test_a_distinguished_name_is_written_as_java_does(subject: Any, name: str) -> None:
    assert distinguished_name({"subject": subject}) == name
