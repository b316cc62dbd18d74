"""Logins of requests that append records: `Authorization: Basic` with a user of the server, or `Bearer` with a token of
OAUTHBEARER.

A connection whose request was accepted stays so for requests with the same header, as a connection of the other protocols does
after its login: until `connections_max_reauth_ms`, or the token's end. A wrong password is answered after the delay that a
failed login has everywhere, and then the connection closes.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final

import attrs
import trio

from ....protocol.errors import SaslAuthenticationError
from ....protocol.types import ANONYMOUS
from ...broker import Broker
from ...config.listener_security import OAUTHBEARER
from ..connections.session import USER_PREFIX
from ..connections.transport import Transport
from .access import HttpRefusalError

CODE: Final = 40101
BASIC: Final = "Basic"
PROTOCOL: Final = "http"


@attrs.define(eq=False, repr=False)
class HttpLogin:
    """The login of a connection. Owner: its requests."""

    broker: Broker
    transport: Transport
    principal: str = ANONYMOUS
    _accepted: str | None = None
    """The header that was accepted last."""
    _expires: float = float("inf")

    async def check(self, authorization: str) -> None:
        """Set the principal. Raises HttpRefusalError."""
        if not self.broker.config.http_security.has_sasl:
            return
        is_known = self._accepted is not None and hmac.compare_digest(self._accepted.encode(), authorization.encode())
        if is_known and trio.current_time() < self._expires:
            return
        self._accepted, self.principal = None, ANONYMOUS
        received, config = trio.current_time(), self.broker.config
        scheme, _, credentials = authorization.partition(" ")
        mechanism = {"basic": BASIC, "bearer": OAUTHBEARER}.get(scheme.lower())
        if mechanism is None:
            raise HttpRefusalError(401, "Authorization is missing: send Basic with a user of the server, or Bearer", CODE)
        user = ""
        try:
            if mechanism == BASIC:
                user, password = read_basic(credentials)
                if not await self.broker.security.accepts_password(user, password):
                    raise SaslAuthenticationError("Invalid username or password")
                lifetime_ms = 0
            else:
                user, lifetime_ms = await self._check_bearer(credentials.strip())
        except SaslAuthenticationError as exc:
            host, peer = self.transport.host, self.transport.peer
            self.broker.security.note_failed_login(user, host, PROTOCOL, mechanism, exc.message, peer=peer)
            await trio.sleep_until(received + config.connection_failed_authentication_delay_ms / 1000)
            raise HttpRefusalError(401, "Invalid username or password, or token", CODE) from None
        self._accept(authorization, user, mechanism, lifetime_ms)

    async def _check_bearer(self, token: str) -> tuple[str, int]:
        """Return the user and the rest of the token's life."""
        tokens = self.broker.security.tokens
        if tokens is None:
            raise SaslAuthenticationError("sasl_enabled_mechanisms has no OAUTHBEARER")
        decision = await tokens.decide(f"n,,\1auth=Bearer {token}\1\1".encode())
        if decision.refusal:
            raise SaslAuthenticationError(decision.why)
        tokens.note_login(decision.user)
        return decision.user, decision.rest_ms

    def _accept(self, authorization: str, user: str, mechanism: str, token_ms: int) -> None:
        lifetime_ms = self.broker.config.connections_max_reauth_ms
        if token_ms:
            lifetime_ms = min(token_ms, lifetime_ms or token_ms)
        self._expires = trio.current_time() + lifetime_ms / 1000 if lifetime_ms else float("inf")
        self._accepted, self.principal = authorization, f"{USER_PREFIX}{user}"
        self.broker.security.note_login(self.principal, self.transport.host, PROTOCOL, mechanism)


def read_basic(credentials: str) -> tuple[str, str]:
    """Return user and password. Raises SaslAuthenticationError, which repeats nothing of them."""
    try:
        user, colon, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        user, colon, password = "", "", ""
    if not colon:
        raise SaslAuthenticationError("the credentials of Basic are not user:password in base64")
    return user, password
