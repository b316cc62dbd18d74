"""SaslHandshake and SaslAuthenticate. What they lead to is in `login`. Source: KIP-43, KIP-152."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.kafka.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from .door import Call


def sasl_handshake(call: Call, body: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Version 0 is followed by bare tokens, version 1 by SaslAuthenticate."""
    login = call.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    return login.choose(body.mechanism, tokens_follow=call.version == 0)


async def sasl_authenticate(call: Call, body: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """A token of the exchange that SaslHandshake began."""
    login = call.login
    if login is None or login.is_done:
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message, auth_bytes=b"", session_lifetime_ms=0
        )
    return await login.take(body.auth_bytes)
