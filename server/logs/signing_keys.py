"""Owner of the keys that verify signatures of tokens: a JSON Web Key Set, from a file, a URL or the program itself.

Keys are read at the start, when they are older than `sasl_oauthbearer_jwks_endpoint_refresh_ms`, and when a token names an
unknown key, but then at most once in LEAST_INTERVAL_S. Only logins wait for that. When a read fails, the earlier keys stay.

Only public keys are used, and each only with algorithms of its kind: a token that is signed by HMAC with a public key is
refused (RFC 8725, 2.1). Source: RFC 7517, RFC 7518, RFC 8037; Kafka's RefreshingHttpsJwks. Cryptography is PyJWT's, loaded with
this module: brokers without OAUTHBEARER do not load it.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import attrs
import h11
import jwt
import trio
from jwt.api_jws import PyJWS

from ...protocol.errors import InvalidConfigError
from ...protocol.limits import KIB
from ..access.tokens import CompactToken, InvalidTokenError
from ..config.values import is_loopback

LOGGER: Final = logging.getLogger(__name__)

MAX_JWKS_BYTES: Final = 256 * KIB
MAX_KEYS: Final = 100
FETCH_TIMEOUT_S: Final = 10.0
"""From the look-up of the name to the last byte."""
LEAST_INTERVAL_S: Final = 10.0
"""Between two reads, so that tokens with invented key ids cause no more."""
CHUNK_BYTES: Final = 16 * KIB
MIN_RSA_BITS: Final = 2048
SCHEMES: Final = ("file", "https", "http")

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_ALGORITHMS: Final = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
"""By type and curve of a key."""
ReadKeys = Callable[[], Awaitable[bytes]]
"""Raises OSError, ValueError, TooSlowError, h11.ProtocolError."""


@attrs.frozen
class SigningKey:
    """A public key."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any = attrs.field(repr=False)


@attrs.define(eq=False, repr=False)
class SigningKeys:
    """See the module. Owner: the broker's security."""

    place: str
    """Where the keys are read, for log lines."""
    _read: ReadKeys
    _refresh_s: float
    _least_interval_s: float = LEAST_INTERVAL_S
    _keys: tuple[SigningKey, ...] = ()
    _read_at: float = float("-inf")
    _tried_at: float = float("-inf")
    _lock: trio.Lock = attrs.field(factory=trio.Lock)

    async def verify(self, token: CompactToken) -> bytes:
        """Return the payload of a token with a valid signature. Raises InvalidTokenError."""
        if trio.current_time() - self._read_at >= self._refresh_s:
            await self.refresh()
        key = self._key_of(token)
        if key is None:
            await self.refresh()
            key = self._key_of(token)
        if key is None:
            raise InvalidTokenError(
                f"no key of {self.place} verifies {token.algorithm[:20]!r} kid={(token.key_id or '')[:100]!r}"
            )
        try:
            payload: bytes = PyJWS().decode_complete(token.text, key.key, algorithms=[token.algorithm])["payload"]
        except (jwt.PyJWTError, ValueError, TypeError):
            raise InvalidTokenError("the token's signature is wrong") from None
        return payload

    def _key_of(self, token: CompactToken) -> SigningKey | None:
        """The key that a token names, or the only one that fits a token that names none."""
        fitting = [each for each in self._keys if token.algorithm in each.algorithms]
        if token.key_id is not None:
            fitting = [each for each in fitting if each.key_id == token.key_id]
        return fitting[0] if len(fitting) == 1 else None

    async def refresh(self) -> None:
        """Read the keys, unless that was tried a moment ago, also by a login that this one has waited for."""
        async with self._lock:
            if trio.current_time() - self._tried_at < self._least_interval_s:
                return
            self._tried_at = trio.current_time()
            try:
                self._keys = public_keys(await self._read())
            except (OSError, ValueError, trio.TooSlowError, h11.ProtocolError) as exc:
                why = "it takes too long" if isinstance(exc, trio.TooSlowError) else exc
                LOGGER.warning("cannot read signing keys place=%s kept=%d: %s", self.place, len(self._keys), why)
            else:
                self._read_at = trio.current_time()
                LOGGER.debug("signing keys read place=%s keys=%d", self.place, len(self._keys))

    @property
    def count(self) -> int:
        """Return the number of usable keys."""
        return len(self._keys)


def public_keys(data: bytes) -> tuple[SigningKey, ...]:
    """Return the usable keys of a key set. Raises ValueError if there is none."""
    try:
        found = json.loads(data.decode())["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise ValueError("it is not a JSON Web Key Set")
    keys = [key for each in found[:MAX_KEYS] if isinstance(each, dict) and (key := _public_key(each)) is not None]
    if not keys:
        raise ValueError("it has no public RSA, EC or Ed25519 key for signatures")
    return tuple(keys)


def _public_key(told: dict[str, Any]) -> SigningKey | None:
    """None for a key that is for something else, private, weak or broken."""
    kind, curve, key_id = told.get("kty"), told.get("crv"), told.get("kid")
    try:
        algorithms = _ALGORITHMS.get((kind, None if kind == "RSA" else curve))  # type: ignore[arg-type]
        if algorithms is None or "d" in told or told.get("use", "sig") != "sig" or not isinstance(key_id, str | None):
            return None
        if (only := told.get("alg")) is not None:
            algorithms &= {only}
        if not algorithms:
            return None
        key = jwt.PyJWK(told, min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return None if kind == "RSA" and key.key_size < MIN_RSA_BITS else SigningKey(key_id, algorithms, key)


def check_place(place: str, *, insecure: bool) -> SplitResult:
    """Return the parts of the URL of a key set. Raises InvalidConfigError."""
    parts = urlsplit(place)
    try:
        is_complete = bool(parts.path if parts.scheme == "file" else parts.hostname) and parts.port != 0
    except ValueError:
        is_complete = False
    if parts.scheme not in SCHEMES or not is_complete or parts.username is not None:
        raise InvalidConfigError(
            f"sasl_oauthbearer_jwks_endpoint_url = {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()!r}: "
            "use https://HOST/PATH, file:///PATH, or http:// on this machine"
        )
    if parts.scheme == "http" and not insecure and not is_loopback(parts.hostname or ""):
        raise InvalidConfigError(
            f"sasl_oauthbearer_jwks_endpoint_url = {place!r}: others could change the keys on the way. "
            "Use https, or allow it with insecure = true"
        )
    return parts


async def fetch(parts: SplitResult) -> bytes:
    """Return the body of a URL with http or https, at most MAX_JWKS_BYTES. It follows no redirection. Raises OSError,
    ValueError, TooSlowError, h11.ProtocolError."""
    host = parts.hostname or ""
    with trio.fail_after(FETCH_TIMEOUT_S):
        stream: trio.abc.Stream
        if parts.scheme == "https":
            context = await trio.to_thread.run_sync(ssl.create_default_context)  # reads the system's CAs
            stream = await trio.open_ssl_over_tcp_stream(host, parts.port or 443, https_compatible=True, ssl_context=context)
        else:
            stream = await trio.open_tcp_stream(host, parts.port or 80)
        async with stream:
            try:
                return await _get(stream, parts)
            except trio.BrokenResourceError as exc:
                raise ConnectionError(str(exc.__cause__ or exc)) from exc


async def _get(stream: trio.abc.Stream, parts: SplitResult) -> bytes:
    connection, body = h11.Connection(h11.CLIENT), bytearray()
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = [("host", parts.netloc), ("accept", "application/json"), ("connection", "close")]
    request = connection.send(h11.Request(method="GET", target=target, headers=headers)) or b""
    await stream.send_all(request + (connection.send(h11.EndOfMessage()) or b""))
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(CHUNK_BYTES)))
        elif isinstance(event, h11.Response) and event.status_code != 200:
            raise ValueError(f"the response has status {event.status_code}, expected 200")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_JWKS_BYTES:
                raise ValueError(f"the response has more than {MAX_JWKS_BYTES} bytes")
    return bytes(body)
