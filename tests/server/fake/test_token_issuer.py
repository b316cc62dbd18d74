"""Tokens that a broker issues to its tests, in a program and over the control port: they expire by its clock, are refused, lose
their key, and their logins are counted. librdkafka gets and renews them, too."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from triolog.protocol.errors import InvalidConfigError
from triolog.protocol.kafka.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from triolog.protocol.kafka.messages.topics import MetadataRequest
from triolog.server.embedded import MEMORY, BlockingBroker, aio, blocking, opening
from triolog.server.fake.api import TOKEN_PATH

from tests.support.control_port import Control, started
from tests.support.kafka_wire import KafkaWire
from tests.support.server_process import ServerFolder

TIMEOUT_S: Final = 30.0
UNSECURED: Final = {
    "kafka_security": "sasl_plaintext",
    "sasl_enabled_mechanisms": "OAUTHBEARER",
    "sasl_oauthbearer_unsecured_tokens": True,
    "connection_failed_authentication_delay_ms": 1,
}
SIGNED: Final = {**UNSECURED, "sasl_oauthbearer_unsecured_tokens": False}


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    pytest.importorskip("jwt")
    with blocking.open(
        MEMORY, kafka="127.0.0.1:0", oauth=True, security={"connection_failed_authentication_delay_ms": 1}
    ) as it:
        yield it


def logs_in(servers: str, token: str) -> bool:
    """Whether a client is served with this token. confluent-kafka waits a second for each first token of a callback."""
    host, _, port = servers.rpartition(":")
    with KafkaWire.connect((host, int(port))) as client:
        client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=f"n,,\1auth=Bearer {token}\1\1".encode()), 2)
        if answer.error_code or answer.auth_bytes:
            return False
        return client.call(MetadataRequest(topics=None), 12).topics is not None


def is_served(admin: AdminClient) -> bool:
    """Whether librdkafka is served in the end: a request on a connection that the server ends fails, and nobody repeats it."""
    while True:
        try:
            return bool(admin.list_topics(timeout=TIMEOUT_S))
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError._TRANSPORT:
                raise


def test_a_token_expires_by_the_clock_of_the_broker(broker: BlockingBroker) -> None:
    token = broker.tokens.issue("alice", lifetime_s=100)
    assert logs_in(broker.bootstrap_servers, token)
    broker.clock.advance(131)
    assert not logs_in(broker.bootstrap_servers, token)
    assert logs_in(broker.bootstrap_servers, broker.tokens.issue("alice", lifetime_s=100))


def test_a_session_ends_with_its_token_when_the_clock_is_moved(broker: BlockingBroker) -> None:
    """librdkafka loses its connection, logs in on a new one, and goes on."""
    asked = []

    def token(_: object) -> tuple[str, float]:
        asked.append(broker.tokens.issue("alice", lifetime_s=600))
        return asked[-1], broker.clock.now_ms() / 1000 + 600

    keys = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **keys})
    assert admin.list_topics(timeout=TIMEOUT_S)
    broker.clock.advance(601)
    assert is_served(admin), "a new connection with the same token, within the clock skew"
    assert broker.tokens.logins()["alice"] >= 2


def test_a_user_is_refused_until_he_is_accepted_again(broker: BlockingBroker) -> None:
    token = broker.tokens.issue("alice")
    broker.tokens.refuse("alice")
    assert not logs_in(broker.bootstrap_servers, token)
    assert logs_in(broker.bootstrap_servers, broker.tokens.issue("bob"))
    broker.tokens.accept("alice")
    assert logs_in(broker.bootstrap_servers, token)
    assert set(broker.tokens.logins()) == {"alice", "bob"}
    broker.tokens.refuse("alice")
    broker.reset()
    assert broker.tokens.logins() == {}
    assert logs_in(broker.bootstrap_servers, token)


def test_tokens_of_a_key_that_was_rotated_out_are_refused(broker: BlockingBroker) -> None:
    first = broker.tokens.issue("alice")
    broker.tokens.rotate_keys(keep_old=True)
    second = broker.tokens.issue("alice")
    assert logs_in(broker.bootstrap_servers, first)
    assert logs_in(broker.bootstrap_servers, second)
    assert len(json.loads(broker.tokens.jwks())["keys"]) == 2
    broker.tokens.rotate_keys()
    assert not logs_in(broker.bootstrap_servers, first)
    assert not logs_in(broker.bootstrap_servers, second)
    assert logs_in(broker.bootstrap_servers, broker.tokens.issue("alice"))


def test_tokens_hold_after_a_crash_and_in_a_fork_that_goes_its_own_way(broker: BlockingBroker) -> None:
    token = broker.tokens.issue("alice", lifetime_s=100)
    broker.crash()
    broker.restart()
    assert logs_in(broker.bootstrap_servers, token)
    with broker.fork() as fork:
        assert logs_in(fork.bootstrap_servers, token)
        fork.tokens.rotate_keys()
        assert not logs_in(fork.bootstrap_servers, token)
        fork.clock.advance(200)
    assert logs_in(broker.bootstrap_servers, token)


def test_a_rule_refuses_a_client_whatever_its_token(broker: BlockingBroker) -> None:
    token = broker.tokens.issue("alice")
    with_rule = broker.faults.add("SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED")
    assert not logs_in(broker.bootstrap_servers, token)
    assert with_rule.fired >= 1


@pytest.mark.parametrize("claims", [{"sub": None}, {"nbf": 4e9}, {"exp": 0}])
def test_claims_of_a_token_can_be_wrong(claims: dict[str, Any]) -> None:
    with blocking.open(MEMORY, kafka="127.0.0.1:0", security=UNSECURED) as broker:
        assert not logs_in(broker.bootstrap_servers, broker.tokens.issue("alice", claims=claims))
        assert logs_in(broker.bootstrap_servers, broker.tokens.issue("alice", claims={"groups": ["a"], "iat": None}))


def test_users_with_passwords_and_users_with_tokens() -> None:
    pytest.importorskip("jwt")
    with blocking.open(MEMORY, kafka="127.0.0.1:0", oauth=True, users={"alice": "secret"}) as broker:
        assert logs_in(broker.bootstrap_servers, broker.tokens.issue("alice"))
        keys = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "sasl_plaintext", **keys})
        assert admin.list_topics(timeout=TIMEOUT_S)


async def test_every_face_issues_tokens() -> None:
    async with opening.open(security=UNSECURED) as broker:
        assert broker.tokens.issue("alice").endswith(".")
        with pytest.raises(ValueError, match="unsecured"):
            broker.tokens.rotate_keys()

    async def in_asyncio() -> None:
        async with aio.open(MEMORY, security=UNSECURED) as broker:
            assert (await broker.tokens.issue("alice")).endswith(".")

    await trio.to_thread.run_sync(asyncio.run, in_asyncio())


def test_a_broker_without_such_logins_issues_no_tokens_nor_does_one_that_is_not_for_tests(tmp_path: Path) -> None:
    with blocking.open(MEMORY) as broker, pytest.raises(RuntimeError, match="oauth=True"):
        _ = broker.tokens
    with pytest.raises(InvalidConfigError, match="no key says which tokens are valid"):
        blocking.open(tmp_path, kafka="127.0.0.1:0", security=SIGNED).start()


# ---- the control port --------------------------------------------------------------------------------------------------------


def control_of(folder: ServerFolder, path: Path, keys: Mapping[str, Any]) -> Control:
    """A server with a control port and these keys."""
    file = path / "server.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in keys.items()))
    return started(folder, "--control", "127.0.0.1:0", "--config", str(file))[1]


def test_the_control_port_issues_signed_tokens_rotates_keys_refuses_and_counts(
    server_folder: ServerFolder, tmp_path: Path
) -> None:
    pytest.importorskip("jwt")
    control = control_of(server_folder, tmp_path, SIGNED)
    token = control.do("POST", "/tokens", {"principal": "alice", "lifetime_s": 100, "scope": "a", "claims": {"groups": ["b"]}})
    servers = control.ready["kafka"]
    assert logs_in(servers, token["token"])
    assert control.do("GET", "/tokens/logins")["alice"] >= 1
    [key] = control.do("GET", "/tokens/keys")["keys"]
    control.do("POST", "/tokens/refuse", {"principal": "alice"})
    assert not logs_in(servers, token["token"])
    control.do("POST", "/tokens/accept", {"principal": "alice"})
    old, new = control.do("POST", "/tokens/rotate-keys", {"keep_old": True})["keys"]
    assert (old, new == key) == (key, False)
    assert logs_in(servers, token["token"])
    control.do("POST", "/tokens/rotate-keys")
    assert not logs_in(servers, token["token"])


def test_the_control_port_is_a_token_endpoint_for_clients_that_fetch_tokens(
    server_folder: ServerFolder, tmp_path: Path
) -> None:
    """As librdkafka and Kafka's own client do with `sasl.oauthbearer.token.endpoint.url` (KIP-768)."""
    control = control_of(server_folder, tmp_path, {**UNSECURED, "sasl_oauthbearer_required_scope": ["orders"]})
    endpoint = f"http://{control.ready['control']}{TOKEN_PATH}"
    oidc = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "robot",
        "sasl.oauthbearer.client.secret": "any",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.scope": "orders",
    }
    keys = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", **oidc}
    assert AdminClient({"bootstrap.servers": control.ready["kafka"], **keys}).list_topics(timeout=TIMEOUT_S)
    assert control.do("GET", "/tokens/logins")["robot"] >= 1
    assert control.do("GET", "/tokens/keys") == {"keys": []}
    for path, body, status, why in (
        ("/tokens", {}, 400, "principal is None"),
        ("/tokens", {"principal": "a", "lifetime_s": "1"}, 400, "a number of lifetime_s"),
        ("/tokens", {"principal": "a", "claims": []}, 200, ""),
        ("/tokens", {"principal": "a", "claims": ["b"]}, 400, "an object of claims"),
        ("/tokens/rotate-keys", {}, 400, "unsecured"),
        (TOKEN_PATH, {"grant_type": "password", "client_id": "a"}, 400, "expected client_credentials"),
        (TOKEN_PATH, {"grant_type": "client_credentials"}, 400, "principal is None"),
    ):
        answered, told = control.ask("POST", path, body)
        assert (answered, why in told.get("message", "")) == (status, True), (path, body, told)
    for headers, status in (({"Authorization": "Basic %%%"}, 400), ({"Origin": "http://evil.example"}, 403)):
        form = urllib.parse.urlencode({"grant_type": "client_credentials", "client_id": "a"}).encode()
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(endpoint, form, headers), timeout=TIMEOUT_S)
        assert caught.value.code == status
        caught.value.close()


def test_a_server_without_such_logins_has_no_tokens_for_the_control_port(server_folder: ServerFolder) -> None:
    _, control = started(server_folder, "--control", "127.0.0.1:0")
    status, told = control.ask("POST", "/tokens", {"principal": "alice"})
    assert (status, "no issuer of tokens" in told["message"]) == (404, True)
