"""The brokers that the conformance suite shares: one process for each way in, for as long as the module runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from tests.clients.driver import Access
from tests.clients.features import Broker
from tests.support.certificates import Certificates
from tests.support.server_process import ServerFolder

USER: Final = "alice"
PASSWORD: Final = "secret"
QUICK_GROUPS: Final = {
    "TRIOLOG_LENIENT": "true",
    "TRIOLOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "TRIOLOG_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "100",
    "TRIOLOG_GROUP_SHARE_HEARTBEAT_INTERVAL_MS": "100",
}
"""Waits of production that a test would sit out."""


@attrs.frozen
class Brokers:
    """Where they listen, and how a client gets in."""

    addresses: Mapping[Broker, str]
    certificates: Certificates

    def access(self, broker: Broker, mechanism: str | None) -> Access:
        tls = broker in (Broker.TLS, Broker.MUTUAL_TLS)
        return Access(
            ca=self.certificates.ca if tls else None,
            certificate=self.certificates.client if broker is Broker.MUTUAL_TLS else None,
            mechanism=mechanism,
            user=USER,
            password=PASSWORD,
        )


def _keys(folder: Path, certificates: Certificates) -> dict[Broker, dict[str, str]]:
    users = folder / "users.toml"
    users.write_text(f'[{USER}]\npassword = "{PASSWORD}"\n')
    tls = {"TRIOLOG_KAFKA_SECURITY": "ssl", "TRIOLOG_SSL_CERTIFICATE_FILE": certificates.server}
    return {
        Broker.PLAIN: {},
        Broker.TLS: tls,
        Broker.MUTUAL_TLS: {**tls, "TRIOLOG_SSL_CLIENT_CA_FILE": certificates.ca, "TRIOLOG_KAFKA_SSL_CLIENT_AUTH": "required"},
        Broker.SASL: {"TRIOLOG_KAFKA_SECURITY": "sasl_plaintext", "TRIOLOG_SASL_USERS_FILE": str(users)},
    }


@contextmanager
def conformance_brokers(folder: Path, certificates: Certificates) -> Iterator[Brokers]:
    with ExitStack() as stack:
        servers = {}
        for broker, keys in _keys(folder, certificates).items():
            path = folder / broker
            path.mkdir()
            running = stack.enter_context(ServerFolder(path, ("--kafka", "127.0.0.1:0", "--durability", "os")))
            servers[broker] = running.spawn(extra_environment={**QUICK_GROUPS, **keys})
        addresses = {
            broker: json.loads(server.wait_ready().ready_file.read_text())["kafka"] for broker, server in servers.items()
        }
        yield Brokers(addresses, certificates)
