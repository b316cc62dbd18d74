"""Accepts or refuses the tokens of OAUTHBEARER, by the configuration. Owner: the broker's security."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import unquote

import attrs

from ...protocol.errors import InvalidConfigError, SaslAuthenticationError
from ...protocol.extras import how_to_install
from ...protocol.kafka.oauthbearer import BearerMessage, refusal
from ..access.tokens import ClaimRules, CompactToken, InvalidTokenError, TokenUser, read_object
from ..config.listener_security import OAUTHBEARER, TokenAuthority
from ..storage.disk.filesystem import read_file
from ..system.clock import NowMs
from .log_manager import LogManager

if TYPE_CHECKING:
    from .signing_keys import SigningKeys

URL_KEY: Final = "sasl_oauthbearer_jwks_endpoint_url"
PACKAGES: Final = ("jwt", "cryptography", "h11")
"""Those of the extra `oauth`."""


class BearerDecision(NamedTuple):
    """The result for one message of a client: a user, or a refusal of the token."""

    user: str = ""
    rest_ms: int = 0
    """The rest of the token's life, at least 1: within the clock skew a token may be accepted after its expiry."""
    refusal: str = ""
    """The response to the client; empty for a user."""
    why: str = ""
    """The reason, for logs."""


@attrs.define(eq=False, repr=False)
class BearerTokens:
    """See the module."""

    _now_ms: NowMs
    rules: ClaimRules
    keys: SigningKeys | None
    """None: tokens have no signatures."""
    authority: TokenAuthority | None
    """The issuer inside this program, which may refuse tokens."""

    @classmethod
    async def open(cls, manager: LogManager) -> Self:
        """Read what the configuration names. A file of keys is there at the start. A URL need not respond then: this server may
        start before the one that it names. Raises InvalidConfigError, OSError."""
        config = manager.config
        keys = None if config.sasl_oauthbearer_unsecured_tokens else await _keys_of(manager)
        return cls(manager.now_ms, ClaimRules.of(config), keys, config.token_authority)

    async def decide(self, message: bytes) -> BearerDecision:
        """Process a client's first message. Raises SaslAuthenticationError for one that has another form, or that acts for
        another user than the token's."""
        read = BearerMessage.parse(message)
        try:
            user = await self.check(read.token)
        except InvalidTokenError as exc:
            return BearerDecision(refusal=refusal(exc.scopes), why=exc.message)
        if read.user not in ("", user.name):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from the token's principal name"
            )
        return BearerDecision(user.name, max(1, user.expires_ms - self._now_ms()))

    async def check(self, text: str) -> TokenUser:
        """Return the user of a token. Raises InvalidTokenError."""
        token = CompactToken.parse(text)
        if self.keys is not None:
            claims = read_object(await self.keys.verify(token), "payload")
        elif token.is_unsecured:
            claims = read_object(token.payload, "payload")
        else:
            raise InvalidTokenError("the token has a signature, which this server cannot verify")
        user = self.rules.check(claims, self._now_ms())
        if self.authority is not None and self.authority.refuses(user.name):
            raise InvalidTokenError("the test refuses tokens of this user")
        return user

    def note_login(self, name: str) -> None:
        """Report a login to the issuer inside this program."""
        if self.authority is not None:
            self.authority.note_login(name)


async def _keys_of(manager: LogManager) -> SigningKeys:
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise InvalidConfigError(f"{OAUTHBEARER} with signed tokens needs {' and '.join(missing)}: {how_to_install('oauth')}")
    from .signing_keys import MAX_JWKS_BYTES, SigningKeys, check_place, fetch, public_keys

    config, authority = manager.config, manager.config.token_authority
    refresh_s = config.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
    url = config.sasl_oauthbearer_jwks_endpoint_url
    if url is None:
        if authority is None:
            raise InvalidConfigError(
                f"sasl_enabled_mechanisms has {OAUTHBEARER}, and no key says which tokens are valid: set {URL_KEY}, "
                "or, in tests, sasl_oauthbearer_unsecured_tokens"
            )

        async def ask_authority() -> bytes:
            return authority.jwks()

        return SigningKeys("this program", ask_authority, 0.0, 0.0)
    parts = check_place(url, insecure=config.insecure)
    if parts.scheme != "file":
        keys = SigningKeys(url, partial(fetch, parts), refresh_s)
        await keys.refresh()
        return keys
    path, disk = unquote(parts.path), manager.disk

    async def read() -> bytes:
        return await disk.call(partial(read_file, disk.fs, path, max_bytes=MAX_JWKS_BYTES))

    try:
        public_keys(await read())
    except ValueError as exc:
        raise InvalidConfigError(f"{URL_KEY} = {url!r}: {exc}") from None
    keys = SigningKeys(url, read, refresh_s)
    await keys.refresh()
    return keys
