"""OAUTHBEARER without sockets: the client's message with a bearer token, and the server's refusal of a token.

    client   n,[a=<user>],^Aauth=Bearer <token>^A[<extension>=<value>^A...]^A
    server   nothing, or {"status":"invalid_token"}
    client   ^A, and then the login fails

Tokens are opaque here. As Kafka does, the server accepts no channel binding (`n` only). It checks the form of extensions, and
uses none. Source: RFC 7628, KIP-255, KIP-342; Kafka's OAuthBearerClientInitialResponse and OAuthBearerSaslServer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Self

import attrs

from ..errors import SaslAuthenticationError
from ..types import Bytes

OAUTHBEARER: Final = "OAUTHBEARER"
SEPARATOR: Final = "\1"
REFUSAL_SEEN: Final = SEPARATOR.encode()
"""The client's only response to a refusal."""
INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
_AUTH: Final = "auth"

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<user>(?:[\x01-+\--<>-\x7f]|=2C|=3D)+))?,\x01(?P<pairs>(?:[^\x01]+\x01)*)\x01", re.DOTALL
)
_PAIR: Final = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[!-~ \t\r\n]+)")
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[-_.a-zA-Z0-9]+)")


@attrs.frozen
class BearerMessage:
    """The client's first message."""

    token: str = attrs.field(repr=False)
    user: str = ""
    """The user to act as; empty: that of the token."""
    extensions: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def parse(cls, message: Bytes) -> Self:
        """Read a message. Raises SaslAuthenticationError, which repeats nothing of it."""
        try:
            found = _MESSAGE.fullmatch(str(message, "utf-8"))
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise SaslAuthenticationError("Invalid OAUTHBEARER client first message")
        pairs: dict[str, str] = {}
        for text in found["pairs"].split(SEPARATOR)[:-1]:
            pair = _PAIR.fullmatch(text)
            if pair is None or pair["key"] in pairs:
                raise SaslAuthenticationError("Invalid OAUTHBEARER client first message: an extension is malformed or repeated")
            pairs[pair["key"]] = pair["value"]
        if _AUTH not in pairs:
            raise SaslAuthenticationError("Invalid OAUTHBEARER client first message: 'auth' not specified")
        bearer = _BEARER.fullmatch(pairs.pop(_AUTH))
        if bearer is None:
            raise SaslAuthenticationError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
        return cls(bearer["token"], (found["user"] or "").replace("=2C", ",").replace("=3D", "="), pairs)

    def encode(self) -> bytes:
        """Write the message. Raises SaslAuthenticationError, which does not repeat the token."""
        user = self.user.replace("=", "=3D").replace(",", "=2C")
        pairs = {_AUTH: f"Bearer {self.token}", **self.extensions}
        text = "".join(f"{key}={value}{SEPARATOR}" for key, value in pairs.items())
        message = f"n,{f'a={user}' if user else ''},{SEPARATOR}{text}{SEPARATOR}".encode()
        if type(self).parse(message) != self:
            raise SaslAuthenticationError("an extension is not valid, or is named auth")
        return message


def refusal(scopes: tuple[str, ...] = ()) -> str:
    """Return the server's response to a token that it does not accept. `scopes`: those that the token lacks."""
    if not scopes:
        return json.dumps({"status": INVALID_TOKEN}, separators=(",", ":"))
    return json.dumps({"status": INSUFFICIENT_SCOPE, "scope": " ".join(scopes)}, separators=(",", ":"))
