"""Logins over the native protocol: the call `authenticate`, once for each token. `listeners.access.login` defines the content
of the tokens.

Before the first login the connection accepts only `hello` and `authenticate`; requests are small then. During a renewal, before
the login ends, it accepts all other requests too.
"""

from __future__ import annotations

from typing import Final

import attrs

from ....protocol.errors import ErrorCode, InvalidConfigError, RequestError, SaslAuthenticationError
from ....protocol.native import messages
from ....protocol.native.connection import NativeRequest
from ...broker import Broker
from ...config.listener_security import PLAIN
from ...loop.reactor import Work
from ..access.login import EXPIRED, Login
from .session import NativeSession, TakeUp

ADMITTED: Final = frozenset({messages.HelloRequest.api, messages.AuthenticateRequest.api})
"""Calls that are taken without a login."""
NOBODY_LOGS_IN: Final = "logins are not supported here: the server's native_security has no SASL"


def mechanisms_of(broker: Broker) -> tuple[str, ...]:
    """Return the enabled login mechanisms; empty if users cannot log in. Passwords are accepted over TLS only. Raises
    InvalidConfigError if no mechanism remains."""
    security, enabled = broker.config.native_security, broker.config.sasl_enabled_mechanisms
    if not security.has_sasl:
        return ()
    taken = enabled if security.has_tls else tuple(name for name in enabled if name != PLAIN)
    if not taken:
        raise InvalidConfigError(
            "native_security is sasl_plaintext, which does not accept passwords, but sasl_enabled_mechanisms has "
            "only PLAIN. Enable SCRAM-SHA-512, or use sasl_ssl"
        )
    return taken


@attrs.define(eq=False, repr=False)
class NativeLogin:
    """The login of a native connection. Owner: its calls."""

    session: NativeSession
    login: Login
    admitted: TakeUp
    """Takes up what may be."""

    @classmethod
    def of(cls, broker: Broker, session: NativeSession, admitted: TakeUp) -> NativeLogin:
        def end(why: str) -> None:
            session.fail(RequestError(why, ErrorCode.ILLEGAL_SASL_STATE))

        return cls(session, Login(broker, session, mechanisms_of(broker), end), admitted)

    def take_up(self, request: NativeRequest) -> Work | None:
        """Take a request up, or end the connection: the answer to a call that needs a login might not be waited for."""
        login = self.login
        if request.api not in ADMITTED and (not login.has_logged_in or login.has_expired):
            why = EXPIRED if login.has_logged_in else f"{request.api[:40]!r} needs a login"
            offered = ", ".join(login.mechanisms)
            login.end(f"{why}. Send authenticate first, with {offered}")
            return None
        return self.admitted(request)

    async def authenticate(self, correlation_id: int, message: messages.AuthenticateRequest) -> None:
        """Process one token of the client and send the response."""
        login = self.login
        try:
            if not login.is_under_way:
                login.begin(message.mechanism)
            elif message.mechanism != login.mechanism:
                raise login.failed(f"expected a token of {login.mechanism}")
            taken = await login.take(message.data)
        except RequestError as exc:
            if exc.code is not ErrorCode.ILLEGAL_SASL_STATE:
                if isinstance(exc, SaslAuthenticationError):
                    await self.session.pause(login.failure_delay_s)
                self.session.stop_reading()
            self.session.respond(correlation_id, exc.as_answer(), None)
            return
        if taken.is_last:
            self.session.connection.logged_in()
        answer = messages.AuthenticateResponse(taken.answer, taken.is_last, taken.lifetime_ms)
        self.session.respond(correlation_id, None, answer.to_body())
