from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import trio
import triolog
from click.testing import CliRunner
from trio.testing import MockClock
from triolog.protocol.errors import SaslAuthenticationError
from triolog.protocol.native.messages import HelloResponse, MetadataRequest
from triolog.server.embedded import BlockingBroker
from triolog.tools.cli.main import main
from triolog.tools.client import greeted_connection
from triolog.tools.client.config import ClientConfig
from triolog.tools.client.connection import connect
from triolog.tools.client.errors import ConnectionLostError
from triolog.tools.client.login import LoginConfig, login_steps
from triolog.tools.client.tls import TlsConfig

from tests.support.certificates import Certificates
from tests.support.native_server import NativeServer
from tests.tools.client.doors import Door

ALICE: Final = LoginConfig(user="alice", password="secret")
WITHOUT_TLS: Final = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1}


@contextmanager
def serving(**keys: Any) -> Iterator[tuple[str, int]]:
    users = {"alice": "secret"}
    with triolog.blocking.open(users=users, topics=["topic"], security={**WITHOUT_TLS, **keys}, native="127.0.0.1:0") as broker:
        yield broker.native


async def topics(door: Door, address: tuple[str, int], config: ClientConfig) -> list[str]:
    async with door.client(address, config) as client:
        return [topic.name for topic in (await client.metadata(MetadataRequest(None))).topics]


@pytest.mark.parametrize("mechanism", [None, "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_user_is_served_where_users_log_in(door: Door, mechanism: str | None) -> None:
    with serving() as address:
        login = LoginConfig(user="alice", password=lambda: "secret", mechanism=mechanism)
        assert await topics(door, address, ClientConfig(login=login)) == ["topic"]
    with serving(native_security="plaintext") as address, pytest.raises(SaslAuthenticationError, match="has no logins"):
        await topics(door, address, ClientConfig(login=login))


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        (LoginConfig(user="alice", password="wrong"), "invalid credentials"),
        (LoginConfig(user="nobody", password="secret"), "invalid credentials"),
        (None, "requires a login, by SCRAM-SHA-256, SCRAM-SHA-512"),
        (LoginConfig(user="alice", password="secret", mechanism="PLAIN"), "offers SCRAM-SHA-256, SCRAM-SHA-512"),
    ],
)
async def test_who_cannot_log_in_is_told_why_and_no_password(door: Door, login: LoginConfig | None, reason: str) -> None:
    with serving() as address, pytest.raises(SaslAuthenticationError, match=reason) as caught:
        await topics(door, address, ClientConfig(login=login))
    error: BaseException | None = caught.value
    while error is not None:
        assert "secret" not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("mechanisms", ["PLAIN", "PLAIN,SCRAM-SHA-512"])
async def test_over_tls_a_password_is_enough(door: Door, certificates: Certificates, mechanisms: str) -> None:
    keys = {"native_security": "sasl_ssl", "sasl_enabled_mechanisms": mechanisms, **certificates.server_keys()}
    with serving(**keys) as address:
        assert await topics(door, address, ClientConfig(login=ALICE, tls=TlsConfig(ca_file=certificates.ca))) == ["topic"]


def test_a_password_is_never_sent_without_tls_nor_shown() -> None:
    hello = HelloResponse("other", "1", 0, "c", {}, sasl_mechanisms=("PLAIN",))
    with pytest.raises(SaslAuthenticationError, match="no password without TLS"):
        next(login_steps(ALICE, hello, is_encrypted=False))
    assert next(login_steps(ALICE, hello, is_encrypted=True)).data == b"\0alice\0secret"
    assert "secret" not in repr(ALICE)
    assert "secret" not in repr(ClientConfig(login=ALICE))


async def test_a_login_is_renewed_while_the_client_is_used(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 60 ms of 60 s: a busy machine may be late with it."""
    monkeypatch.setattr(greeted_connection, "RENEWED_AT", 0.001)
    logins: list[str] = []

    def password() -> str:
        logins.append("alice")
        return "secret"

    with serving(connections_max_reauth_ms=60_000) as address:
        login = LoginConfig(user="alice", password=password)
        async with door.client(address, ClientConfig(login=login)) as client, door.producer(client) as producer:
            connection = await client.connected()
            while len(logins) < 4:
                await client.metadata(MetadataRequest(None))
                await (await producer.send("topic", value=b"x"))
            assert not connection.is_lost
            assert await client.connected() == connection


async def test_a_login_that_is_due_is_renewed_before_other_requests(server: NativeServer, clock: MockClock) -> None:
    """A program that was away longer than its login holds keeps its connection."""
    server.login_lifetime_ms = 1000
    login = LoginConfig(token="token", mechanism="OAUTHBEARER")
    async with connect(open_stream=server.open_stream, config=ClientConfig(login=login)) as client:
        for away_s in (0.8, 0.5, 2.0):
            clock.jump(away_s)
            await client.metadata(MetadataRequest(None))
    kinds = [request.api for request in server.requests]
    assert kinds == ["hello", "authenticate", "metadata", "authenticate", "metadata", "authenticate", "metadata"]


@pytest.fixture
def tls_broker(certificates: Certificates) -> Iterator[BlockingBroker]:
    keys = {"native_security": "ssl", "native_ssl_client_auth": "required", **certificates.server_keys()}
    with triolog.blocking.open(security=keys, native="127.0.0.1:0") as running:
        running.create_topic("topic")
        yield running


def tls(certificates: Certificates, **changes: Any) -> TlsConfig:
    return TlsConfig(**{"ca_file": certificates.ca, "certificate_file": certificates.client, **changes})


async def test_large_and_small_records_are_sent(tls_broker: BlockingBroker, certificates: Certificates, door: Door) -> None:
    sizes = [1, 100, 70_000, 900_000] * 3
    async with door.client(tls_broker.native, ClientConfig(tls=tls(certificates))) as client:
        async with door.producer(client) as producer:
            for size in sizes:
                await producer.send("topic", value=bytes(size))
    found = [len(record.value or b"") for record in tls_broker.fetch("topic", max_bytes=2**30)]
    assert found == sizes


async def test_a_client_in_trio_has_many_calls_at_once(tls_broker: BlockingBroker, certificates: Certificates) -> None:
    async with connect(tls_broker.native, config=ClientConfig(tls=tls(certificates))) as client:
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
    assert "cannot use --tls-ca or --tls-cert" in refused.output


TOKENS: Final = {"sasl_enabled_mechanisms": "OAUTHBEARER,SCRAM-SHA-512", "sasl_oauthbearer_unsecured_tokens": True}


@contextmanager
def serving_tokens(**keys: Any) -> Iterator[BlockingBroker]:
    security = {**WITHOUT_TLS, **TOKENS, **keys}
    with triolog.blocking.open(users={"alice": "secret"}, topics=["topic"], security=security, native="127.0.0.1:0") as broker:
        yield broker


@pytest.mark.merge
async def test_a_client_logs_in_with_a_token_and_asks_for_another_one_to_renew_it(door: Door) -> None:
    with serving_tokens() as broker:
        tokens: list[str] = []

        def token() -> str:
            tokens.append(broker.tokens.issue("robot", lifetime_s=3))
            return tokens[-1]

        login = LoginConfig(token=token, mechanism="OAUTHBEARER", extensions={"traceId": "1"})
        async with door.client(broker.native, ClientConfig(login=login)) as client:
            connection = await client.connected()
            while broker.tokens.logins().get("robot", 0) < 2:
                await client.metadata(MetadataRequest(None))
            assert await client.connected() == connection
        assert len(tokens) == len(set(tokens)) >= 2


@pytest.mark.parametrize(
    ("token", "reason"),
    [("not a token", "invalid 'auth' format"), ("notatoken", "invalid_token"), ("a.b.c", "invalid_token")],
)
async def test_a_client_with_a_refused_token_is_told_so_without_the_token(door: Door, token: str, reason: str) -> None:
    with serving_tokens() as broker, pytest.raises(SaslAuthenticationError) as caught:
        await topics(door, broker.native, ClientConfig(login=LoginConfig(token=token, mechanism="OAUTHBEARER")))
    assert reason in str(caught.value)
    assert token not in str(caught.value)


def test_a_token_is_sent_without_tls_only_where_the_program_says_so_and_is_never_shown() -> None:
    hello = HelloResponse("other", "1", 0, "c", {}, sasl_mechanisms=("OAUTHBEARER",))
    login = LoginConfig(token="secret")
    with pytest.raises(SaslAuthenticationError, match="no token without TLS"):
        next(login_steps(login, hello, is_encrypted=False))
    for allowed, is_encrypted in ((login, True), (LoginConfig(token="secret", mechanism="OAUTHBEARER"), False)):
        assert next(login_steps(allowed, hello, is_encrypted=is_encrypted)).data == b"n,,\1auth=Bearer secret\1\1"
    assert "secret" not in repr(login)


@pytest.mark.parametrize("fields", [{}, {"user": "alice"}, {"user": "alice", "password": "a", "token": "b"}, {"password": "a"}])
def test_a_login_has_a_user_with_a_password_or_a_token(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="and not both"):
        LoginConfig(**fields)


async def test_a_user_with_a_password_does_not_choose_tokens(door: Door) -> None:
    with serving_tokens() as broker:
        assert await topics(door, broker.native, ClientConfig(login=ALICE)) == ["topic"]
