"""Logging in over the native protocol: mechanisms, the order of tokens, what a client without a login gets, logins that end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from triolog.protocol.errors import ErrorCode, InvalidConfigError, RequestError
from triolog.protocol.native import messages
from triolog.protocol.native.connection import CONNECTION_CLOSED, LastError, Response
from triolog.server.broker import Broker
from triolog.server.listeners.connections.sockets import Admission, Listener
from triolog.server.listeners.native.calls import native_listener
from triolog.server.settings.broker_config import Address
from triolog.server.settings.listener_security import ListenerSecurity

from tests.support.brokers import running_broker, until
from tests.support.kafka_server import batch
from tests.support.scram_client import ScramClient
from tests.support.wire_client import WireClient, error_of

USERS: Final = {"alice": "secret", "bob": "other"}
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
METADATA: Final = messages.MetadataRequest()


@attrs.frozen
class Served:
    broker: Broker
    listener: Listener
    address: Address
    admission: Admission

    async def talk(self, conversation: Callable[[WireClient], Any]) -> Any:
        """Have a conversation over a connection of its own, in a thread."""

        def run() -> Any:
            with WireClient.connect(self.address) as client:
                return conversation(client)

        return await trio.to_thread.run_sync(run)


@asynccontextmanager
async def serving(path: Path, **keys: Any) -> AsyncIterator[Served]:
    settings = {
        "native_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": USERS,
        "connection_failed_authentication_delay_ms": 1,
        **keys,
    }
    async with running_broker(path, **settings) as broker, trio.open_nursery() as nursery:
        admission = Admission.of(broker.config)
        listener = native_listener(broker, Address("127.0.0.1", 0), admission)
        address = await nursery.start(listener.run)
        yield Served(broker, listener, address, admission)
        nursery.cancel_scope.cancel()


def token(client: WireClient, data: bytes, mechanism: str = "SCRAM-SHA-256") -> messages.AuthenticateResponse:
    answer = client.call(messages.AuthenticateRequest(mechanism, data))
    assert isinstance(answer, messages.AuthenticateResponse)
    return answer


def log_in(
    client: WireClient, mechanism: str = "SCRAM-SHA-256", user: str = "alice", password: str = "secret"
) -> messages.AuthenticateResponse:
    """The answer to the last token. Raises RequestError."""
    scram = ScramClient(HASHES[mechanism], user, password)
    challenge = token(client, scram.first(), mechanism)
    assert (challenge.done, challenge.session_lifetime_ms) == (False, 0)
    answer = token(client, scram.final(challenge.data), mechanism)
    assert answer.done
    assert scram.check(answer.data)
    return answer


def ended_with(client: WireClient) -> RequestError:
    """The last error of a connection that the server ends."""
    event = client.receive()
    assert isinstance(event, LastError), event
    assert client.socket.recv(1) == b""
    return event.error


@pytest.mark.parametrize("mechanism", HASHES)
async def test_a_user_logs_in_and_is_served(tmp_path: Path, mechanism: str) -> None:
    def conversation(client: WireClient) -> None:
        assert client.hello is not None
        assert client.hello.sasl_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
        assert log_in(client, mechanism).session_lifetime_ms == 0
        assert client.call(METADATA).topics == ()

    async with serving(tmp_path) as served:
        await served.talk(conversation)
        assert served.broker.security.statistics.logins == 1


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bob", "secret")])
async def test_a_wrong_password_is_answered_counted_and_ends_the_connection(
    tmp_path: Path, mechanism: str, user: str, password: str
) -> None:
    def conversation(client: WireClient) -> RequestError:
        error = error_of(log_in, client, mechanism, user, password)
        assert client.is_closed_by_server()
        return error

    async with serving(tmp_path) as served:
        error = await served.talk(conversation)
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert error.message.endswith(f"due to invalid credentials with SASL mechanism {mechanism}")
        statistics = served.broker.security.statistics
        assert (statistics.failed_logins, statistics.logins) == (1, 0)


async def test_a_failed_login_is_answered_after_a_delay_that_ends_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path, connection_failed_authentication_delay_ms=10_000) as served:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:

                async def fail() -> None:
                    error = await served.talk(lambda client: error_of(log_in, client, password="wrong"))
                    assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED

                nursery.start_soon(fail)
                await until(lambda: served.broker.security.statistics.failed_logins == 1)
                assert not served.admission.counters("native").api("authenticate").errors
                served.listener.stop(1)
        assert served.admission.counters("native").api("authenticate").errors == {ErrorCode.SASL_AUTHENTICATION_FAILED: 1}


async def test_a_password_is_no_mechanism_without_tls(tmp_path: Path) -> None:
    def conversation(client: WireClient) -> RequestError:
        error = error_of(token, client, b"\0alice\0secret", "PLAIN")
        assert client.is_closed_by_server()
        return error

    async with serving(tmp_path) as served:
        error = await served.talk(conversation)
        assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert "SCRAM-SHA-256, SCRAM-SHA-512" in error.message
        assert served.broker.security.statistics.failed_logins == 1


async def test_a_listener_without_tls_that_knows_passwords_only_does_not_start(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "native_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_enabled_mechanisms": ("PLAIN",),
    }
    async with running_broker(tmp_path, **keys) as broker:
        with pytest.raises(InvalidConfigError, match="passwords are not taken"):
            native_listener(broker, Address("127.0.0.1", 0), Admission.of(broker.config))


@pytest.mark.parametrize(
    "conversation",
    [
        lambda client: client.send(METADATA),
        lambda client: client.send(messages.StatisticsRequest()),
        lambda client: client.send_body("no such call", {}),
        lambda client: client.send(
            messages.ProduceRequest((messages.ProducePartition("t", 0, batch("x")),), 0), expects_answer=False
        ),
        lambda client: (token(client, ScramClient("sha256", "alice", "secret").first()), client.send(METADATA)),
    ],
    ids=["metadata", "statistics", "unknown", "produce with acks 0", "between tokens"],
)
async def test_without_a_login_nothing_is_served_and_it_is_said_why(
    tmp_path: Path, conversation: Callable[[WireClient], Any]
) -> None:
    def run(client: WireClient) -> RequestError:
        conversation(client)
        return ended_with(client)

    async with serving(tmp_path) as served:
        error = await served.talk(run)
        assert error.code is ErrorCode.ILLEGAL_SASL_STATE
        assert "send authenticate first, with SCRAM-SHA-256, SCRAM-SHA-512" in error.message
        assert served.broker.security.statistics.logins == 0


async def test_frames_are_small_until_the_login(tmp_path: Path) -> None:
    large = messages.ProduceRequest((messages.ProducePartition("t", 0, batch("x" * 900_000)),))

    def refused(client: WireClient) -> RequestError:
        client.send(large)
        return ended_with(client)

    def taken(client: WireClient) -> None:
        log_in(client)
        assert client.call(large).partitions[0].error is None

    async with serving(tmp_path) as served:
        await served.broker.topics.create("t")
        assert (await served.talk(refused)).code is ErrorCode.INVALID_REQUEST
        await served.talk(taken)


async def test_what_comes_along_with_the_wrong_password_is_not_served(tmp_path: Path) -> None:
    def run(client: WireClient) -> None:
        scram = ScramClient("sha256", "alice", "wrong")
        challenge = token(client, scram.first())
        asked = client.send(messages.AuthenticateRequest("SCRAM-SHA-256", scram.final(challenge.data)))
        client.send(METADATA)
        answer = client.receive()
        assert isinstance(answer, Response)
        assert answer.correlation_id == asked
        assert answer.error is not None
        assert client.is_closed_by_server()

    async with serving(tmp_path) as served:
        await served.talk(run)


async def test_a_proof_of_another_exchange_is_none(tmp_path: Path) -> None:
    """Both nonces are part of what is signed: a client-final that was overheard is of no use on another connection."""
    overheard: list[bytes] = []

    def listen(client: WireClient) -> None:
        scram = ScramClient("sha256", "alice", "secret")
        overheard.append(scram.final(token(client, scram.first()).data))
        assert token(client, overheard[0]).done

    def replay(client: WireClient) -> RequestError:
        token(client, ScramClient("sha256", "alice", "secret").first())
        error = error_of(token, client, overheard[0])
        assert client.is_closed_by_server()
        return error

    async with serving(tmp_path) as served:
        await served.talk(listen)
        error = await served.talk(replay)
        assert (error.code, "another nonce" in error.message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, True)


@pytest.mark.parametrize("data", [b"", b"n,,n=alice", b"\xff", b"p=tls-unique,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc"])
async def test_a_first_token_that_is_none_fails(tmp_path: Path, data: bytes) -> None:
    async with serving(tmp_path) as served:
        error = await served.talk(lambda client: error_of(token, client, data))
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_mechanism_that_changes_between_tokens_fails(tmp_path: Path) -> None:
    def conversation(client: WireClient) -> RequestError:
        scram = ScramClient("sha256", "alice", "secret")
        challenge = token(client, scram.first())
        return error_of(token, client, scram.final(challenge.data), "SCRAM-SHA-512")

    async with serving(tmp_path) as served:
        assert (await served.talk(conversation)).code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert served.broker.security.statistics.failed_logins == 1


async def test_a_client_that_goes_between_tokens_leaves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.talk(lambda client: token(client, ScramClient("sha256", "alice", "secret").first()))
        await until(lambda: not served.admission.counters("native").connections)
        statistics = served.broker.security.statistics
        assert (statistics.failed_logins, statistics.logins) == (0, 0)


async def test_a_second_login_is_refused_where_none_expires(tmp_path: Path) -> None:
    def conversation(client: WireClient) -> None:
        log_in(client)
        error = error_of(token, client, ScramClient("sha256", "alice", "secret").first())
        assert error.code is ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(METADATA).topics == ()

    async with serving(tmp_path) as served:
        await served.talk(conversation)


async def test_where_nobody_logs_in_that_is_said(tmp_path: Path) -> None:
    def conversation(client: WireClient) -> None:
        assert client.hello is not None
        assert client.hello.sasl_mechanisms == ()
        assert error_of(token, client, b"n,,n=alice,r=abc").code is ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(METADATA).topics == ()

    async with serving(tmp_path, native_security=ListenerSecurity.PLAINTEXT) as served:
        await served.talk(conversation)


async def test_a_login_that_expires_is_renewed_by_the_same_user_or_ends(tmp_path: Path) -> None:
    def renewed(client: WireClient) -> None:
        assert log_in(client).session_lifetime_ms == 400
        for _ in range(3):
            scram = ScramClient("sha256", "alice", "secret")
            challenge = token(client, scram.first())
            assert client.call(METADATA).topics == (), "the login so far holds while it is renewed"
            assert token(client, scram.final(challenge.data)).session_lifetime_ms == 400

    def other(client: WireClient) -> None:
        log_in(client)
        error = error_of(log_in, client, user="bob", password="other")
        assert error.message == "Cannot change principals during re-authentication"
        assert client.is_closed_by_server()

    def other_mechanism(client: WireClient) -> None:
        log_in(client)
        assert error_of(log_in, client, "SCRAM-SHA-512").code is ErrorCode.UNSUPPORTED_SASL_MECHANISM

    def expired(client: WireClient) -> RequestError:
        log_in(client)
        while True:
            client.send(METADATA)
            event = client.receive()
            if isinstance(event, LastError):
                return event.error
            assert event is not CONNECTION_CLOSED

    async with serving(tmp_path, connections_max_reauth_ms=400) as served:
        for conversation in (renewed, other, other_mechanism):
            await served.talk(conversation)
        error = await served.talk(expired)
        assert (error.code, "expired" in error.message) == (ErrorCode.ILLEGAL_SASL_STATE, True)


def test_no_message_shows_a_token() -> None:
    assert "secret" not in repr(messages.AuthenticateRequest("PLAIN", b"\0alice\0secret"))
    assert "secret" not in repr(messages.AuthenticateResponse(b"secret", True))
    with pytest.raises(RequestError) as caught:
        messages.decode_request("authenticate", 1, {"mechanism": "PLAIN", "data": "secret"})
    assert "secret" not in str(caught.value)
