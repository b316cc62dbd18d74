"""TLS on a listener: what goes through, who is let in, and what ends a handshake."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.kafka.messages.metadata import MetadataRequest
from triolog.server.broker import Broker
from triolog.server.listeners.connections.tls import distinguished_name, server_context
from triolog.server.listeners.opening import Addresses, Listeners
from triolog.server.settings.broker_config import Address
from triolog.server.settings.listener_security import ClientAuth, ListenerSecurity

from tests.support.brokers import broker_config, running_broker, until
from tests.support.certificates import HOST, Certificates
from tests.support.kafka_server import batch, fetch_partition, fetch_request, produce_request
from tests.support.kafka_wire import KafkaWire

ANY = Address("127.0.0.2", 0)
"""Where no other test listens: a client of theirs that comes back to a port that it knew would be a failed handshake here."""
LARGE_BYTES = 3_000_000


@asynccontextmanager
async def serving(folder: Path, certificates: Certificates, **settings: Any) -> AsyncIterator[tuple[Broker, Address]]:
    """A broker whose Kafka listener speaks TLS."""
    keys = {"kafka_security": ListenerSecurity.SSL, **certificates.server_keys(), **settings}
    async with running_broker(folder, **keys) as broker, trio.open_nursery() as nursery:
        listeners = Listeners(broker)
        addresses = await listeners.start(nursery, Addresses(None, ANY))
        assert addresses.kafka is not None
        yield broker, addresses.kafka
        nursery.cancel_scope.cancel()


def shaken(address: Address, context: ssl.SSLContext, timeout_s: float = 60.0) -> ssl.SSLSocket:
    plain = socket.create_connection(address, timeout_s)
    try:
        return context.wrap_socket(plain, server_hostname=HOST)
    except BaseException:
        plain.close()
        raise


def asked(connection: ssl.SSLSocket) -> int:
    """How many topics there are; the connection is closed."""
    with KafkaWire(connection) as wire:
        return len(wire.call(MetadataRequest(topics=None), 9).topics)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_large_and_small_requests_and_answers_go_through(
    tmp_path: Path, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    def exchange(address: Address) -> None:
        context = certificates.client_context()
        context.minimum_version = context.maximum_version = version
        with KafkaWire(shaken(address, context)) as wire:
            for size in (1, 100, 16 * 1024, LARGE_BYTES):
                answer = wire.call(produce_request(batch("x" * size)), 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
            answer = wire.call(fetch_request(fetch_partition(), max_bytes=2**30), 12)
            assert len(answer.responses[0].partitions[0].records) > LARGE_BYTES

    topic = {"max.message.bytes": str(2 * LARGE_BYTES)}
    async with serving(tmp_path, certificates, topic=topic) as (broker, address):
        await broker.topics.create("topic")
        await trio.to_thread.run_sync(exchange, address)
        assert broker.security.statistics.failed_handshakes == 0


async def test_requests_that_come_together_are_answered_in_order(tmp_path: Path, certificates: Certificates) -> None:
    def exchange(address: Address) -> None:
        with KafkaWire(shaken(address, certificates.client_context())) as wire:
            for _ in range(200):
                wire.send(MetadataRequest(topics=None), 9)
            for _ in range(200):
                wire.receive()

    async with serving(tmp_path, certificates) as (_, address):
        await trio.to_thread.run_sync(exchange, address)


async def test_a_server_that_ends_a_connection_says_farewell(tmp_path: Path, certificates: Certificates) -> None:
    def exchange(address: Address) -> bytes:
        with shaken(address, certificates.client_context()) as connection:
            connection.sendall(struct.pack(">i", -1))
            return connection.recv(1)  # would raise without one

    async with serving(tmp_path, certificates) as (_, address):
        assert await trio.to_thread.run_sync(exchange, address) == b""


@pytest.mark.parametrize(
    ("auth", "shown", "is_let_in"),
    [
        ("none", None, True),
        ("requested", None, True),
        ("requested", "client", True),
        ("requested", "other_client", False),
        ("required", "client", True),
        ("required", None, False),
        ("required", "other_client", False),
    ],
)
async def test_certificates_of_clients(
    tmp_path: Path, certificates: Certificates, auth: str, shown: str | None, is_let_in: bool
) -> None:
    def exchange(address: Address) -> bool:
        certificate = None if shown is None else getattr(certificates, shown)
        try:
            asked(shaken(address, certificates.client_context(certificate)))
        except ssl.SSLError as exc:
            said = str(exc).upper()
            return not ("CERTIFICATE" in said or "UNKNOWN_CA" in said)
        return True

    async with serving(tmp_path, certificates, kafka_ssl_client_auth=ClientAuth(auth)) as (broker, address):
        assert await trio.to_thread.run_sync(exchange, address) is is_let_in
        assert broker.security.statistics.failed_handshakes == (not is_let_in)


async def test_a_client_that_does_not_trust_the_server_goes_away(tmp_path: Path, certificates: Certificates) -> None:
    def exchange(address: Address) -> None:
        with pytest.raises(ssl.SSLCertVerificationError):
            shaken(address, certificates.client_context(ca=certificates.other_ca))

    async with serving(tmp_path, certificates) as (broker, address):
        await trio.to_thread.run_sync(exchange, address)
        await until(lambda: broker.security.statistics.failed_handshakes == 1)


@pytest.mark.parametrize("data", [b"\0\0\0\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 40])
async def test_what_is_no_tls_ends_the_connection_and_is_counted(
    tmp_path: Path, certificates: Certificates, data: bytes
) -> None:
    def exchange(address: Address) -> None:
        with socket.create_connection(address, 60.0) as plain:
            plain.sendall(data)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(4096):
                pass

    async with serving(tmp_path, certificates) as (broker, address):
        await trio.to_thread.run_sync(exchange, address)
        await until(lambda: broker.security.statistics.failed_handshakes == 1)
        assert await trio.to_thread.run_sync(lambda: asked(shaken(address, certificates.client_context()))) == 0


async def test_a_handshake_that_stalls_is_ended_and_others_go_on(tmp_path: Path, certificates: Certificates) -> None:
    def exchange(address: Address) -> None:
        with socket.create_connection(address, 60.0) as stalled, socket.create_connection(address, 60.0) as begun:
            begun.sendall(b"\x16\x03\x01")
            asked(shaken(address, certificates.client_context()))
            assert stalled.recv(1) == b""
            assert begun.recv(1) == b""

    async with serving(tmp_path, certificates, ssl_handshake_timeout_ms=1000) as (broker, address):
        await trio.to_thread.run_sync(exchange, address)
        assert broker.security.statistics.failed_handshakes == 2


async def test_a_stop_does_not_wait_for_handshakes(tmp_path: Path, certificates: Certificates) -> None:
    keys = {"kafka_security": ListenerSecurity.SSL, **certificates.server_keys()}
    async with running_broker(tmp_path, **keys) as broker:
        listeners = Listeners(broker)
        async with trio.open_nursery() as nursery:
            addresses = await listeners.start(nursery, Addresses(None, ANY))
            assert addresses.kafka is not None
            stalled = await trio.open_tcp_stream(*addresses.kafka)
            [listener] = listeners._listeners
            await until(lambda: bool(listener._handshakes))
            with trio.fail_after(30):
                listeners.stop(60)
                while await stalled.receive_some(1):
                    pass
        await stalled.aclose()


async def test_bytes_that_break_tls_end_the_connection(tmp_path: Path, certificates: Certificates) -> None:
    def exchange(address: Address) -> None:
        connection = shaken(address, certificates.client_context())
        with socket.socket(fileno=connection.detach()) as raw:
            raw.settimeout(60.0)
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            while raw.recv(4096):
                pass

    async with serving(tmp_path, certificates) as (_, address):
        await trio.to_thread.run_sync(exchange, address)
        assert await trio.to_thread.run_sync(lambda: asked(shaken(address, certificates.client_context()))) == 0


# ---- configuration ---------------------------------------------------------------------------------------------------------


def test_a_context_says_what_is_missing_or_wrong(tmp_path: Path, certificates: Certificates) -> None:
    other = tmp_path / "other.pem"
    other.write_text("no certificate")

    def refused(reason: str, auth: ClientAuth = ClientAuth.NONE, **keys: Any) -> None:
        with pytest.raises(InvalidConfigError, match=reason):
            server_context(broker_config(tmp_path, **keys), auth)

    refused("needs ssl_certificate_file")
    refused("ssl_client_ca_file, which is not set", ClientAuth.REQUIRED, ssl_certificate_file=certificates.server)
    refused("ssl_certificate_file .*none.pem .*cannot be used", ssl_certificate_file=str(tmp_path / "none.pem"))
    refused("cannot be used", ssl_certificate_file=certificates.server, ssl_key_file=str(other))
    refused("ssl_client_ca_file .*other.pem cannot", ssl_certificate_file=certificates.server, ssl_client_ca_file=str(other))


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
