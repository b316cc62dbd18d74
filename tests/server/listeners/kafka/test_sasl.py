"""Logging in: the order of requests, mechanisms, passwords, logins that expire, and what a client without a login gets."""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.errors import ErrorCode
from triolog.protocol.kafka.messages.cluster import ApiVersionsRequest
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.figures.prometheus import scrape

from tests.support.brokers import PATIENCE_S, until
from tests.support.kafka_login import ScramClient
from tests.support.kafka_server import KafkaServer, batch, kafka_server, produce_request
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ["PLAIN", *HASHES]
METADATA: Final = ask("Metadata", topics=None)


@asynccontextmanager
async def serving(path: Path, **keys: Any) -> AsyncIterator[KafkaServer]:
    settings = {
        "kafka_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": {"alice": "secret", "bob": "other"},
        "connection_failed_authentication_delay_ms": 1,
        **keys,
    }
    async with kafka_server(path, **settings) as server:
        yield server


async def handshake(client: KafkaStream, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.call(ask("SaslHandshake", mechanism=mechanism), version)


async def token(client: KafkaStream, data: bytes, version: int = 2) -> Any:
    return await client.call(ask("SaslAuthenticate", auth_bytes=data), version)


def plain(user: str = "alice", password: str = "secret") -> bytes:
    return f"\0{user}\0{password}".encode()


async def log_in(client: KafkaStream, mechanism: str = "PLAIN", user: str = "alice", password: str = "secret") -> Any:
    """The answer to the last token."""
    assert (await handshake(client, mechanism)).error_code == 0
    if mechanism == "PLAIN":
        return await token(client, plain(user, password))
    scram = ScramClient(HASHES[mechanism], user, password)
    challenge = await token(client, scram.first())
    assert challenge.error_code == 0, challenge
    answer = await token(client, scram.final(challenge.auth_bytes))
    assert answer.error_code != 0 or scram.check(answer.auth_bytes)
    return answer


async def test_a_user_logs_in_and_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for mechanism in MECHANISMS:
            async with server.connected() as client:
                assert (await client.call(ApiVersionsRequest("a", "1"), 3)).error_code == 0
                answer = await log_in(client, mechanism)
                assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, None, 0), mechanism
                assert (await client.call(METADATA, 9)).topics == []
        assert server.broker.security.statistics.logins == len(MECHANISMS)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_answered_counted_and_ends_the_connection(tmp_path: Path, mechanism: str) -> None:
    wrong = [("alice", "wrong"), ("nobody", "secret"), ("bob", "secret")]
    async with serving(tmp_path) as server:
        for user, password in wrong:
            async with server.connected() as client:
                answer = await log_in(client, mechanism, user, password)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, user
                assert "uthentication failed" in answer.error_message
                assert await client.is_closed_by_server()
        statistics = server.broker.security.statistics
        assert (statistics.failed_logins, statistics.logins) == (len(wrong), 0)


async def test_a_failed_login_is_answered_after_a_delay(tmp_path: Path) -> None:
    async with serving(tmp_path, connection_failed_authentication_delay_ms=300) as server, server.connected() as client:
        begin = trio.current_time()
        await log_in(client, password="wrong")
        assert trio.current_time() - begin >= 0.3


async def test_neither_a_challenge_nor_its_end_shows_that_a_password_has_to_be_derived(
    tmp_path: Path, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a user who exists has one. The challenge does not wait for it, and the delay of the response includes it."""
    may_derive, derived, derive = threading.Event(), threading.Event(), hashlib.pbkdf2_hmac

    def derive_late(*arguments: Any) -> bytes:
        if threading.current_thread() is not threading.main_thread():  # the client's
            derived.set()
            may_derive.wait(PATIENCE_S)
        return derive(*arguments)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", derive_late)
    async with serving(tmp_path, connection_failed_authentication_delay_ms=5000) as server, server.connected() as client:
        await handshake(client, "SCRAM-SHA-256")
        scram = ScramClient("sha256", "alice", "wrong")
        challenge = await token(client, scram.first())
        assert not derived.is_set()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                answer = await token(client, scram.final(challenge.auth_bytes))
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

            await until(derived.is_set)
            mock_clock.jump(4.0)
            may_derive.set()
            await until(lambda: server.broker.security.statistics.failed_logins == 1)
            mock_clock.jump(1.0)


async def test_failed_logins_are_metrics(tmp_path: Path) -> None:
    async with serving(tmp_path, connection_failed_authentication_delay_ms=0) as server:
        for password in ("wrong", "secret"):
            async with server.connected() as client:
                await log_in(client, password=password)
        text = (await scrape(server.broker, server.admission.protocols)).decode()
    assert 'triolog_security_events_total{event="failed_logins"} 1.0' in text
    assert 'triolog_security_events_total{event="logins"} 1.0' in text
    labels = 'api="SaslAuthenticate",error="SASL_AUTHENTICATION_FAILED",protocol="kafka"'
    assert f"triolog_request_errors_total{{{labels}}} 1.0" in text


async def test_mechanisms_are_listed_on_success_and_on_failure(tmp_path: Path) -> None:
    enabled = ["PLAIN", "SCRAM-SHA-512"]
    async with serving(tmp_path, sasl_enabled_mechanisms=tuple(enabled)) as server:
        for mechanism, error in (("GSSAPI", 33), ("SCRAM-SHA-256", 33), ("PLAIN", 0)):
            async with server.connected() as client:
                answer = await handshake(client, mechanism)
                assert (answer.error_code, answer.mechanisms) == (error, enabled), mechanism
                assert not error or await client.is_closed_by_server()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_bare_tokens_follow_the_first_version_of_the_handshake(tmp_path: Path, mechanism: str) -> None:
    async def send(client: KafkaStream, data: bytes) -> None:
        await client.send_raw(struct.pack(">i", len(data)) + data)

    async with serving(tmp_path) as server:
        async with server.connected() as client:
            assert (await handshake(client, mechanism, 0)).error_code == 0
            if mechanism == "PLAIN":
                await send(client, plain())
                assert await client.receive_frame() == b""
            else:
                scram = ScramClient(HASHES[mechanism], "alice", "secret")
                await send(client, scram.first())
                await send(client, scram.final(await client.receive_frame()))
                assert scram.check(await client.receive_frame())
            assert (await client.call(METADATA, 9)).topics == []
        async with server.connected() as client:
            await handshake(client, "PLAIN", 0)
            await send(client, plain("alice", "wrong"))
            assert await client.is_closed_by_server()


FIRST: Final = ask("SaslAuthenticate", auth_bytes=b"n,,n=alice,r=abc")
OUT_OF_ORDER: Final[dict[str, list[tuple[Any, int]]]] = {
    "metadata": [(METADATA, 9)],
    "token without handshake": [(ask("SaslAuthenticate", auth_bytes=plain()), 2)],
}
HANDSHAKE: Final = (ask("SaslHandshake", mechanism="PLAIN"), 1)
IN_PLACE_OF_A_TOKEN: Final[dict[str, list[tuple[Any, int]]]] = {
    "cluster": [HANDSHAKE, (ask("DescribeCluster"), 0)],
    "versions": [HANDSHAKE, (ApiVersionsRequest("a", "1"), 3)],
    "handshake twice": [HANDSHAKE] * 2,
    "between tokens": [(ask("SaslHandshake", mechanism="SCRAM-SHA-256"), 1), (FIRST, 2), (ask("ListGroups"), 4)],
}
"""Kafka answers these before it closes the connection."""


async def test_without_a_login_nothing_else_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for name, (*before, last) in OUT_OF_ORDER.items():
            async with server.connected() as client:
                for body, version in before:
                    assert (await client.call(body, version)).error_code == 0, name
                await client.send(*last)
                assert await client.is_closed_by_server(), name
        async with server.connected() as client:
            await client.send_raw(struct.pack(">i", 1_000_000))
            assert await client.is_closed_by_server(), "a large frame"
        assert server.broker.security.statistics.logins == 0


@pytest.mark.parametrize("name", IN_PLACE_OF_A_TOKEN)
async def test_request_between_handshake_and_login_is_an_illegal_sasl_state(tmp_path: Path, name: str) -> None:
    *before, last = IN_PLACE_OF_A_TOKEN[name]
    async with serving(tmp_path) as server, server.connected() as client:
        for body, version in before:
            assert (await client.call(body, version)).error_code == 0
        answer = await client.call(*last)
        assert getattr(answer, "error_code", ErrorCode.ILLEGAL_SASL_STATE) == ErrorCode.ILLEGAL_SASL_STATE
        assert getattr(answer, "topics", []) == getattr(answer, "api_keys", []) == []
        assert await client.is_closed_by_server()
        assert server.broker.security.statistics.logins == 0


async def test_a_request_that_comes_along_with_the_wrong_password_is_not_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.connected() as client:
        await handshake(client)
        await client.send(ask("SaslAuthenticate", auth_bytes=plain("alice", "wrong")), 2)
        await client.send(METADATA, 9)
        assert (await client.receive()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed_by_server()


async def test_a_plain_token_that_is_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for data, reason in (
            (b"alice\0secret", "3 tokens"),
            (b"\0\xff\0secret", "3 tokens"),
            (b"\0\0secret", "username not specified"),
            (b"\0alice\0", "password not specified"),
            (b"bob\0alice\0secret", "different from username"),
        ):
            async with server.connected() as client:
                await handshake(client)
                answer = await token(client, data)
                assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, data
                assert reason in answer.error_message


async def test_every_version_of_the_token_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for version in range(3):
            async with server.connected() as client:
                await handshake(client)
                assert (await token(client, plain(), version)).error_code == 0, version


async def test_a_login_that_expires_is_renewed_by_the_same_user_or_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, connections_max_reauth_ms=400) as server:
        async with server.connected() as renewed:
            assert (await log_in(renewed)).session_lifetime_ms == 400
            for _ in range(3):
                assert (await renewed.call(METADATA, 9)).topics == []
                assert (await log_in(renewed)).session_lifetime_ms == 400
        async with server.connected() as other:
            await log_in(other)
            answer = await log_in(other, "PLAIN", "bob", "other")
            assert (answer.error_code, answer.error_message) == (58, "Cannot change principals during re-authentication")
            assert await other.is_closed_by_server()
        async with server.connected() as other_mechanism:
            await log_in(other_mechanism)
            answer = await handshake(other_mechanism, "SCRAM-SHA-256")
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        async with server.connected() as expired:
            await log_in(expired)
            with suppress(EOFError, trio.BrokenResourceError):
                while await expired.call(METADATA, 9):
                    """Served still."""


@pytest.mark.parametrize("security", [ListenerSecurity.SASL_PLAINTEXT, ListenerSecurity.PLAINTEXT])
async def test_a_login_is_refused_where_none_expires_or_nobody_logs_in(tmp_path: Path, security: ListenerSecurity) -> None:
    async with serving(tmp_path, kafka_security=security) as server, server.connected() as client:
        if security is ListenerSecurity.SASL_PLAINTEXT:
            await log_in(client)
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await token(client, plain())).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.call(METADATA, 9)).topics == []


async def test_large_requests_are_taken_after_the_login(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.connected() as client:
        await server.broker.topics.create("topic")
        await log_in(client, "SCRAM-SHA-512")
        answer = await client.call(produce_request(batch("x" * 900_000)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
