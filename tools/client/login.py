"""The credentials of a client, a user and a password or a bearer token, and their `authenticate` calls. No sockets, no trio."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from ...protocol.errors import SaslAuthenticationError
from ...protocol.kafka.oauthbearer import OAUTHBEARER, REFUSAL_SEEN, BearerMessage
from ...protocol.kafka.scram import ScramClient, ScramMechanism
from ...protocol.native.messages import AuthenticateRequest, AuthenticateResponse, HelloResponse

PLAIN: Final = "PLAIN"
SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
BEST_FIRST: Final = (ScramMechanism.SCRAM_SHA_512.sasl_name, ScramMechanism.SCRAM_SHA_256.sasl_name, PLAIN)
NONCE_BYTES: Final = 20
RENEWED_AT: Final = 0.85
"""Of a login's time: as early as Kafka's clients may renew theirs."""

LoginSteps = Generator[AuthenticateRequest, AuthenticateResponse, int]
"""Yields requests, is sent their answers, and returns for how many ms the login holds, 0 for ever."""


@attrs.frozen
class PasswordFile:
    """A password that is read from a file at every login, so that one that has been renewed is used."""

    path: str
    secret: ClassVar[str] = "password"

    def __call__(self) -> str:
        """Raises SaslAuthenticationError."""
        try:
            found = Path(self.path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
            raise SaslAuthenticationError(f"cannot read the {self.secret} from {self.path}: {why}") from None
        if not found:
            raise SaslAuthenticationError(f"the {self.secret} in {self.path} is empty")
        return found


@attrs.frozen
class TokenFile(PasswordFile):
    """A bearer token that is read from a file at every login, so that a renewed one is used."""

    secret: ClassVar[str] = "token"


@attrs.frozen(kw_only=True)
class LoginConfig:
    """The credentials of a user: a name with a password, or a bearer token (OAUTHBEARER). A password itself (PLAIN) is sent
    over TLS only, and a token without TLS only if `mechanism` is OAUTHBEARER."""

    user: str = ""
    """Name of the user; empty with a token."""
    password: str | Callable[[], str] | None = attrs.field(default=None, repr=False)
    """The password, or a function that returns it, which is called at every login."""
    token: str | Callable[[], str] = attrs.field(default="", repr=False)
    """The token, or a function that returns it, which is called at every login and so at every renewal."""
    extensions: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    """Sent with a token (KIP-342), such as `{"logicalCluster": "lkc-1"}`."""
    mechanism: str | None = None
    """SASL mechanism. None: the best one that the server has."""

    def __attrs_post_init__(self) -> None:
        if bool(self.token) == bool(self.user) or bool(self.user) == (self.password is None):
            raise ValueError("a login has a user with a password, or a token, and not both")
        if self.token and self.mechanism not in (None, OAUTHBEARER):
            raise ValueError(f"a token is for {OAUTHBEARER}, not for {self.mechanism}")

    @property
    def name(self) -> str:
        """Return the user as errors name it. The name in a token is for the server to read."""
        return f"user {self.user}" if self.user else "a client with a token"

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Return the mechanisms that it can use, best first."""
        possible = (OAUTHBEARER,) if self.token else BEST_FIRST
        return possible if self.mechanism is None else (self.mechanism,)

    def read_password(self) -> str:
        """Return the present password."""
        return self.password() if callable(self.password) else self.password or ""

    def read_token(self) -> str:
        """Return the present token."""
        return self.token() if callable(self.token) else self.token


def login_steps(login: LoginConfig | None, hello: HelloResponse, *, is_encrypted: bool) -> LoginSteps:
    """Log in, or renew a login. Raises SaslAuthenticationError where that cannot be, before anything secret is sent."""
    mechanism = _mechanism(login, hello.sasl_mechanisms, is_encrypted=is_encrypted)
    if login is None or mechanism is None:
        return 0
    if mechanism == PLAIN:
        answer = yield AuthenticateRequest(PLAIN, f"\0{login.user}\0{login.read_password()}".encode())
        return answer.session_lifetime_ms
    if mechanism == OAUTHBEARER:
        answer = yield AuthenticateRequest(OAUTHBEARER, BearerMessage(login.read_token(), "", login.extensions).encode())
        if not answer.done:
            yield AuthenticateRequest(OAUTHBEARER, REFUSAL_SEEN)
            raise SaslAuthenticationError("the server has refused the token, and does not end the login")
        return answer.session_lifetime_ms
    exchange = ScramClient(SCRAM[mechanism], login.user, login.read_password(), secrets.token_urlsafe(NONCE_BYTES))
    answer = yield AuthenticateRequest(mechanism, exchange.first())
    answer = yield AuthenticateRequest(mechanism, exchange.final(answer.data))
    exchange.check(answer.data)
    if not answer.done:
        raise SaslAuthenticationError("the server requires more steps than SCRAM has")
    return answer.session_lifetime_ms


def _mechanism(login: LoginConfig | None, offered: tuple[str, ...], *, is_encrypted: bool) -> str | None:
    if login is None:
        if offered:
            raise SaslAuthenticationError(f"the server requires a login, by {', '.join(offered)}. No user is given")
        return None
    if not offered:
        raise SaslAuthenticationError(f"{login.name} cannot log in: the server has no logins")
    wanted = login.mechanisms
    found = next((name for name in wanted if name in offered and name in (*BEST_FIRST, OAUTHBEARER)), None)
    if found is None:
        raise SaslAuthenticationError(f"the server offers {', '.join(offered)}, the client has {', '.join(wanted)}")
    if found == PLAIN and not is_encrypted:
        raise SaslAuthenticationError("the client sends no password without TLS, and the server offers nothing else")
    if found == OAUTHBEARER and not is_encrypted and login.mechanism is None:
        raise SaslAuthenticationError(f"the client sends no token without TLS. Allow it with mechanism={OAUTHBEARER!r}")
    return found
