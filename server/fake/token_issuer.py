"""Issues the bearer tokens of a broker in a test, and counts the logins with them (OAUTHBEARER).

Tokens are signed by ES256 with keys of this process, which can be rotated, or are unsecured where the broker accepts those.
Their times are the broker's, so a token expires when a test moves the clock. PyJWT and cryptography are loaded with the first
key.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import attrs

from ..system.clock import NowMs

ISSUER: Final = "triolog"
LIFETIME_S: Final = 3600.0
ALGORITHM: Final = "ES256"


@attrs.define(eq=False, repr=False)
class TokenIssuer:
    """Owner of the keys. Methods belong to the broker's thread."""

    now_ms: NowMs
    has_keys: bool = True
    """False: tokens are unsecured."""
    _logins: Counter[str] = attrs.field(factory=Counter)
    _keys: dict[str, Any] = attrs.field(factory=dict)
    """Private keys by key id; the newest one signs."""
    _rotations: int = 0
    _refused: set[str] = attrs.field(factory=set)
    _jwks: bytes = b""

    def issue(
        self,
        principal: str,
        *,
        lifetime_s: float = LIFETIME_S,
        scope: str | None = None,
        audience: str | None = None,
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a token. `claims` are added, or replace others; None removes one. `lifetime_s` may be negative."""
        now_s = self.now_ms() / 1000
        said = {"iss": ISSUER, "sub": principal, "iat": now_s, "exp": now_s + lifetime_s, "scope": scope, "aud": audience}
        payload = {name: value for name, value in {**said, **(claims or {})}.items() if value is not None}
        if not self.has_keys:
            return f"{_base64url({'alg': 'none'})}.{_base64url(payload)}."
        import jwt

        if not self._keys:
            self.rotate_keys()
        key_id = next(reversed(self._keys))
        return jwt.encode(payload, self._keys[key_id], ALGORITHM, {"kid": key_id})

    def rotate_keys(self, *, keep_old: bool = False) -> None:
        """Sign by a new key. Tokens of earlier keys are invalid from now on, unless `keep_old`. Raises ValueError where tokens
        are unsecured."""
        if not self.has_keys:
            raise ValueError("tokens are unsecured here, and have no keys")
        from cryptography.hazmat.primitives.asymmetric import ec
        from jwt.algorithms import ECAlgorithm

        if not keep_old:
            self._keys.clear()
        self._rotations += 1
        self._keys[f"{ISSUER}-{self._rotations}"] = ec.generate_private_key(ec.SECP256R1())
        keys = [
            {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig", "alg": ALGORITHM}
            for key_id, key in self._keys.items()
        ]
        self._jwks = json.dumps({"keys": keys}).encode()

    def refuse(self, principal: str) -> None:
        """Let the broker refuse all tokens of a user, until `accept`."""
        self._refused.add(principal)

    def accept(self, principal: str) -> None:
        """Let the broker accept them again."""
        self._refused.discard(principal)

    def logins(self) -> dict[str, int]:
        """Return how often each user has logged in with a token, renewals included."""
        return dict(self._logins)

    def reset(self) -> None:
        """Accept every user again, and count from 0. Keys stay, so tokens stay valid."""
        self._refused.clear()
        self._logins.clear()

    def copy(self, now_ms: NowMs) -> TokenIssuer:
        """Return another issuer with the same keys, by another clock. It counts from 0."""
        return TokenIssuer(now_ms, self.has_keys, Counter(), dict(self._keys), self._rotations, set(self._refused), self._jwks)

    # ---- for the broker --------------------------------------------------------------------------------------------------

    def jwks(self) -> bytes:
        """Return the public keys, as a JSON Web Key Set."""
        if not self._keys:
            self.rotate_keys()
        return self._jwks

    def refuses(self, principal: str) -> bool:
        """Return whether the broker refuses tokens of this user."""
        return principal in self._refused

    def note_login(self, principal: str) -> None:
        """Count a login."""
        self._logins[principal] += 1


def _base64url(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
