"""Real clients log in and speak TLS: librdkafka, kafka-python, aiokafka. Each produces a record and reads it back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import pytest
import triolog
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from triolog.server.config.broker_config import Address
from triolog.server.embedded import BlockingBroker

from tests.support.certificates import Certificates
from tests.support.kafka_client_process import CLIENTS, TIMEOUT_S, Keys, exchanged

pytestmark = pytest.mark.merge  # each client logs in with each mechanism

LOCALHOST: Final = Address("127.0.0.1", 0)
USERS: Final = {"alice": "secret", "root": "top-secret"}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VALUE: Final = "b'value'"
REFUSED_MS: Final = 1_500
"""How long a client may try that gets nowhere; they do not give up by themselves."""
TOLD_MS: Final = 5_000
"""How long one may try that is told why: librdkafka and aiokafka end then, kafka-python tries on."""


def pairs(*mechanisms: str) -> list[tuple[str, str]]:
    """Each client with each mechanism."""
    return list(product(CLIENTS, mechanisms))


def sasl(mechanism: str, user: str = "alice", password: str = "secret") -> Keys:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def tls(certificates: Certificates, *, shown: str | None = None, ca: str | None = None) -> Keys:
    keys = {"security.protocol": "ssl", "ssl.ca.location": ca or certificates.ca}
    if shown is not None:
        keys |= {"ssl.certificate.location": shown, "ssl.key.location": shown}
    return keys


@pytest.fixture
def with_users() -> Iterator[BlockingBroker]:
    keys = {"connection_failed_authentication_delay_ms": 10, "super_users": "User:root"}
    with triolog.blocking.open(kafka=LOCALHOST, users=USERS, security=keys) as broker:
        broker.create_topic("topic")
        yield broker


@pytest.mark.parametrize(("client", "mechanism"), pairs(*MECHANISMS))
def test_clients_log_in(with_users: BlockingBroker, client: str, mechanism: str) -> None:
    assert exchanged(client, str(with_users.kafka), sasl(mechanism)) == VALUE


@pytest.mark.parametrize(("client", "mechanism"), pairs("SCRAM-SHA-512", "PLAIN"))
def test_clients_with_a_wrong_password_are_told(with_users: BlockingBroker, client: str, mechanism: str) -> None:
    said = exchanged(client, str(with_users.kafka), sasl(mechanism, password="wrong"), TOLD_MS)
    assert re.search("(?i)auth|credentials|password", said), said


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_speak_tls_and_log_in_over_it(certificates: Certificates, client: str) -> None:
    keys = {"kafka_security": "sasl_ssl", **certificates.server_keys()}
    with triolog.blocking.open(kafka=LOCALHOST, users=USERS, security=keys) as broker:
        broker.create_topic("topic")
        encrypted = {**sasl("SCRAM-SHA-256"), **tls(certificates), "security.protocol": "sasl_ssl"}
        assert exchanged(client, str(broker.kafka), encrypted) == VALUE


def test_each_of_several_nodes_speaks_tls(certificates: Certificates) -> None:
    keys = {"kafka_security": "ssl", **certificates.server_keys()}
    with triolog.blocking.open(kafka=LOCALHOST, security=keys, nodes=2) as broker:
        broker.create_topic("topic")
        for node in (1, 2):
            broker.move_leader("topic", 0, node)
            assert exchanged("librdkafka", str(broker.kafka), tls(certificates)) == VALUE
        assert {request.node for request in broker.requests.find("Produce")} == {1, 2}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_show_certificates_and_are_who_these_say(certificates: Certificates, client: str) -> None:
    keys = {
        "kafka_security": "ssl",
        "kafka_ssl_client_auth": "required",
        "acl_enable": True,
        "super_users": "User:CN=client,OU=tests,O=triolog;User:other",
        **certificates.server_keys(),
    }
    with triolog.blocking.open(kafka=LOCALHOST, security=keys) as broker:
        broker.create_topic("topic")
        assert exchanged(client, str(broker.kafka), tls(certificates, shown=certificates.client)) == VALUE


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_that_do_not_trust_the_server_or_are_not_trusted_get_nowhere(certificates: Certificates, client: str) -> None:
    keys = {"kafka_security": "ssl", "kafka_ssl_client_auth": "required", **certificates.server_keys()}
    with triolog.blocking.open(kafka=LOCALHOST, security=keys) as broker:
        broker.create_topic("topic")
        for wrong in (tls(certificates, ca=certificates.other_ca, shown=certificates.client), tls(certificates)):
            assert exchanged(client, str(broker.kafka), wrong, REFUSED_MS) != VALUE
        assert broker.fetch("topic") == []


def test_users_that_an_administrator_makes_survive_a_restart(tmp_path: Path) -> None:
    """With librdkafka's admin client, which salts the password itself."""
    security = {"acl_enable": True, "super_users": "User:root;User:carol"}
    options = {"kafka": LOCALHOST, "users": USERS, "security": security}
    with triolog.blocking.open(tmp_path, for_tests=True, **options) as broker:
        broker.create_topic("topic")
        admin = AdminClient({"bootstrap.servers": str(broker.kafka), **sasl("SCRAM-SHA-256", "root", "top-secret")})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
        changes = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carol", info, b"of-carol")])
        changes["carol"].result(TIMEOUT_S)
        found = admin.describe_user_scram_credentials(["carol"])["carol"].result(TIMEOUT_S)
        assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
            (ScramMechanism.SCRAM_SHA_512, 8192)
        ]
    with triolog.blocking.open(tmp_path, for_tests=True, **options) as broker:
        for client in CLIENTS:
            assert exchanged(client, str(broker.kafka), sasl("SCRAM-SHA-512", "carol", "of-carol")) == VALUE
    assert b"of-carol" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
