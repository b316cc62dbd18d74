"""Logins over Kafka's protocol: SaslHandshake, then tokens, in SaslAuthenticate or bare. Source: KIP-43, KIP-152; Kafka's
SaslServerAuthenticator. `listeners.access.login` defines the content of the tokens.

Before a login, and during a renewal, the connection accepts only these and ApiVersions; requests are small then.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError, SaslAuthenticationError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from ....protocol.limits import MAX_UNKNOWN_BYTES
from ...broker import Broker
from ..access.login import EXPIRED, Login
from .session import KafkaSession

_HANDSHAKES: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
_TOKENS: Final = frozenset({ApiKey.SASL_AUTHENTICATE})
_RENEWING: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


@attrs.define(eq=False, repr=False)
class KafkaLogin:
    """The login of a Kafka connection. Owner: its session."""

    session: KafkaSession
    login: Login

    @classmethod
    def of(cls, broker: Broker, session: KafkaSession, mechanisms: tuple[str, ...]) -> KafkaLogin:
        session.connection.max_frame_bytes = MAX_UNKNOWN_BYTES
        session.logs_in = True
        return cls(session, Login(broker, session, mechanisms, session.fail))

    @property
    def is_done(self) -> bool:
        return self.login.is_done

    @property
    def awaits_token(self) -> bool:
        """Return whether the handshake is complete and the login is not."""
        return not self.login.is_done and self.login.is_under_way

    def refusal(self, key: ApiKey) -> str | None:
        """Why a request is not taken now; None when it is."""
        if self.login.is_done:
            return EXPIRED if self.login.has_expired and key not in _RENEWING else None
        admitted, expected = _HANDSHAKES, "SaslHandshake"
        if self.login.awaits_last_token:
            admitted, expected = _TOKENS, "a last token"
        elif self.login.is_under_way:
            admitted, expected = _TOKENS, "a first token"
        return None if key in admitted else f"{key.name} came where {expected} was expected"

    def choose(self, mechanism: str, *, tokens_follow: bool) -> SaslHandshakeResponse:
        """Begin to log in, or to renew a login. The mechanisms are listed in any case: clients look for theirs there."""
        mechanisms = list(self.login.mechanisms)
        try:
            self.login.begin(mechanism)
        except RequestError as exc:
            if exc.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                self.session.stop_reading()
            return SaslHandshakeResponse(error_code=exc.code, mechanisms=mechanisms)
        self.session.connection.takes_tokens = tokens_follow
        return SaslHandshakeResponse(mechanisms=mechanisms)

    async def take(self, token: bytes) -> SaslAuthenticateResponse:
        """Process one token of the client and return the response."""
        try:
            taken = await self.login.take(token)
        except SaslAuthenticationError as exc:
            return await self._failed(exc)
        if taken.is_last:
            connection = self.session.connection
            connection.takes_tokens = False
            connection.max_frame_bytes = self.login.broker.config.max_request_bytes
        return SaslAuthenticateResponse(error_message=None, auth_bytes=taken.answer, session_lifetime_ms=taken.lifetime_ms)

    async def _failed(self, error: SaslAuthenticationError) -> SaslAuthenticateResponse:
        with self.session.parked(self.login.failure_delay_s, kept_bytes=0):
            await trio.sleep_forever()
        self.session.stop_reading()
        return SaslAuthenticateResponse(
            error_code=error.code, error_message=error.message, auth_bytes=b"", session_lifetime_ms=0
        )
