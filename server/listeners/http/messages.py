"""Requests and answers over HTTP, as values. Neither h11 nor trio is loaded."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpRequest(NamedTuple):
    """`path` and `query` are as they came, without the `?` between them. `headers` have names in small letters."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


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
