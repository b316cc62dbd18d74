"""Decides which HTTP requests get a response: those of programs do, those that a foreign page makes a browser send do not.

| check | the server refuses a request | status |
|---|---|---|
| `Host` | with another name, on an address of this machine only: the name may point here by DNS rebinding | 403 |
| `Origin`, `Sec-Fetch-Site` | when a page of another site sends it | 403 |
| `Content-Type` | when it changes something and is not one of `types`, which no foreign page sends by itself | 415 |
| `Authorization` | without the token as `Bearer`, if the address requires one | 401 |

Requests and answers are values. Neither h11 nor trio is loaded.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from ....protocol.errors import InvalidConfigError
from ...config.values import Address, is_loopback

READING: Final = ("GET", "HEAD")
WITHOUT_BODY: Final = (*READING, "DELETE")
"""Of these a browser asks before it sends the last one for another site."""
OF_THIS_SITE: Final = ("same-origin", "none")
MIN_TOKEN_CHARS: Final = 16
MAX_TOKEN_BYTES: Final = 4096


@attrs.frozen
class HttpAccess:
    """The access rules of one address."""

    is_loopback: bool = True
    token: str | None = attrs.field(default=None, repr=False)
    names: frozenset[str] = frozenset()
    """Of this machine, in small letters. With them `Host` is checked also where other machines reach the address."""
    accepts_untyped: bool = False
    """Whether a change without `Content-Type` is accepted, as curl -X POST, Java and Go send it. A page can have a browser send
    one, too, but then its Origin is beside it."""
    more_types: tuple[str, ...] = ()
    """Content types of a change beside JSON's, in small letters. No page can have a browser send them without asking first."""
    takes_links: bool = False
    """Whether a link on another site may lead here: to a page that nobody else can read, or show inside his."""

    @classmethod
    def of(cls, address: Address, token: str | None = None) -> HttpAccess:
        return cls(is_loopback(address.host), token)

    def refusal(self, request: HttpRequest) -> HttpAnswer | None:
        """Why a request is not answered; None when it is."""
        headers = request.headers
        host = headers.get("host", "")
        if (self.is_loopback or self.names) and host and not self._is_of_this_machine(host):
            return HttpAnswer.text(403, f"Host {host[:100]!r} is not a name of this machine. Use its address")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return HttpAnswer.text(403, "requests of other sites are refused")
        if headers.get("sec-fetch-site", "none").lower() not in OF_THIS_SITE and not (self.takes_links and _is_link(request)):
            return HttpAnswer.text(403, "requests of other sites are refused")
        changes = request.method not in WITHOUT_BODY or bool(request.body)
        content_type = headers.get("content-type", JSON if self.accepts_untyped else "").partition(";")[0].strip().lower()
        if changes and content_type != JSON and content_type not in self.more_types:
            return HttpAnswer.text(415, f"a {request.method} needs Content-Type: {JSON}")
        if self.token is not None and not _has_token(headers.get("authorization", ""), self.token):
            answer = HttpAnswer.text(401, "Authorization: Bearer TOKEN is missing, or has another token")
            return answer._replace(headers=(("www-authenticate", "Bearer"),))
        return None

    def _is_of_this_machine(self, host: str) -> bool:
        """Of an address, or of a name that nobody else can make point here."""
        name, colon, port = host.rpartition(":")
        name = (name if colon and port.isdigit() else host).removeprefix("[").removesuffix("]").lower().rstrip(".")
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == "localhost" or name.endswith(".localhost") or name in self.names
        return True


def _is_link(request: HttpRequest) -> bool:
    """Return whether the browser says that a user has followed a link, and shows the page as a top-level document."""
    headers = request.headers
    return (
        request.method == "GET" and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )


def _has_token(authorization: str, token: str) -> bool:
    scheme, _, said = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(said.strip().encode(), token.encode())


def read_token(path: str) -> str:
    """The token in a file. Raises InvalidConfigError, which does not repeat it."""
    try:
        with Path(path).open("rb") as stream:
            token = stream.read(MAX_TOKEN_BYTES + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it has something else than ASCII"
        raise InvalidConfigError(f"cannot read a token from {path}: {why}") from None
    if not MIN_TOKEN_CHARS <= len(token) <= MAX_TOKEN_BYTES or not token.isprintable() or " " in token:
        raise InvalidConfigError(f"{path} has no token of at least {MIN_TOKEN_CHARS} characters without spaces")
    return token


TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


Receive = Callable[[], Awaitable[bytes]]


class HttpRefusalError(Exception):
    """A request is answered with this status, and with a code of Confluent's REST Proxy."""

    def __init__(self, status: int, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code or status


class HttpRequest(NamedTuple):
    """`path` and `query` are as they came, without the `?` between them. `headers` have names in small letters. `peer` is the
    address of the client, HOST:PORT."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes
    peer: str = ""
    receive: Receive | None = None
    """Where the listener hands over requests without their bodies: returns the next piece, empty at the end. Raises
    HttpRefusalError."""


Send = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body, and waits until the kernel has taken it."""
Stream = Callable[[Send], Awaitable[None]]
"""Sends a body piece by piece. It is cancelled when the peer closes, takes nothing, or the listener stops."""


class HttpAnswer(NamedTuple):
    """A response to an HTTP request. With a `stream`, that sends the body, and `body` is ignored."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    stream: Stream | None = None

    @classmethod
    def text(cls, status: int, text: str) -> HttpAnswer:
        """Return a response of one or more lines of text for people."""
        return cls(status, f"{text}\n".encode())

    @classmethod
    def json(cls, status: int, value: Any) -> HttpAnswer:
        """A document for programs."""
        return cls(status, json.dumps(value).encode() + b"\n", JSON)


Answer = Callable[[HttpRequest], Awaitable[HttpAnswer]]
"""Answers a request. What it raises is logged, and the peer gets 500."""
