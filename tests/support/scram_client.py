"""The client's side of SCRAM, written from RFC 5802 and not from the server's code."""

from __future__ import annotations

import base64
import hashlib
import hmac

import attrs


@attrs.define
class ScramClient:
    """One login: `first`, `final`, then `check`."""

    algorithm: str
    user: str
    password: str
    nonce: str = "fyko+d2lbbFgONRv9qkxdawL"
    header: str = "n,,"
    _first_bare: str = ""
    _salted: bytes = b""
    _signed: bytes = b""

    def first(self) -> bytes:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self.nonce}"
        return f"{self.header}{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        self._salted = hashlib.pbkdf2_hmac(self.algorithm, self.password.encode(), salt, iterations)
        without_proof = f"c={base64.b64encode(self.header.encode()).decode()},r={fields['r']}"
        self._signed = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        key = self._mac(self._salted, b"Client Key")
        signature = self._mac(hashlib.new(self.algorithm, key).digest(), self._signed)
        proof = (int.from_bytes(key) ^ int.from_bytes(signature)).to_bytes(len(key))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> bool:
        """Whether the server knows the password, too."""
        expected = self._mac(self._mac(self._salted, b"Server Key"), self._signed)
        return server_final == b"v=" + base64.b64encode(expected)

    def _mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self.algorithm).digest()
