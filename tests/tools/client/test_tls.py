from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from triolog.protocol.native.messages import MetadataRequest
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.main import main
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.errors import ConnectionLostError
from triolog.tools.client.tls import TlsConfig

from tests.support.certificates import Certificates

from .doors import Door


@pytest.fixture
def tls_broker(certificates: Certificates) -> Iterator[BlockingBroker]:
    keys = {"native_security": "ssl", "native_ssl_client_auth": "required", **certificates.server_keys()}
    with BlockingBroker(security=keys) as running:
        running.create_topic("topic")
        yield running


def tls(certificates: Certificates, **changes: Any) -> TlsConfig:
    return TlsConfig(**{"ca_file": certificates.ca, "certificate_file": certificates.client, **changes})


async def test_a_client_sends_large_and_small_records(tls_broker: BlockingBroker, certificates: Certificates, door: Door) -> None:
    sizes = [1, 100, 70_000, 900_000] * 3
    async with door.client(tls_broker.native, ClientConfig(tls=tls(certificates))) as client:
        async with door.producer(client) as producer:
            for size in sizes:
                await producer.send("topic", value=bytes(size))
    found = [len(record.value or b"") for record in tls_broker.fetch("topic", max_bytes=2**30)]
    assert found == sizes


async def test_a_client_in_trio_has_many_calls_at_once(tls_broker: BlockingBroker, certificates: Certificates) -> None:
    async with connect(address=tls_broker.native, config=ClientConfig(tls=tls(certificates))) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(client.metadata, MetadataRequest(None))


async def test_who_is_not_trusted_is_not_connected(tls_broker: BlockingBroker, certificates: Certificates, door: Door) -> None:
    for config, reason in (
        (ClientConfig(tls=tls(certificates, certificate_file=None)), "could not connect"),
        (ClientConfig(tls=tls(certificates, ca_file=None)), "could not connect.*certificate"),
        (ClientConfig(tls=tls(certificates, ca_file=certificates.other_ca)), "could not connect.*certificate"),
        (ClientConfig(connect_timeout_ms=5_000), None),  # without TLS
    ):
        with pytest.raises(ConnectionLostError, match=reason):
            async with door.client(tls_broker.native, config) as client:
                await client.hello()


def test_the_command_line_reaches_a_server_with_tls(tls_broker: BlockingBroker, certificates: Certificates) -> None:
    host, port = tls_broker.native
    options = ["--server", f"{host}:{port}", "--tls-ca", certificates.ca, "--tls-cert", certificates.client]
    result = CliRunner().invoke(main, ["topics", "list", "--json", *options])
    assert result.exit_code == 0, result.output
    assert '"topic"' in result.stdout
    environment = {
        "TRIOLOG_SERVER": f"{host}:{port}",
        "TRIOLOG_TLS_CA": certificates.ca,
        "TRIOLOG_TLS_CERT": certificates.client,
    }
    assert CliRunner().invoke(main, ["topics", "list", "--json"], env=environment).exit_code == 0
    assert CliRunner().invoke(main, ["topics", "list", *options[:4]]).exit_code != 0
    refused = CliRunner().invoke(main, ["topics", "list", "--tls-ca", __file__])
    assert refused.exit_code != 0
    assert "--tls-ca or --tls-cert cannot be used" in refused.output
