"""Logins with tokens over Kafka's protocol: OAUTHBEARER, sessions that end with their tokens, and tokens that are refused: with
Kafka's error, after the usual delay, with one line in the audit log that does not have the token."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.errors import ErrorCode, InvalidConfigError
from triolog.protocol.kafka.authorization import AclOperation, AclPermission, PatternType, ResourceType
from triolog.server.broker import Acl
from triolog.server.config.broker_config import Address, BrokerConfig
from triolog.server.config.broker_settings import check_exposure, read_given
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.fake.token_issuer import TokenIssuer

from tests.support.kafka_server import KafkaServer, kafka_server
from tests.support.kafka_stream import KafkaStream
from tests.support.kafka_wire import ask
from tests.support.logs import Clock
from tests.support.tokens import part

METADATA: Final = ask("Metadata", topics=None)
INVALID: Final = '{"status":"invalid_token"}'
KEYS: Final = {
    "kafka_security": ListenerSecurity.SASL_PLAINTEXT,
    "sasl_enabled_mechanisms": ("OAUTHBEARER", "PLAIN"),
    "sasl_users": {"alice": "secret"},
    "sasl_oauthbearer_unsecured_tokens": True,
    "connection_failed_authentication_delay_ms": 1,
}


now_ms: Final = Clock()
"""The time of these servers, which stands still."""
ISSUER: Final = TokenIssuer(now_ms, has_keys=False)


def message(token: str, *, user: str = "", more: str = "") -> bytes:
    return f"n,{f'a={user}' if user else ''},\1auth=Bearer {token}\1{more}\1".encode()


@asynccontextmanager
async def serving(path: Path, **keys: Any) -> AsyncIterator[KafkaServer]:
    async with kafka_server(path / "data", **{**KEYS, "audit_file": str(path / "audit"), **keys}) as server:
        yield server


async def handshake(client: KafkaStream, mechanism: str = "OAUTHBEARER", version: int = 1) -> Any:
    return await client.call(ask("SaslHandshake", mechanism=mechanism), version)


async def send(client: KafkaStream, data: bytes, version: int = 2) -> Any:
    return await client.call(ask("SaslAuthenticate", auth_bytes=data), version)


async def log_in(client: KafkaStream, token: str, **more: Any) -> Any:
    """The last answer of a client that keeps to the protocol."""
    assert (await handshake(client)).error_code == 0
    answer = await send(client, message(token, **more))
    if answer.error_code == 0 and answer.auth_bytes:
        return await send(client, b"\1")
    return answer


def audited(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "audit").read_text().splitlines()]


async def test_a_token_logs_its_user_in_until_it_expires(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.connected() as client:
        answer = await log_in(client, ISSUER.issue("alice", lifetime_s=600), more="logicalCluster=lkc-1\1")
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, None, b"")
        assert answer.session_lifetime_ms == 600_000
        assert (await client.call(METADATA, 9)).topics == []
        assert server.broker.security.statistics.logins == 1
    [line] = audited(tmp_path)
    assert (line["event"], line["principal"], line["mechanism"]) == ("login", "User:alice", "OAUTHBEARER")


async def test_a_session_is_as_short_as_the_token_and_the_configuration_say(tmp_path: Path) -> None:
    async with serving(tmp_path, connections_max_reauth_ms=5_000) as server:
        for lifetime_s, expected_ms in ((600, 5_000), (2, 2_000)):
            async with server.connected() as client:
                answer = await log_in(client, ISSUER.issue("alice", lifetime_s=lifetime_s))
                assert answer.session_lifetime_ms == expected_ms
        async with server.connected() as client:
            answer = await log_in(client, ISSUER.issue("alice", lifetime_s=-10))
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 1), "within the clock skew"


async def test_a_login_is_renewed_by_the_same_user_or_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        async with server.connected() as renewed:
            await log_in(renewed, ISSUER.issue("alice", lifetime_s=100))
            for _ in range(3):
                assert (await log_in(renewed, ISSUER.issue("alice", lifetime_s=200))).session_lifetime_ms == 200_000
                assert (await renewed.call(METADATA, 9)).topics == []
        async with server.connected() as other:
            await log_in(other, ISSUER.issue("alice"))
            answer = await log_in(other, ISSUER.issue("bob"))
            assert (answer.error_code, answer.error_message) == (58, "Cannot change principals during re-authentication")
            assert await other.is_closed_by_server()
        async with server.connected() as refused:
            await log_in(refused, ISSUER.issue("alice"))
            answer = await log_in(refused, ISSUER.issue("alice", lifetime_s=-100))
            assert (answer.error_code, answer.error_message) == (58, INVALID)
            assert await refused.is_closed_by_server()
        async with server.connected() as expired:
            await log_in(expired, ISSUER.issue("alice", lifetime_s=0.3))
            with suppress(EOFError, trio.BrokenResourceError):
                while await expired.call(METADATA, 9):
                    """Served still."""


async def test_a_login_by_password_on_such_a_listener_does_not_expire_nor_is_renewed(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.connected() as client:
        await handshake(client, "PLAIN")
        answer = await send(client, b"\0alice\0secret")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE


REFUSED: Final = {
    "expired": lambda: ISSUER.issue("alice", lifetime_s=-60),
    "not yet valid": lambda: ISSUER.issue("alice", claims={"nbf": now_ms() / 1000 + 60}),
    "no principal": lambda: ISSUER.issue("alice", claims={"sub": None}),
    "of another algorithm": lambda: f"{part({'alg': 'HS256'})}.{part({'sub': 'alice'})}.c2VjcmV0",
    "with a signature": lambda: ISSUER.issue("alice") + "c2VjcmV0",
    "of 100 KB": lambda: ISSUER.issue("alice", claims={"x": "a" * 100_000}),
    "that is none": lambda: "secret",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_token_is_kafkas_error_and_one_line(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = REFUSED[name]()
    async with serving(tmp_path) as server:
        async with server.connected() as client:
            await handshake(client)
            first = await send(client, message(token))
            assert (first.error_code, first.auth_bytes) == (0, INVALID.encode()), "as Kafka: first the reason"
            last = await send(client, b"\1")
            assert (last.error_code, last.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, INVALID)
            assert await client.is_closed_by_server()
        statistics = server.broker.security.statistics
        assert (statistics.failed_logins, statistics.logins) == (1, 0)
    [line] = audited(tmp_path)
    assert (line["event"], line["mechanism"]) == ("login failed", "OAUTHBEARER")
    assert line["why"]
    for text in (json.dumps(line), caplog.text):
        assert token not in text
        assert not any(each in text for each in token.split(".") if each)
        assert "Traceback" not in text


MALFORMED: Final = {
    "malformed": (b"n,,\1auth=Basic YWxpY2U6c2VjcmV0\1\1", "invalid 'auth' format"),
    "a token without a message": (b"secret", "Invalid OAUTHBEARER client first message"),
    "for another user": (message(ISSUER.issue("alice"), user="bob"), "different from the token's principal name"),
    "an extension without a value": (message(ISSUER.issue("alice"), more="a=\1"), "malformed"),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_message_ends_the_login_at_once(tmp_path: Path, name: str) -> None:
    data, why = MALFORMED[name]
    async with serving(tmp_path) as server, server.connected() as client:
        await handshake(client)
        answer = await send(client, data)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert why in answer.error_message
        assert await client.is_closed_by_server()
    [line] = audited(tmp_path)
    assert why in line["why"]


async def test_after_a_refusal_no_other_token_is_accepted_on_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        async with server.connected() as client:
            await handshake(client)
            await send(client, message("wrong"))
            answer = await send(client, message(ISSUER.issue("alice")))
            assert (answer.error_code, answer.error_message) == (58, INVALID)
            assert await client.is_closed_by_server()
        async with server.connected() as client:
            await handshake(client)
            await send(client, message("wrong"))
            assert (await client.call(METADATA, 9)).topics == []
            assert await client.is_closed_by_server()
        assert server.broker.security.statistics.logins == 0


async def test_a_token_of_a_megabyte_ends_the_connection_with_one_line(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.connected() as client:
        await handshake(client)
        with suppress(trio.BrokenResourceError):
            await client.send(ask("SaslAuthenticate", auth_bytes=message("a" * 2**20)), 2)
        assert await client.is_closed_by_server()
        assert server.broker.security.statistics.failed_logins == 1
    [line] = audited(tmp_path)
    assert line["event"] == "login failed"
    assert "aaaa" not in json.dumps(line)


async def test_bytes_that_are_no_request_are_no_login(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, server.connected() as client:
        await client.send_raw(struct.pack(">i", 1_000_000))
        assert await client.is_closed_by_server()
        assert server.broker.security.statistics.failed_logins == 0


async def test_a_refusal_is_answered_after_the_delay(tmp_path: Path) -> None:
    async with serving(tmp_path, connection_failed_authentication_delay_ms=300) as server, server.connected() as client:
        await handshake(client)
        await send(client, message("wrong"))
        begin = trio.current_time()
        assert (await send(client, b"\1")).error_code == 58
        assert trio.current_time() - begin >= 0.3


async def test_a_refusal_delays_nobody_else(tmp_path: Path) -> None:
    async with serving(tmp_path, connection_failed_authentication_delay_ms=10_000) as server:
        async with server.connected() as refused, server.connected() as other:
            await handshake(refused)
            await send(refused, message("wrong"))
            await refused.send(ask("SaslAuthenticate", auth_bytes=b"\1"), 2)
            with trio.fail_after(9):
                await log_in(other, ISSUER.issue("alice"))
                assert (await other.call(METADATA, 9)).topics == []


async def test_a_missing_scope_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path, sasl_oauthbearer_required_scope=("kafka",)) as server:
        async with server.connected() as client:
            answer = await log_in(client, ISSUER.issue("alice", scope="other"))
            assert json.loads(answer.error_message) == {"status": "insufficient_scope", "scope": "kafka"}
        async with server.connected() as client:
            assert (await log_in(client, ISSUER.issue("alice", scope="other kafka"))).error_code == 0


async def test_a_bare_token_follows_the_first_version_of_the_handshake(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for token, answered in ((ISSUER.issue("alice"), b""), ("wrong", INVALID.encode())):
            async with server.connected() as client:
                await handshake(client, version=0)
                data = message(token)
                await client.send_raw(struct.pack(">i", len(data)) + data)
                assert await client.receive_frame() == answered
                if answered:
                    await client.send_raw(struct.pack(">i", 1) + b"\1")
                    assert await client.is_closed_by_server()
                else:
                    assert (await client.call(METADATA, 9)).topics == []


async def test_the_rights_of_a_tokens_user_are_those_of_acls(tmp_path: Path) -> None:
    async with serving(tmp_path, acl_enable=True, super_users=("User:root",)) as server:
        acl = Acl(
            resource_type=ResourceType.TOPIC,
            resource_name="orders",
            pattern_type=PatternType.LITERAL,
            principal="User:https://idp#alice",
            host="*",
            operation=AclOperation.DESCRIBE,
            permission=AclPermission.ALLOW,
        )
        await server.broker.security.create_acls([acl])
        await server.broker.topics.create("orders")
        for user, seen in (("https://idp#alice", ["orders"]), ("alice", []), ("root", ["orders"])):
            async with server.connected() as client:
                await log_in(client, ISSUER.issue(user))
                assert [topic.name for topic in (await client.call(METADATA, 9)).topics] == seen, user


# ---- keys --------------------------------------------------------------------------------------------------------------------


def config(**keys: Any) -> BrokerConfig:
    return BrokerConfig(**read_given("the test", {"sasl_enabled_mechanisms": "OAUTHBEARER", **keys}), data_dirs=("/nowhere",))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"sasl_oauthbearer_jwks_endpoint_url": "https://a/b", "sasl_oauthbearer_unsecured_tokens": "true"}, "both set"),
        ({"sasl_enabled_mechanisms": "PLAIN", "sasl_oauthbearer_unsecured_tokens": "true"}, "has no OAUTHBEARER"),
        ({"sasl_enabled_mechanisms": "PLAIN", "sasl_oauthbearer_jwks_endpoint_url": "https://a/b"}, "has no OAUTHBEARER"),
        ({"sasl_oauthbearer_jwks_url": "https://a/b"}, "unknown key"),
        ({"sasl_oauthbearer_clock_skew_seconds": "-1"}, "clock_skew"),
        ({"sasl_oauthbearer_expected_audience": "a b"}, "texts without spaces"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(keys: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        config(**keys)


def test_a_listener_with_unsecured_tokens_counts_as_open_to_everybody() -> None:
    address = {"kafka": Address("0.0.0.0", 9092)}
    keys = {"kafka_security": "sasl_ssl", "sasl_oauthbearer_unsecured_tokens": "true"}
    with pytest.raises(InvalidConfigError, match="other machines can reach"):
        check_exposure(config(**keys), address)
    assert check_exposure(config(**keys, kafka_ssl_client_auth="required"), address) == ()
    assert check_exposure(config(kafka_security="sasl_ssl", sasl_oauthbearer_jwks_endpoint_url="https://a/b"), address) == ()


async def test_a_server_that_could_verify_no_token_does_not_start(tmp_path: Path) -> None:
    for keys, why in (
        ({}, "no key says which tokens are valid"),
        ({"sasl_oauthbearer_jwks_endpoint_url": f"file://{tmp_path}/none"}, "none"),
        ({"sasl_oauthbearer_jwks_endpoint_url": "ftp://host/keys"}, "use https"),
    ):
        pytest.importorskip("jwt")
        with pytest.raises((InvalidConfigError, OSError), match=why):
            async with serving(tmp_path, **{"sasl_oauthbearer_unsecured_tokens": False, **keys}):
                pass


async def test_signed_tokens_are_verified_by_the_keys_of_a_file_that_may_change(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    issuer, file = TokenIssuer(now_ms), tmp_path / "keys of the issuer.json"
    file.write_bytes(issuer.jwks())
    url = file.as_uri()
    keys = {"sasl_oauthbearer_unsecured_tokens": False, "sasl_oauthbearer_jwks_endpoint_url": url}
    expected = {"sasl_oauthbearer_expected_issuer": "triolog", "sasl_oauthbearer_expected_audience": ("kafka",)}
    async with serving(tmp_path, **keys, **expected) as server:
        async with server.connected() as client:
            assert (await log_in(client, issuer.issue("alice", audience="kafka"))).error_code == 0
        for token in (ISSUER.issue("alice", audience="kafka"), issuer.issue("alice"), TokenIssuer(now_ms).issue("alice")):
            async with server.connected() as client:
                assert (await log_in(client, token)).error_message == INVALID


async def test_a_file_without_keys_keeps_the_server_from_starting(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    (tmp_path / "keys").write_text('{"keys": []}')
    keys = {"sasl_oauthbearer_unsecured_tokens": False, "sasl_oauthbearer_jwks_endpoint_url": f"file://{tmp_path}/keys"}
    with pytest.raises(InvalidConfigError, match="no public RSA, EC or Ed25519 key"):
        async with serving(tmp_path, **keys):
            pass
