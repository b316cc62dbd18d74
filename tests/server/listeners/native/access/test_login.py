"""Logging in over the native protocol: mechanisms, the order of tokens, what a client without a login gets, logins that end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from triolog.protocol.errors import ErrorCode, InvalidConfigError, RequestError
from triolog.protocol.native import messages
from triolog.protocol.native.connection import CONNECTION_CLOSED, LastError, Response
from triolog.server.config.broker_config import Address
from triolog.server.config.listener_security import ListenerSecurity
from triolog.server.embedded import MEMORY, BlockingBroker

from tests.support.attackers import both_listeners
from tests.support.brokers import until
from tests.support.kafka_login import ScramClient
from tests.support.kafka_server import batch
from tests.support.wire_client import WireClient, error_of

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
FAILED: Final = ErrorCode.SASL_AUTHENTICATION_FAILED
METADATA: Final = messages.MetadataRequest()
LARGE: Final = messages.ProduceRequest((messages.ProducePartition("t", 0, batch("x" * 900_000)),))
UNACKNOWLEDGED: Final = messages.ProduceRequest((messages.ProducePartition("t", 0, batch("x")),), 0)


@contextmanager
def serving(**keys: Any) -> Iterator[BlockingBroker]:
    security = {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1, **keys}
    users = {"alice": "secret", "bob": "other"}
    with BlockingBroker(MEMORY, native=Address("127.0.0.1", 0), users=users, security=security, topics={"t": 1}) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    with serving() as served:
        yield served


@pytest.fixture
def client(broker: BlockingBroker) -> Iterator[WireClient]:
    with connected(broker) as client:
        yield client


def connected(broker: BlockingBroker) -> WireClient:
    return WireClient.connect(broker.native)


def counted(broker: BlockingBroker) -> tuple[int, int]:
    """(failed logins, logins)"""
    statistics = broker.call_now(lambda: broker._target.core.security.statistics)
    return statistics.failed_logins, statistics.logins


def token(client: WireClient, data: bytes, mechanism: str = "SCRAM-SHA-256") -> messages.AuthenticateResponse:
    answer = client.call(messages.AuthenticateRequest(mechanism, data))
    assert isinstance(answer, messages.AuthenticateResponse)
    return answer


def scram_of(mechanism: str = "SCRAM-SHA-256", user: str = "alice", password: str = "secret") -> ScramClient:
    return ScramClient(HASHES[mechanism], user, password)


def log_in(
    client: WireClient, mechanism: str = "SCRAM-SHA-256", user: str = "alice", password: str = "secret"
) -> messages.AuthenticateResponse:
    """The answer to the last token. Raises RequestError."""
    scram = scram_of(mechanism, user, password)
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
def test_a_user_logs_in_and_is_served(broker: BlockingBroker, client: WireClient, mechanism: str) -> None:
    failed, logins = counted(broker)
    assert client.hello.sasl_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert log_in(client, mechanism).session_lifetime_ms == 0
    assert client.call(messages.MetadataRequest(())).topics == ()
    assert counted(broker) == (failed, logins + 1)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bob", "secret")])
def test_a_wrong_password_is_answered_counted_and_ends_the_connection(
    broker: BlockingBroker, client: WireClient, mechanism: str, user: str, password: str
) -> None:
    failed, logins = counted(broker)
    error = error_of(log_in, client, mechanism, user, password)
    assert client.is_closed_by_server()
    assert error.code is FAILED
    assert error.message.endswith(f"due to invalid credentials with SASL mechanism {mechanism}")
    assert counted(broker) == (failed + 1, logins)


async def test_a_failed_login_is_answered_after_a_delay_that_ends_with_the_server(fast_path: Path) -> None:
    settings = {
        "native_security": ListenerSecurity.SASL_PLAINTEXT,
        "sasl_users": {"alice": "secret"},
        "connection_failed_authentication_delay_ms": 10_000,
    }
    async with both_listeners(fast_path, **settings) as server, server.native_client() as client:
        scram = scram_of(password="wrong")
        challenge: Any = await client.call(messages.AuthenticateRequest("SCRAM-SHA-256", scram.first()))
        await client.send(messages.AuthenticateRequest("SCRAM-SHA-256", scram.final(challenge.data)))
        await until(lambda: server.kafka.broker.security.statistics.failed_logins == 1)
        assert not server.admission.counters("native").api("authenticate").errors
        with trio.fail_after(5):
            server.native.stop(1)
            answer = await client.receive()
        assert answer.error is not None
        assert answer.error.code is FAILED
        assert server.admission.counters("native").api("authenticate").errors == {FAILED: 1}


def test_a_password_is_no_mechanism_without_tls(broker: BlockingBroker, client: WireClient) -> None:
    failed, _ = counted(broker)
    error = error_of(token, client, b"\0alice\0secret", "PLAIN")
    assert client.is_closed_by_server()
    assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert "SCRAM-SHA-256, SCRAM-SHA-512" in error.message
    assert counted(broker)[0] == failed + 1


def test_a_listener_without_tls_that_knows_passwords_only_does_not_start() -> None:
    with pytest.raises(InvalidConfigError, match="passwords are not taken"), serving(sasl_enabled_mechanisms="PLAIN"):
        """Not reached."""


@pytest.mark.parametrize(
    "conversation",
    [
        lambda client: client.send(METADATA),
        lambda client: client.send(messages.StatisticsRequest()),
        lambda client: client.send_body("no such call", {}),
        lambda client: client.send(UNACKNOWLEDGED, expects_answer=False),
        lambda client: (token(client, scram_of().first()), client.send(METADATA)),
    ],
    ids=["metadata", "statistics", "unknown", "produce with acks 0", "between tokens"],
)
def test_who_has_not_logged_in_is_told_so_and_not_served(broker: BlockingBroker, client: WireClient, conversation: Any) -> None:
    before = counted(broker)
    conversation(client)
    error = ended_with(client)
    assert error.code is ErrorCode.ILLEGAL_SASL_STATE
    assert "send authenticate first, with SCRAM-SHA-256, SCRAM-SHA-512" in error.message
    assert counted(broker) == before


def test_frames_are_small_until_the_login() -> None:
    with serving() as broker, connected(broker) as unknown, connected(broker) as known:
        unknown.send(LARGE)
        assert ended_with(unknown).code is ErrorCode.INVALID_REQUEST
        log_in(known)
        assert known.call(LARGE).partitions[0].error is None


def test_what_comes_along_with_the_wrong_password_is_not_served(client: WireClient) -> None:
    scram = scram_of(password="wrong")
    challenge = token(client, scram.first())
    asked = client.send(messages.AuthenticateRequest("SCRAM-SHA-256", scram.final(challenge.data)))
    client.send(METADATA)
    answer = client.receive()
    assert isinstance(answer, Response)
    assert answer.correlation_id == asked
    assert answer.error is not None
    assert client.is_closed_by_server()


def test_a_proof_of_another_exchange_is_none(broker: BlockingBroker, client: WireClient) -> None:
    """Both nonces are part of what is signed: a client-final that was overheard is of no use on another connection."""
    scram = scram_of()
    overheard = scram.final(token(client, scram.first()).data)
    assert token(client, overheard).done
    with connected(broker) as replaying:
        token(replaying, scram_of().first())
        error = error_of(token, replaying, overheard)
        assert replaying.is_closed_by_server()
    assert (error.code, "another nonce" in error.message) == (FAILED, True)


@pytest.mark.parametrize("data", [b"", b"n,,n=alice", b"\xff", b"p=tls-unique,,n=alice,r=abc", b"n,a=bob,n=alice,r=abc"])
def test_a_first_token_that_is_none_fails(client: WireClient, data: bytes) -> None:
    assert error_of(token, client, data).code is FAILED


def test_a_mechanism_that_changes_between_tokens_fails(broker: BlockingBroker, client: WireClient) -> None:
    failed, _ = counted(broker)
    scram = scram_of()
    challenge = token(client, scram.first())
    assert error_of(token, client, scram.final(challenge.data), "SCRAM-SHA-512").code is FAILED
    assert counted(broker)[0] == failed + 1


def test_a_client_that_goes_between_tokens_leaves_nothing(broker: BlockingBroker) -> None:
    before = counted(broker)
    with connected(broker) as gone, connected(broker) as other:
        token(gone, scram_of().first())
        gone.close()
        log_in(other)
        while len(other.call(messages.ListConnectionsRequest()).connections) > 1:
            """It has not gone yet."""
    assert counted(broker) == (before[0], before[1] + 1)


def test_a_second_login_is_refused_where_none_expires(client: WireClient) -> None:
    log_in(client)
    assert error_of(token, client, scram_of().first()).code is ErrorCode.ILLEGAL_SASL_STATE
    assert client.call(messages.MetadataRequest(())).topics == ()


def test_where_nobody_logs_in_that_is_said() -> None:
    with serving(native_security="plaintext") as broker, connected(broker) as client:
        assert client.hello.sasl_mechanisms == ()
        assert error_of(token, client, b"n,,n=alice,r=abc").code is ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(messages.MetadataRequest(())).topics == ()


def test_a_login_that_expires_is_renewed_by_the_same_user_or_ends() -> None:
    with serving(connections_max_reauth_ms=400) as broker:
        with connected(broker) as renewed:
            assert log_in(renewed).session_lifetime_ms == 400
            for _ in range(3):
                scram = scram_of()
                challenge = token(renewed, scram.first())
                assert renewed.call(messages.MetadataRequest(())).topics == (), "the login so far holds while it is renewed"
                assert token(renewed, scram.final(challenge.data)).session_lifetime_ms == 400
        with connected(broker) as other:
            log_in(other)
            error = error_of(log_in, other, user="bob", password="other")
            assert error.message == "Cannot change principals during re-authentication"
            assert other.is_closed_by_server()
        with connected(broker) as other_mechanism:
            log_in(other_mechanism)
            error = error_of(log_in, other_mechanism, "SCRAM-SHA-512")
            assert error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        with connected(broker) as expired:
            log_in(expired)
            while not isinstance(event := _answer(expired), LastError):
                assert event is not CONNECTION_CLOSED
            assert (event.error.code, "expired" in event.error.message) == (ErrorCode.ILLEGAL_SASL_STATE, True)


def _answer(client: WireClient) -> object:
    client.send(METADATA)
    return client.receive()


def test_no_message_shows_a_token() -> None:
    assert "secret" not in repr(messages.AuthenticateRequest("PLAIN", b"\0alice\0secret"))
    assert "secret" not in repr(messages.AuthenticateResponse(b"secret", True))
    with pytest.raises(RequestError) as caught:
        messages.decode_request("authenticate", 1, {"mechanism": "PLAIN", "data": "secret"})
    assert "secret" not in str(caught.value)
