"""Logins on a listener with SASL, by PLAIN, SCRAM or OAUTHBEARER, for every protocol that carries the tokens. Source: KIP-84,
KIP-255, KIP-368 (logins that end), RFC 4616, RFC 5802, RFC 7628; Kafka's SaslServerAuthenticator.

Before a login requests are small, and the peer has a minute to complete it. A failed login is counted; its door responds after
a delay and ends the connection. The door decides which requests carry tokens, and in which order.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError, SaslAuthenticationError
from ....protocol.kafka.scram import ScramMechanism, ScramServer
from ...broker import Broker, Security
from ...config.listener_security import OAUTHBEARER, PLAIN
from ..connections.session import USER_PREFIX, Session

LOGGER: Final = logging.getLogger(__name__)

LOGIN_TIMEOUT_S: Final = 60.0
"""Who has not logged in by then is disconnected."""
NONCE_BYTES: Final = 20
SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}

WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"
"""Kafka's words."""
MOST_SHOWN: Final = 40
"""Characters of an unknown mechanism that a log line has."""
EXPIRED: Final = "its login has expired and was not renewed"


class Taken(NamedTuple):
    """The server's response to a token. With the last one the user has logged in, for `lifetime_ms`; 0 means indefinitely."""

    answer: bytes
    is_last: bool
    lifetime_ms: int = 0


@attrs.define(eq=False, repr=False)
class Login:
    """The state of a connection's login. Owner: the object that processes its requests."""

    broker: Broker
    session: Session[Any]
    mechanisms: tuple[str, ...]
    end: Callable[[str], None]
    """Ends the connection, and says why."""
    mechanism: str | None = None
    """That of the login, or of the one that was begun."""
    has_logged_in: bool = False
    is_under_way: bool = False
    """Whether a login, or its renewal, was begun and is not done."""
    _user: str | None = None
    """Who is logging in, or has logged in."""
    _exchange: ScramServer | None = None
    """Between the first token of SCRAM and the last one."""
    _refusal: str | None = None
    """The response to a bearer token that was not accepted; the client's next token ends the login with it."""
    _expires: float = float("inf")
    _received: float = 0.0
    """The time of the last token."""

    def __attrs_post_init__(self) -> None:
        self.session.protocol_broken = self._note_broken_protocol
        self.session.task.ring_at(trio.current_time() + LOGIN_TIMEOUT_S, self._end_when_late)

    @property
    def _security(self) -> Security:
        return self.broker.security

    @property
    def _protocol(self) -> str:
        return self.session.transport.counters.protocol

    @property
    def awaits_last_token(self) -> bool:
        """Return whether the login has received the first of two tokens."""
        return self._exchange is not None or self._refusal is not None

    @property
    def is_done(self) -> bool:
        """Return whether the user has logged in and no renewal is in progress."""
        return self.has_logged_in and not self.is_under_way

    @property
    def has_expired(self) -> bool:
        """Return whether the login has expired, so that the connection accepts only a renewal."""
        return trio.current_time() >= self._expires

    @property
    def failure_delay_s(self) -> float:
        """Return the seconds until the response to a failed login. They count from its last token, so that the time to check a
        password, which only users who exist have, does not show."""
        passed_s = trio.current_time() - self._received
        return max(0.0, self.broker.config.connection_failed_authentication_delay_ms / 1000 - passed_s)

    def _end_when_late(self) -> None:
        if not self.has_logged_in:
            self.end(f"it has not logged in within {LOGIN_TIMEOUT_S:g} s")

    def _note_broken_protocol(self, why: str) -> None:
        """A login may end with a token that is too large to be a request. Before its first request a peer may be anything."""
        if not self.is_done and self.session.taken_count:
            self._count_failure(why)

    def begin(self, mechanism: str) -> None:
        """Log in, or renew a login. Raises RequestError: with ILLEGAL_SASL_STATE nothing has happened, with
        UNSUPPORTED_SASL_MECHANISM it has failed."""
        if self.is_done and not self.broker.config.connections_max_reauth_ms and self._expires == float("inf"):
            raise RequestError("the user is already logged in, and logins do not expire here", ErrorCode.ILLEGAL_SASL_STATE)
        if mechanism not in self.mechanisms or self.mechanism not in (None, mechanism):
            why = "that of its login" if self.has_logged_in else "enabled"
            self._count_failure(f"mechanism {mechanism[:MOST_SHOWN]!r} is not {why}")
            offered = ", ".join(self.mechanisms) if self.mechanism is None else self.mechanism
            raise RequestError(f"mechanism is not {why}. Use {offered}", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self.mechanism, self.is_under_way = mechanism, True
        self._exchange = None

    def failed(self, why: str) -> SaslAuthenticationError:
        """The client has not kept to the exchange: what it is to be told."""
        self._received = trio.current_time()
        self._count_failure(why)
        return SaslAuthenticationError(why)

    async def take(self, token: bytes) -> Taken:
        """Process one token of the client. Raises SaslAuthenticationError if the login fails."""
        self._received = trio.current_time()
        if self._refusal is not None:
            raise SaslAuthenticationError(self._refusal)  # counted with the response before
        try:
            if self.mechanism == OAUTHBEARER:
                return await self._check_bearer(token)
            if self.mechanism == PLAIN:
                self._check_plain(token)
                return Taken(b"", True, self._finish())
            if self._exchange is None:
                return Taken(self._challenge(token), False)
            exchange, self._exchange = self._exchange, None
            assert self._user is not None
            credential = await self._security.scram_credential(self._user, exchange.mechanism)
            answer = exchange.receive_final(token, credential)
            return Taken(answer, True, self._finish())
        except SaslAuthenticationError as exc:
            self._count_failure(exc.message)
            raise

    def _check_plain(self, token: bytes) -> None:
        try:
            authorization, user, password = token.decode().split("\0")
        except ValueError:
            raise SaslAuthenticationError("Invalid SASL/PLAIN response: expected 3 tokens in UTF-8") from None
        if not user or not password:
            raise SaslAuthenticationError(f"Authentication failed: {'password' if user else 'username'} not specified")
        self._note_user(user)
        if authorization not in ("", user):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if not self._security.is_password(user, password):
            raise SaslAuthenticationError(WRONG_PASSWORD)

    async def _check_bearer(self, token: bytes) -> Taken:
        """As Kafka does, respond to a refused token with a status first, and fail at the client's next token."""
        tokens = self._security.tokens
        assert tokens is not None
        decision = await tokens.decide(token)
        if decision.refusal:
            self._count_failure(decision.why)
            self._refusal = decision.refusal
            return Taken(decision.refusal.encode(), False)
        self._note_user(decision.user)
        taken = Taken(b"", True, self._finish(decision.rest_ms))
        tokens.note_login(decision.user)
        return taken

    def _challenge(self, token: bytes) -> bytes:
        assert self.mechanism is not None
        mechanism = SCRAM[self.mechanism]
        exchange = ScramServer(mechanism, secrets.token_urlsafe(NONCE_BYTES))
        user = exchange.receive_first(token)
        self._note_user(user)
        challenge = exchange.challenge(*self._security.scram_challenge(user, mechanism))
        self._exchange = exchange
        return challenge

    def _note_user(self, user: str) -> None:
        """Raises SaslAuthenticationError when a login would be renewed as somebody else."""
        if self.has_logged_in and user != self._user:
            raise SaslAuthenticationError("Cannot change principals during re-authentication")
        self._user = user

    def _finish(self, token_ms: int = 0) -> int:
        """Complete the login and return how long it holds, in ms, 0 for indefinitely. `token_ms`: at most so long, if not 0."""
        lifetime_ms = self.broker.config.connections_max_reauth_ms
        if token_ms:
            lifetime_ms = min(token_ms, lifetime_ms or token_ms)
        self._expires = trio.current_time() + lifetime_ms / 1000 if lifetime_ms else float("inf")
        self.is_under_way, self.has_logged_in = False, True
        self.session.transport.known()
        self.session.known_as(f"{USER_PREFIX}{self._user}")
        self.session.pay()
        self._security.note_login(self.session.principal, self.session.transport.host, self._protocol, self.mechanism)
        LOGGER.debug("%s logged in as %s by %s", self.session.peer, self._user, self.mechanism)
        return lifetime_ms

    def _count_failure(self, why: str) -> None:
        session = self.session
        user, host = self._user or "", session.transport.host
        self._security.note_failed_login(user, host, self._protocol, self.mechanism, why, peer=session.peer)
