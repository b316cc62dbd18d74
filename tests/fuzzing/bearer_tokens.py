"""Messages of OAUTHBEARER with tokens, as clients send them before the server knows them.

A message is a login or ends in SaslAuthenticationError, nothing else, and the error does not repeat the token. A message that
was read is written and read as the same. Strict rules accept nothing that others refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import attrs
from triolog.protocol.errors import SaslAuthenticationError
from triolog.protocol.kafka.oauthbearer import BearerMessage
from triolog.server.access.tokens import ClaimRules, CompactToken, TokenUser, read_object

from tests.fuzzing.target import BrokenInvariantError, Target, require
from tests.support.tokens import CLAIMS, NOW_S, base64url, unsecured

ANY: Final = ClaimRules(
    issuer=None, audiences=(), scopes=(), clock_skew_s=30, principal_claim="sub", scope_claim="scope", are_signed=False
)
STRICT: Final = attrs.evolve(ANY, issuer="a", audiences=("b",), scopes=("c",), are_signed=True)
STRICT_CLAIMS: Final = {**CLAIMS, "iss": "a", "aud": "b", "scope": "c"}
LEAST_SHOWN_CHARS: Final = 20
"""Of a token: shorter ones may be part of any text."""


def feed(data: bytes) -> bool:
    try:
        message = BearerMessage.parse(data)
        require(BearerMessage.parse(message.encode()) == message, f"what was read is written as something else: {data.hex()}")
        token = CompactToken.parse(message.token)
        claims = read_object(token.payload, "payload")
    except SaslAuthenticationError:
        return False
    except Exception as exc:
        raise BrokenInvariantError(f"{type(exc).__name__} instead of SaslAuthenticationError for {data.hex()}") from exc
    user = _user(ANY, claims, message.token)
    require(user is not None or _user(STRICT, claims, message.token) is None, f"strict rules accept more: {data.hex()}")
    return user is not None


def _user(rules: ClaimRules, claims: dict[str, Any], token: str) -> TokenUser | None:
    try:
        user = rules.check(claims, NOW_S * 1000)
    except SaslAuthenticationError as exc:
        shown = len(token) >= LEAST_SHOWN_CHARS and token in exc.message
        require(not shown, f"an error repeats a token: {token}")
        return None
    except Exception as exc:
        raise BrokenInvariantError(f"{type(exc).__name__} instead of SaslAuthenticationError for {claims}") from exc
    require(bool(user.name.strip()) and user.expires_ms >= 1000 * (NOW_S - rules.clock_skew_s), f"an odd user: {user}")
    return user


def seeds() -> Iterator[bytes]:
    """Logins with claims of every kind, users and extensions."""
    for claims in (CLAIMS, STRICT_CLAIMS, {**CLAIMS, "nbf": 0, "aud": ["b", "c"]}, {"sub": "a", "exp": 2e9}):
        for header in ({}, {"kid": "1"}, {"typ": "JWT", "x5t": [1, {"a": None}]}):
            for token in (unsecured(claims, **header), unsecured(claims, alg="ES256", **header) + base64url(bytes(64))):
                yield BearerMessage(token).encode()
                yield BearerMessage(token, "al,i=ce", {"traceId": "1", "host": "h"}).encode()
    yield b"n,,\1host=h\1auth=bEARER   " + unsecured(json.loads(json.dumps(CLAIMS))).encode() + b"\1\1"


TARGET: Final = Target(
    name="bearer-tokens",
    feed=feed,
    seeds=seeds,
    modules=("triolog.protocol.kafka.oauthbearer", "triolog.server.access.tokens"),
    max_bytes=2048,
)
