"""Building blocks of a view: a table of routes, each with its handler.

| created by | serves |
|---|---|
| `page("/topics", handler)` | `GET /topics`: the page with the value in it; `GET /api/topics`: the value as JSON |
| `data("/events", handler)` | `GET /api/events` only |
| `change("POST", "/topics", handler)` | `POST /api/topics`, with `--allow-changes` and the CSRF token |

A handler is an async function of a `Call` and returns a value for JSON, or an `HttpAnswer` (`events.event_stream`). It raises
`ApiError`; errors of the server become one. `{name}` in a path is one part of it, in `Call.path`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import unquote

import attrs

from .around.links import KnownLinks
from .errors import ApiError, BadParameterError
from .parameters import Parameters
from .sessions import LoggedIn, Sessions
from .settings import ConsoleSettings
from .watching.watcher import Watcher

MAX_CONFIRM_CHARS: Final = 1000


@attrs.define(eq=False, repr=False, kw_only=True)
class Call:
    """A request, with everything that a handler may use."""

    settings: ConsoleSettings
    sessions: Sessions
    watcher: Watcher
    """The connection in whose name it is done: the session's user's, or the console's own."""
    session: LoggedIn | None
    cookie: str
    path: Mapping[str, str]
    query: Parameters
    links: KnownLinks
    body: Mapping[str, Any] = attrs.field(factory=dict)

    def field(self, name: str, kind: type, default: Any = ...) -> Any:
        """A field of the body. Raises BadParameterError where it is missing or of another type."""
        value = self.body.get(name, default)
        if value is ... or (type(value) is not kind and value is not default):
            raise BadParameterError(name, f"a {kind.__name__} is needed")
        return value

    async def check_sees_statistics(self) -> None:
        """Check that the user may see the server's statistics. Links and control ports know no users, so this protects them.

        Raises the server's refusal, and ApiError while the server has never responded.
        """
        watcher = self.watcher
        await watcher.first_sample()
        if watcher.refused is not None:
            raise watcher.refused
        if watcher.moment is None:
            raise ApiError(503, "NO_ANSWER", f"{watcher.text} has not said who may see this: {watcher.status.reason}")

    async def check_may_change(self) -> None:
        """Links and control ports know no users: to change them is for whoever may alter configurations of the server. Raises
        what the server refuses, and what keeps it from an answer."""
        await self.check_sees_statistics()
        await self.watcher.admin.check_may_change()

    def check_confirmed(self, name: str) -> None:
        """Check that the request confirms a deletion with the name. Raises ApiError."""
        if self.body.get("confirm") != name:
            raise ApiError(400, "NOT_CONFIRMED", f'deleting {name} needs its name: {{"confirm": "{name}"}}')


Handler = Callable[[Call], Awaitable[Any]]


@attrs.frozen(kw_only=True)
class Route:
    """A row of a view's table of routes."""

    method: str
    pattern: str
    handler: Handler
    parameters: Collection[str] | None = ()
    """That it takes behind the `?`; None: it looks itself."""
    has_page: bool = False
    is_change: bool = False
    needs_login: bool = True
    """Whether it makes no sense before somebody has logged in, where that is wanted."""
    _matches: re.Pattern[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        expression = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(self.pattern))
        object.__setattr__(self, "_matches", re.compile(expression))

    def match(self, path: str) -> dict[str, str] | None:
        """The parts of a path that is this route's; None for another one."""
        found = self._matches.fullmatch(path)
        return None if found is None else {name: unquote(part) for name, part in found.groupdict().items()}


def page(pattern: str, handler: Handler, parameters: Collection[str] | None = (), *, needs_login: bool = True) -> Route:
    """A view: a page, and its value as JSON."""
    return Route(method="GET", pattern=pattern, handler=handler, parameters=parameters, has_page=True, needs_login=needs_login)


def data(pattern: str, handler: Handler, parameters: Collection[str] | None = ()) -> Route:
    """A value, or a stream of events, that views ask for."""
    return Route(method="GET", pattern=pattern, handler=handler, parameters=parameters)


def change(method: str, pattern: str, handler: Handler) -> Route:
    """Return a route that changes something on the server."""
    return Route(method=method, pattern=pattern, handler=handler, is_change=True)


def of_console(pattern: str, handler: Handler) -> Route:
    """Return a route that changes only the console: logging in and out."""
    return Route(method="POST", pattern=pattern, handler=handler, needs_login=False)
