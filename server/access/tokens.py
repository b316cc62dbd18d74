"""JSON Web Tokens of users who log in by OAUTHBEARER: their form, and the claims that they need. No sockets, no files, no
cryptography: `logs/signing_keys` verifies signatures.

Rules are those of Kafka's BrokerJwtValidator, also for unsecured tokens: a token has an expiry and a principal. A signed one
also has the time of its issue, and if it names audiences, one of them is expected here. Claims of a signed token are read after
its signature. Source: RFC 7515, RFC 7519, RFC 8725, KIP-255, KIP-768, KIP-1139.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn, Self

import attrs

from ...protocol.errors import SaslAuthenticationError
from ...protocol.limits import KIB
from ..config.broker_config import BrokerConfig

MAX_TOKEN_CHARS: Final = 64 * KIB
"""More than HTTP servers accept in a header, where most tokens travel."""
MAX_HEADER_CHARS: Final = 8 * KIB
"""It is read before the signature."""
MAX_PRINCIPAL_CHARS: Final = 1024
MAX_SECONDS: Final = 2**43
"""Of a time since the epoch: its milliseconds fit into 2**53."""
UNSECURED: Final = "none"
"""The algorithm of a token without a signature."""


class InvalidTokenError(SaslAuthenticationError):
    """The server does not accept a token. The message, which has nothing secret, is for logs; the client gets less."""

    def __init__(self, why: str, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.scopes = scopes
        """Those that the token lacks."""


class TokenUser(NamedTuple):
    """The user of an accepted token, and the end of the token in ms since the epoch."""

    name: str
    expires_ms: int


@attrs.frozen(repr=False)
class CompactToken:
    """The three parts of a token, of which only the header is read."""

    text: str
    header: Mapping[str, Any]
    payload: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidTokenError."""
        if len(text) > MAX_TOKEN_CHARS:
            raise InvalidTokenError(f"the token has {len(text)} characters, at most {MAX_TOKEN_CHARS} are accepted")
        parts = text.split(".")
        if len(parts) != 3 or len(parts[0]) > MAX_HEADER_CHARS:
            raise InvalidTokenError("the token is not a JSON Web Token in three parts with a short header")
        header = read_object(parts[0], "header")
        if not isinstance(header.get("alg"), str) or not isinstance(header.get("kid", ""), str):
            raise InvalidTokenError("the token's header has no algorithm, or a key id that is not text")
        if "crit" in header:
            raise InvalidTokenError("the token's header has critical extensions")
        return cls(text, header, parts[1], parts[2])

    @property
    def algorithm(self) -> str:
        return str(self.header["alg"])

    @property
    def key_id(self) -> str | None:
        return self.header.get("kid")

    @property
    def is_unsecured(self) -> bool:
        return self.algorithm == UNSECURED and not self.signature


@attrs.frozen(kw_only=True)
class ClaimRules:
    """The claims that a token needs."""

    issuer: str | None
    audiences: tuple[str, ...]
    scopes: tuple[str, ...]
    clock_skew_s: int
    principal_claim: str
    scope_claim: str
    are_signed: bool
    """Whether tokens have signatures."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        return cls(
            issuer=config.sasl_oauthbearer_expected_issuer,
            audiences=config.sasl_oauthbearer_expected_audience,
            scopes=config.sasl_oauthbearer_required_scope,
            clock_skew_s=config.sasl_oauthbearer_clock_skew_seconds,
            principal_claim=config.sasl_oauthbearer_sub_claim_name,
            scope_claim=config.sasl_oauthbearer_scope_claim_name,
            are_signed=not config.sasl_oauthbearer_unsecured_tokens,
        )

    def check(self, claims: Mapping[str, Any], now_ms: int) -> TokenUser:
        """Return the user of a token with these claims. Raises InvalidTokenError."""
        expires_s = self._check_times(claims, now_ms / 1000)
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidTokenError("the token is of another issuer than sasl_oauthbearer_expected_issuer")
        self._check_audience(_texts(claims, "aud"))
        granted = {scope for text in _texts(claims, self.scope_claim) for scope in text.split()}
        if missing := tuple(scope for scope in self.scopes if scope not in granted):
            raise InvalidTokenError(f"the token lacks scope {' '.join(missing)}", missing)
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_PRINCIPAL_CHARS:
            raise InvalidTokenError(f"the token has no principal: claim {self.principal_claim}")
        return TokenUser(name, int(expires_s * 1000))

    def _check_times(self, claims: Mapping[str, Any], now_s: float) -> float:
        """Return the token's expiry, in seconds since the epoch."""
        expires_s, begins_s = _seconds(claims, "exp"), _seconds(claims, "nbf")
        if expires_s is None:
            raise InvalidTokenError("the token has no expiry: claim exp")
        if _seconds(claims, "iat") is None and self.are_signed:
            raise InvalidTokenError("the token has no time of issue: claim iat")
        if now_s >= expires_s + self.clock_skew_s:
            raise InvalidTokenError(f"the token has expired: exp={expires_s:.0f} now={now_s:.0f}")
        if begins_s is not None and now_s < begins_s - self.clock_skew_s:
            raise InvalidTokenError(f"the token is not yet valid: nbf={begins_s:.0f} now={now_s:.0f}")
        return expires_s

    def _check_audience(self, audiences: list[str]) -> None:
        if self.audiences:
            if not set(audiences) & set(self.audiences):
                raise InvalidTokenError("the token is for another audience than sasl_oauthbearer_expected_audience")
        elif audiences and self.are_signed:
            raise InvalidTokenError("the token names an audience, and sasl_oauthbearer_expected_audience is not set")


def read_object(part: str | bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in a part of a token: in base64url, or as the bytes that were there. Raises InvalidTokenError."""
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) if isinstance(part, str) else part
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidTokenError(f"the token's {what} is not a JSON object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise InvalidTokenError(f"the token's claim {name} is not a time")
    return value


def _texts(claims: Mapping[str, Any], name: str) -> list[str]:
    """The texts in a claim that is a text or a list."""
    value = claims.get(name)
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidTokenError(f"the token's claim {name} is neither a text nor a list of texts")
    return texts
