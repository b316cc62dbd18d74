"""SCRAM-SHA-256 and SCRAM-SHA-512 from the client's side, without sockets: see `scram` for the messages. Source: RFC 5802."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

import attrs

from ..errors import SaslAuthenticationError
from ..types import Bytes
from .scram import MIN_ITERATIONS, ScramMechanism

MOST_ITERATIONS: Final = 1_000_000
"""A server that asks for more keeps the client's processor busy, half a second for each million."""
HEADER: Final = "n,,"
"""No channel binding, and no other user to act for."""

_SERVER_FIRST: Final = re.compile(r"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[^,]+),i=(?P<iterations>[1-9][0-9]{0,8})(?:,.*)?")


@attrs.define(eq=False, repr=False)
class ScramClient:
    """One login: `first`, `final`, `check`. Raises SaslAuthenticationError; then it is over."""

    mechanism: ScramMechanism
    user: str
    password: str = attrs.field(repr=False)
    nonce: str
    """Fresh random text without commas."""
    _bare: str = ""
    _signed: bytes = b""
    _server_key: bytes = attrs.field(default=b"", repr=False)

    def first(self) -> bytes:
        """client-first."""
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self.nonce}"
        return f"{HEADER}{self._bare}".encode()

    def final(self, server_first: Bytes) -> bytes:
        """client-final. Takes some ms of CPU."""
        try:
            text = str(server_first, "utf-8")
            found = _SERVER_FIRST.fullmatch(text)
            salt = base64.b64decode(found["salt"], validate=True) if found else b""
        except (UnicodeDecodeError, binascii.Error):
            found = None
        if found is None or not found["nonce"].startswith(self.nonce) or len(found["nonce"]) == len(self.nonce):
            raise SaslAuthenticationError("the server's first SCRAM message cannot be read, or has another nonce")
        iterations = int(found["iterations"])
        if not MIN_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise SaslAuthenticationError(
                f"the server asks for {iterations} iterations, expected {MIN_ITERATIONS} to {MOST_ITERATIONS}"
            )
        mechanism = self.mechanism
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, self.password.encode(), salt, iterations)
        client_key = mechanism.mac(salted, b"Client Key")
        self._server_key = mechanism.mac(salted, b"Server Key")
        unsigned = f"c={base64.b64encode(HEADER.encode()).decode()},r={found['nonce']}"
        self._signed = f"{self._bare},{text},{unsigned}".encode()
        signature = mechanism.mac(mechanism.hash(client_key), self._signed)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: Bytes) -> None:
        """Whether the server knows the password, too: who does not is another one."""
        expected = b"v=" + base64.b64encode(self.mechanism.mac(self._server_key, self._signed))
        if not hmac.compare_digest(bytes(server_final), expected):
            raise SaslAuthenticationError("the server's signature is wrong: it does not know the user's password")
