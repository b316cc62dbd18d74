"""Building blocks of a view: a table of routes, each with its handler; the settings of the console; and query parameters, which
are checked when they are read. Every error names the parameter.

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
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

import attrs

from ...protocol.limits import INT32_MAX, INT64_MAX
from ...server.config.values import Address
from ..client.login import LoginConfig
from ..client.tls import TlsConfig
from .around.links import KnownLinks
from .errors import ApiError, BadParameterError
from .sessions import LoggedIn, Sessions
from .watching.watcher import Watcher

if TYPE_CHECKING:
    from .records.schemas import Schemas

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
            raise BadParameterError(name, f"a {kind.__name__} is required")
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
            raise ApiError(503, "NO_ANSWER", f"{watcher.text} cannot check permissions: {watcher.status.reason}")

    async def check_may_change(self) -> None:
        """Links and control ports know no users: to change them is for whoever may alter configurations of the server. Raises
        what the server refuses, and what keeps it from an answer."""
        await self.check_sees_statistics()
        await self.watcher.admin.check_may_change()

    def check_confirmed(self, name: str) -> None:
        """Check that the request confirms a deletion with the name. Raises ApiError."""
        if self.body.get("confirm") != name:
            raise ApiError(400, "NOT_CONFIRMED", f'deleting {name} needs its name. Send {{"confirm": "{name}"}}')


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


@attrs.frozen(kw_only=True)
class ConsoleSettings:
    """`triolog console`'s options. `login`: in whose name everybody looks; None where the server wants nobody, or each user
    logs in. `parent`: the process with which it ends; `listen_fd`: a socket of its that listens already."""

    server: tuple[str, int]
    listen: Address
    allow_changes: bool = False
    control: Address | None = None
    control_token: str | None = attrs.field(default=None, repr=False)
    forward_state_dir: str | None = None
    schemas: Schemas | None = None
    """Decodes values that begin with the id of a schema."""
    tls: TlsConfig | None = None
    login: LoginConfig | None = None
    parent: int | None = None
    listen_fd: int | None = None


MAX_PARAMETERS: Final = 50
MAX_TEXT_CHARS: Final = 1000
EXACT: Final = 2**53
"""From here on JavaScript's numbers leave integers out."""


def exact(number: int) -> int | str:
    """An offset or a time for JSON: as a string where a number would not be exact."""
    return number if -EXACT < number < EXACT else str(number)


class Parameters:
    """The parameters of one request."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    @classmethod
    def parse(cls, query: str) -> Parameters:
        """Raises BadParameterError."""
        try:
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS, errors="strict")
        except ValueError as exc:
            raise BadParameterError("query", f"cannot be read: {exc}") from None
        return cls(dict(pairs))

    def check_known(self, names: Collection[str]) -> None:
        """Raises BadParameterError for the first other one."""
        for name in self._values:
            if name not in names:
                known = f"Parameters: {', '.join(sorted(names))}" if names else "It takes none"
                raise BadParameterError(name[:100], f"no such parameter. {known}")

    def text(self, name: str, default: str = "", *, max_chars: int = MAX_TEXT_CHARS) -> str:
        value = self._values.get(name, default)
        if len(value) > max_chars:
            raise BadParameterError(name, f"has more than {max_chars} characters")
        return value

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        value = self._values.get(name) or default
        if value not in choices:
            raise BadParameterError(name, f"{value[:100]!r} is not one of {', '.join(choices)}")
        return value

    def integer(self, name: str, default: Any = None, *, least: int = 0, most: int = INT32_MAX) -> Any:
        """An integer within bounds; the default where it is missing or empty."""
        value = self._values.get(name, "")
        if not value:
            return default
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or not least <= int(value) <= most:
            raise BadParameterError(name, f"{value[:100]!r} is not an integer from {least} to {most}")
        return int(value)

    def offset(self, name: str) -> int | None:
        """An offset; None where it is missing."""
        found: int | None = self.integer(name, most=INT64_MAX)
        return found

    def flag(self, name: str) -> bool:
        return self.choice(name, ("0", "1"), "0") == "1"
