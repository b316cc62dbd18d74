"""Logging in: the order of requests, mechanisms, passwords, logins that expire, and what a client without a login gets."""

from __future__ import annotations

import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.api_versions import ApiVersionsRequest
from triolog.protocol.kafka.messages.metadata import MetadataRequest
from triolog.protocol.kafka.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from triolog.server.listeners.http.metrics import scrape
from triolog.server.settings.listener_security import ListenerSecurity

from tests.support.kafka_server import KafkaServer, batch, kafka_server, produce_request
from tests.support.kafka_wire import KafkaWire
from tests.support.scram_client import ScramClient

USERS: Final = {"alice": "secret", "bob": "other"}
MECHANISMS: Final = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
METADATA: Final = MetadataRequest(topics=None)


@asynccontextmanager
async def serving(path: Path, **keys: Any) -> AsyncIterator[KafkaServer]:
    settings = {
        "kafka_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": USERS,
        "connection_failed_authentication_delay_ms": 1,
        **keys,
    }
    async with kafka_server(path, **settings) as server:
        yield server


async def in_thread(server: KafkaServer, conversation: Callable[[KafkaWire], Any]) -> Any:
    def run() -> Any:
        with KafkaWire.connect(server.address) as wire:
            return conversation(wire)

    return await trio.to_thread.run_sync(run)


def handshake(wire: KafkaWire, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return wire.call(SaslHandshakeRequest(mechanism=mechanism), version)


def token(wire: KafkaWire, data: bytes, version: int = 2) -> Any:
    return wire.call(SaslAuthenticateRequest(auth_bytes=data), version)


def plain(user: str = "alice", password: str = "secret", authorization: str = "") -> bytes:
    return f"{authorization}\0{user}\0{password}".encode()


def log_in(wire: KafkaWire, mechanism: str, user: str = "alice", password: str = "secret") -> Any:
    """The answer to the last token."""
    assert handshake(wire, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return token(wire, plain(user, password))
    client = ScramClient(HASHES[mechanism], user, password)
    challenge = token(wire, client.first())
    assert challenge.error_code == 0, challenge
    answer = token(wire, client.final(challenge.auth_bytes))
    assert answer.error_code != 0 or client.check(answer.auth_bytes)
    return answer


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_user_logs_in_and_is_served(tmp_path: Path, mechanism: str) -> None:
    def conversation(wire: KafkaWire) -> None:
        assert wire.call(ApiVersionsRequest("a", "1"), 3).error_code == 0
        answer = log_in(wire, mechanism)
        assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, None, 0)
        assert wire.call(METADATA, 9).topics == []

    async with serving(tmp_path) as server:
        await in_thread(server, conversation)
        assert server.broker.security.statistics.logins == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bob", "secret")])
async def test_a_wrong_password_is_answered_counted_and_ends_the_connection(
    tmp_path: Path, mechanism: str, user: str, password: str
) -> None:
    def conversation(wire: KafkaWire) -> None:
        answer = log_in(wire, mechanism, user, password)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "uthentication failed" in answer.error_message
        assert wire.is_closed_by_server()

    async with serving(tmp_path) as server:
        await in_thread(server, conversation)
        assert server.broker.security.statistics.failed_logins == 1
        assert server.broker.security.statistics.logins == 0


async def test_a_failed_login_is_answered_after_a_delay(tmp_path: Path) -> None:
    def conversation(wire: KafkaWire) -> float:
        begin = time.monotonic()
        log_in(wire, "PLAIN", "alice", "wrong")
        return time.monotonic() - begin

    async with serving(tmp_path, connection_failed_authentication_delay_ms=300) as server:
        assert await in_thread(server, conversation) >= 0.3


async def test_failed_logins_are_metrics(tmp_path: Path) -> None:
    async with serving(tmp_path, connection_failed_authentication_delay_ms=0) as server:
        await in_thread(server, lambda wire: log_in(wire, "PLAIN", "alice", "wrong"))
        await in_thread(server, lambda wire: log_in(wire, "PLAIN", "alice", "secret"))
        text = (await scrape(server.broker, server.admission.protocols)).decode()
    assert 'triolog_security_events_total{event="failed_logins"} 1.0' in text
    assert 'triolog_security_events_total{event="logins"} 1.0' in text
    assert (
        'triolog_request_errors_total{api="SaslAuthenticate",error="SASL_AUTHENTICATION_FAILED",protocol="kafka"} 1.0' in text
    )


async def test_mechanisms_are_listed_on_success_and_on_failure(tmp_path: Path) -> None:
    def conversation(wire: KafkaWire) -> None:
        answer = handshake(wire, "GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "SCRAM-SHA-512"])
        assert wire.is_closed_by_server()

    async with serving(tmp_path, sasl_enabled_mechanisms=("PLAIN", "SCRAM-SHA-512")) as server:
        await in_thread(server, conversation)
        answer = await in_thread(server, handshake)
        assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-512"])
        refused = await in_thread(server, lambda wire: handshake(wire, "SCRAM-SHA-256"))
        assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_bare_tokens_follow_the_first_version_of_the_handshake(tmp_path: Path, mechanism: str) -> None:
    def exchange(wire: KafkaWire, data: bytes) -> bytes:
        wire.send_raw(struct.pack(">i", len(data)) + data)
        return wire.receive_frame()

    def conversation(wire: KafkaWire) -> None:
        assert handshake(wire, mechanism, 0).error_code == 0
        if mechanism == "PLAIN":
            assert exchange(wire, plain()) == b""
        else:
            client = ScramClient(HASHES[mechanism], "alice", "secret")
            assert client.check(exchange(wire, client.final(exchange(wire, client.first()))))
        assert wire.call(METADATA, 9).topics == []

    def refused(wire: KafkaWire) -> None:
        handshake(wire, "PLAIN", 0)
        data = plain("alice", "wrong")
        wire.send_raw(struct.pack(">i", len(data)) + data)
        assert wire.is_closed_by_server()

    async with serving(tmp_path) as server:
        await in_thread(server, conversation)
        await in_thread(server, refused)


@pytest.mark.parametrize(
    "conversation",
    [
        lambda wire: wire.send(METADATA, 9),
        lambda wire: wire.send(SaslAuthenticateRequest(auth_bytes=plain()), 2),
        lambda wire: (handshake(wire), wire.send(METADATA, 9)),
        lambda wire: (handshake(wire), wire.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)),
        lambda wire: (handshake(wire, "SCRAM-SHA-256"), token(wire, b"n,,n=alice,r=abc"), wire.send(METADATA, 9)),
        lambda wire: wire.send_raw(struct.pack(">i", 1_000_000)),
    ],
    ids=["metadata", "token without handshake", "metadata after handshake", "handshake twice", "between tokens", "large"],
)
async def test_without_a_login_nothing_else_is_served(tmp_path: Path, conversation: Callable[[KafkaWire], Any]) -> None:
    def run(wire: KafkaWire) -> None:
        conversation(wire)
        assert wire.is_closed_by_server()

    async with serving(tmp_path) as server:
        await in_thread(server, run)
        assert server.broker.security.statistics.logins == 0


async def test_a_request_that_comes_along_with_the_wrong_password_is_not_served(tmp_path: Path) -> None:
    def run(wire: KafkaWire) -> None:
        handshake(wire)
        wire.send(SaslAuthenticateRequest(auth_bytes=plain("alice", "wrong")), 2)
        wire.send(METADATA, 9)
        assert wire.receive().error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed_by_server()

    async with serving(tmp_path) as server:
        await in_thread(server, run)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"alice\0secret", "3 tokens"),
        (b"\0\xff\0secret", "3 tokens"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "different from username"),
    ],
)
async def test_a_plain_token_that_is_none(tmp_path: Path, data: bytes, reason: str) -> None:
    async with serving(tmp_path) as server:
        answer = await in_thread(server, lambda wire: (handshake(wire), token(wire, data))[1])
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert reason in answer.error_message


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_of_the_token_is_answered(tmp_path: Path, version: int) -> None:
    async with serving(tmp_path) as server:
        answer = await in_thread(server, lambda wire: (handshake(wire), token(wire, plain(), version))[1])
        assert answer.error_code == 0


async def test_a_login_that_expires_is_renewed_by_the_same_user_or_ends(tmp_path: Path) -> None:
    def renewed(wire: KafkaWire) -> None:
        assert log_in(wire, "PLAIN").session_lifetime_ms == 400
        for _ in range(3):
            assert wire.call(METADATA, 9).topics == []
            assert log_in(wire, "PLAIN").session_lifetime_ms == 400

    def other(wire: KafkaWire) -> None:
        log_in(wire, "PLAIN")
        answer = log_in(wire, "PLAIN", "bob", "other")
        assert (answer.error_code, answer.error_message) == (58, "Cannot change principals during re-authentication")
        assert wire.is_closed_by_server()

    def other_mechanism(wire: KafkaWire) -> None:
        log_in(wire, "PLAIN")
        assert handshake(wire, "SCRAM-SHA-256").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM

    def expired(wire: KafkaWire) -> None:
        log_in(wire, "PLAIN")
        with pytest.raises(ConnectionError):
            list(iter(lambda: wire.call(METADATA, 9), None))

    async with serving(tmp_path, connections_max_reauth_ms=400) as server:
        for conversation in (renewed, other, other_mechanism, expired):
            await in_thread(server, conversation)


async def test_a_second_login_is_refused_where_none_expires(tmp_path: Path) -> None:
    def conversation(wire: KafkaWire) -> None:
        log_in(wire, "PLAIN")
        assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert token(wire, plain()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.call(METADATA, 9).topics == []

    async with serving(tmp_path) as server:
        await in_thread(server, conversation)


async def test_where_nobody_logs_in_that_is_said(tmp_path: Path) -> None:
    def conversation(wire: KafkaWire) -> None:
        assert handshake(wire).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert token(wire, plain()).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.call(METADATA, 9).topics == []

    async with serving(tmp_path, kafka_security=ListenerSecurity.PLAINTEXT) as server:
        await in_thread(server, conversation)


async def test_large_requests_are_taken_after_the_login(tmp_path: Path) -> None:
    def conversation(wire: KafkaWire) -> None:
        log_in(wire, "SCRAM-SHA-512")
        answer = wire.call(produce_request(batch("x" * 900_000)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    async with serving(tmp_path) as server:
        await server.broker.topics.create("topic")
        await in_thread(server, conversation)
