"""How a user logs in on a listener with SASL, by PLAIN or SCRAM. Source: KIP-43, KIP-84, KIP-368 (logins that end), RFC 4616,
RFC 5802; Kafka's SaslServerAuthenticator.

Before a login, and while one is renewed, nothing but these and ApiVersions is taken; requests are small then. A login that
fails is counted, answered after a delay, and ends the connection.
"""

from __future__ import annotations

import enum
import logging
import secrets
from typing import Final

import attrs
import trio

from .....protocol.errors import ErrorCode, SaslAuthenticationError
from .....protocol.kafka.apis import ApiKey
from .....protocol.kafka.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from .....protocol.kafka.scram import ScramMechanism, ScramServer
from .....protocol.limits import MAX_UNKNOWN_BYTES
from ....broker import Broker, Security
from ....settings.listener_security import PLAIN
from ..session import KafkaSession

LOGGER: Final = logging.getLogger(__name__)

LOGIN_TIMEOUT_S: Final = 60.0
"""Who has not logged in by then is disconnected."""
NONCE_BYTES: Final = 20
SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}

WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"
"""Kafka's words."""


class _Step(enum.Enum):
    HANDSHAKE = "SaslHandshake"
    FIRST_TOKEN = "a first token"
    LAST_TOKEN = "a last token"
    DONE = "a login"


_ADMITTED: Final = {
    _Step.HANDSHAKE: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    _Step.FIRST_TOKEN: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE}),
    _Step.LAST_TOKEN: frozenset({ApiKey.SASL_AUTHENTICATE}),
}


@attrs.define(eq=False)
class Login:
    """How far a connection has come with saying who it is. Owner: its session."""

    broker: Broker
    session: KafkaSession
    mechanisms: tuple[str, ...]
    _step: _Step = _Step.HANDSHAKE
    _mechanism: str | None = None
    _user: str | None = None
    """Who is logging in, or has logged in."""
    _exchange: ScramServer | None = None
    _expires: float = float("inf")
    _has_logged_in: bool = False

    def __attrs_post_init__(self) -> None:
        self.session.connection.max_request_bytes = MAX_UNKNOWN_BYTES
        self.session.logs_in = True
        self.session.task.ring_at(trio.current_time() + LOGIN_TIMEOUT_S, self._end_when_late)

    @property
    def _security(self) -> Security:
        return self.broker.security

    @property
    def is_done(self) -> bool:
        return self._step is _Step.DONE

    @property
    def may_be_renewed(self) -> bool:
        return self.is_done and self.broker.config.connections_max_reauth_ms > 0

    def refusal(self, key: ApiKey) -> str | None:
        """Why a request is not taken now; None when it is."""
        if self._step is not _Step.DONE:
            return None if key in _ADMITTED[self._step] else f"{key.name} came where {self._step.value} was expected"
        if trio.current_time() < self._expires or key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            return None
        return "its login has expired and was not renewed"

    def _end_when_late(self) -> None:
        if not self._has_logged_in:
            self.session.fail(f"it has not logged in within {LOGIN_TIMEOUT_S:g} s")

    # ---- the exchange ----------------------------------------------------------------------------------------------------

    def choose(self, mechanism: str, *, tokens_follow: bool) -> SaslHandshakeResponse:
        """Begin to log in, or to renew a login. The mechanisms are listed in any case: clients look for theirs there."""
        mechanisms = list(self.mechanisms)
        if self.is_done and not self.may_be_renewed:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms)
        if mechanism not in mechanisms or (self._mechanism not in (None, mechanism)):
            self._count_failure(f"mechanism {mechanism!r} is not {'that of its login' if self.is_done else 'enabled'}")
            self.session.stop_reading()
            return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
        self._mechanism, self._step = mechanism, _Step.FIRST_TOKEN
        self.session.connection.takes_tokens = tokens_follow
        return SaslHandshakeResponse(mechanisms=mechanisms)

    async def take(self, token: bytes) -> SaslAuthenticateResponse:
        """One token of the client's, and the answer to it."""
        try:
            if self._mechanism == PLAIN:
                self._check_plain(token)
                answer, is_last = b"", True
            else:
                answer, is_last = await self._scram(token)
            if is_last:
                lifetime_ms = self._finish()
                return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms)
        except SaslAuthenticationError as exc:
            return await self._failed(exc)
        return SaslAuthenticateResponse(error_message=None, auth_bytes=answer, session_lifetime_ms=0)

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

    async def _scram(self, token: bytes) -> tuple[bytes, bool]:
        if self._step is _Step.FIRST_TOKEN:
            assert self._mechanism is not None
            mechanism = SCRAM[self._mechanism]
            self._exchange = ScramServer(mechanism, secrets.token_urlsafe(NONCE_BYTES))
            user = self._exchange.receive_first(token)
            self._note_user(user)
            credential = await self._security.scram_credential(user, mechanism)
            self._step = _Step.LAST_TOKEN
            return self._exchange.challenge(credential), False
        assert self._exchange is not None
        answer = self._exchange.receive_final(token)
        self._exchange = None
        return answer, True

    def _note_user(self, user: str) -> None:
        """Raises SaslAuthenticationError when a login would be renewed as somebody else."""
        if self._has_logged_in and user != self._user:
            raise SaslAuthenticationError("Cannot change principals during re-authentication")
        self._user = user

    def _finish(self) -> int:
        """The user has logged in; answers for how long, in ms, 0 for ever."""
        lifetime_ms = self.broker.config.connections_max_reauth_ms
        self._expires = trio.current_time() + lifetime_ms / 1000 if lifetime_ms else float("inf")
        self._step = _Step.DONE
        self._has_logged_in = True
        self.session.transport.known()
        self._security.statistics.logins += 1
        self.session.principal = f"User:{self._user}"
        self.session.connection.takes_tokens = False
        self.session.connection.max_request_bytes = self.broker.config.max_request_bytes
        LOGGER.debug("%s logged in as %s by %s", self.session.peer, self._user, self._mechanism)
        return lifetime_ms

    async def _failed(self, error: SaslAuthenticationError) -> SaslAuthenticateResponse:
        self._count_failure(error.message)
        with self.session.parked(self.broker.config.connection_failed_authentication_delay_ms / 1000, kept_bytes=0):
            await trio.sleep_forever()
        self.session.stop_reading()
        return SaslAuthenticateResponse(
            error_code=error.code, error_message=error.message, auth_bytes=b"", session_lifetime_ms=0
        )

    def _count_failure(self, why: str) -> None:
        self._security.statistics.failed_logins += 1
        LOGGER.warning("%s did not log in as %r by %s: %s", self.session.peer, self._user, self._mechanism, why)
