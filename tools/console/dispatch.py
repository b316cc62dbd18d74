"""Routes each HTTP request to its response: a page, its JSON twin, a stream of events, a file, or an error.

Every page is the same shell with its first value inside, so that the browser sends no second request. A page runs only our own
files (`Content-Security-Policy`), and everything from records is data. Those files are read once; their paths have a hash of
all of them, so browsers keep them indefinitely and never mix two versions.

A view is added by a line in `ROUTES`, and one in `static/app.js`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs

from ...protocol.errors import RequestError, TriologError
from ...server.listeners.http.access import JSON, HttpAccess, HttpAnswer, HttpRequest
from .around import forward, testing, wear
from .around.links import KnownLinks
from .errors import ApiError, login_required, of_server
from .routes import Call, ConsoleSettings, Parameters, Route
from .sessions import LoggedIn, Sessions
from .views import groups, overview, records, topics, transactions
from .watching.watcher import Watcher

ROUTES: Final[tuple[Route, ...]] = (
    *overview.ROUTES,
    *topics.ROUTES,
    *topics.TOPIC_ROUTES,
    *records.ROUTES,
    *records.PRODUCE_ROUTES,
    *records.WALK_ROUTES,
    *groups.ROUTES,
    *transactions.ROUTES,
    *overview.CONNECTIONS_ROUTES,
    *overview.SIGN_IN_ROUTES,
    *wear.ROUTES,
    *forward.ROUTES,
    *testing.ROUTES,
)


API: Final = "/api"
STATIC: Final = "/static/"
ICON: Final = "/favicon.ico"
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
NO_STORE: Final = ("cache-control", "no-store")
HTML: Final = "text/html; charset=utf-8"
READING: Final = ("GET", "HEAD")


@attrs.define(eq=False, repr=False, kw_only=True)
class Dispatch:
    """Owner: the console's process."""

    settings: ConsoleSettings
    access: HttpAccess
    sessions: Sessions
    watcher: Watcher
    """The console's own."""
    static: StaticFiles
    links: KnownLinks = attrs.field(factory=KnownLinks)
    routes: Sequence[Route] = ROUTES

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answers a request of the listener."""
        found = await self._answer(request)
        headers = found.headers if any(name == "cache-control" for name, _ in found.headers) else (*found.headers, NO_STORE)
        return found._replace(headers=(*headers, *HEADERS))

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        if (refused := self.access.refusal(request)) is not None:
            return refused
        if request.path == ICON:
            request = request._replace(path=f"{self.static.base}icon.svg")
        if request.path.startswith(STATIC):
            if request.method not in READING:
                return HttpAnswer.text(405, "files are read with GET")
            return self.static.answer(request)
        if request.path == API or request.path.startswith(f"{API}/"):
            return await self._answer_api(request)
        return await self._answer_page(request)

    # ---- JSON ----------------------------------------------------------------------------------------------------------

    async def _answer_api(self, request: HttpRequest) -> HttpAnswer:
        cookie = self.sessions.cookie_of(request.headers)
        try:
            route, path = self._route(request.method, request.path.removeprefix(API) or "/")
            if route.method not in READING:
                self._check_change(route, cookie, request)
            value = await self._value(route, path, cookie or "", request)
        except ApiError as exc:
            return _json(exc.status, exc.to_json())
        return value if isinstance(value, HttpAnswer) else _json(200, value)

    def _route(self, method: str, path: str, *, is_page: bool = False) -> tuple[Route, dict[str, str]]:
        """Raises ApiError."""
        wanted = "GET" if method == "HEAD" else method
        allowed = set()
        for route in self.routes:
            parts = None if is_page and not route.has_page else route.match(path)
            if parts is None:
                continue
            if route.method == wanted:
                return route, parts
            allowed.add(route.method)
        if allowed:
            raise ApiError(405, "METHOD_NOT_ALLOWED", f"{method} {path}: use {', '.join(sorted(allowed))}")
        raise ApiError(404, "NOT_FOUND", f"{path}: no such {'page' if is_page else 'call'}")

    def _check_change(self, route: Route, cookie: str | None, request: HttpRequest) -> None:
        """Raises ApiError for what may not be done."""
        if route.is_change and not self.settings.allow_changes:
            raise ApiError(403, "CHANGES_NOT_ALLOWED", "this console was started without --allow-changes")
        if not self.sessions.has_csrf_token(cookie, request.headers):
            raise ApiError(403, "CSRF_TOKEN_MISSING", "X-CSRF-Token is not the token of this page. Load it again")

    async def _value(self, route: Route, path: dict[str, str], cookie: str, request: HttpRequest) -> Any:
        """Call the handler of a route and return its value. Raises ApiError."""
        session = self.sessions.of(cookie)
        if route.needs_login and session is None and self.watcher.wants_login:
            raise login_required()
        query = Parameters.parse(request.query)
        if route.parameters is not None:
            query.check_known(route.parameters)
        call = Call(
            settings=self.settings,
            sessions=self.sessions,
            watcher=self.watcher if session is None else session.watcher,
            session=session,
            cookie=cookie,
            path=path,
            query=query,
            links=self.links,
            body=_body(request),
        )
        call.watcher.ask()
        try:
            return await route.handler(call)
        except RequestError as exc:
            raise of_server(exc) from exc
        except TriologError as exc:
            raise ApiError(503, "NO_ANSWER", str(exc)) from exc

    # ---- pages ---------------------------------------------------------------------------------------------------------

    async def _answer_page(self, request: HttpRequest) -> HttpAnswer:
        if request.method not in READING:
            return HttpAnswer.text(405, "pages are read with GET")
        known = self.sessions.cookie_of(request.headers)
        cookie = known or self.sessions.new_cookie()
        status, first = 200, self._of_console(cookie)
        try:
            route, path = self._route(request.method, request.path, is_page=True)
            first["view"] = await self._value(route, path, cookie, request)
        except ApiError as exc:
            status = exc.status
            first["error"] = {**exc.to_json()["error"], "status": exc.status}
        headers = () if known else (self.sessions.cookie_header(cookie),)
        return HttpAnswer(status, self._document(cookie, first), HTML, headers)

    def _of_console(self, cookie: str) -> dict[str, Any]:
        session = self.sessions.of(cookie)
        watcher = self.watcher if session is None else session.watcher
        return {
            "console": {
                "server": watcher.text,
                "allow_changes": self.settings.allow_changes,
                "has_control": self.settings.control is not None,
                "has_forward": self.settings.forward_state_dir is not None,
                "user": _user(session, self.settings),
                "can_log_out": session is not None,
            }
        }

    def _document(self, cookie: str, first: dict[str, Any]) -> bytes:
        said = json.dumps(first, separators=(",", ":")).replace("<", "\\u003c")
        parts = {"BASE": self.static.base, "CSRF": self.sessions.csrf_token(cookie), "FIRST": said}
        text = self.static.shell
        for name, value in parts.items():
            text = text.replace(f"@@{name}@@", value)
        return text.encode()


def _user(session: LoggedIn | None, settings: ConsoleSettings) -> str | None:
    if session is not None:
        return session.user
    return None if settings.login is None else settings.login.user


def _body(request: HttpRequest) -> dict[str, Any]:
    if not request.body:
        return {}
    try:
        said = json.loads(request.body)
    except (ValueError, RecursionError) as exc:
        raise ApiError(400, "BAD_BODY", f"the body is not JSON: {exc}") from None
    if not isinstance(said, dict):
        raise ApiError(400, "BAD_BODY", "the body is not an object")
    return said


def _json(status: int, value: Any) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n", JSON)


FOLDER: Final = Path(__file__).parent / "static"
SHELL: Final = "index.html"
MAX_TOTAL_BYTES: Final = 150_000
CONTENT_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOR_EVER: Final = ("cache-control", "public, max-age=31536000, immutable")
HASH_CHARS: Final = 12
COMMENT: Final = re.compile(r"^[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*)$", re.MULTILINE | re.DOTALL)
"""One that has its lines for itself."""


class StaticFile(NamedTuple):
    content_type: str
    content: bytes
    compressed: bytes


@attrs.frozen
class StaticFiles:
    """All of them, by their path below the folder."""

    files: Mapping[str, StaticFile]
    digest: str

    @classmethod
    def read(cls, folder: Path = FOLDER) -> StaticFiles:
        """Blocking."""
        digest = hashlib.sha256()
        files = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in CONTENT_TYPES:
                name, content = path.relative_to(folder).as_posix(), _shipped(path.read_text(encoding="utf-8"))
                digest.update(b"%s\0%d\0%s" % (name.encode(), len(content), content))
                files[name] = StaticFile(CONTENT_TYPES[path.suffix], content, gzip.compress(content, mtime=0))
        return cls(files, digest.hexdigest()[:HASH_CHARS])

    @property
    def base(self) -> str:
        """The path below which they are."""
        return f"/static/{self.digest}/"

    @property
    def shell(self) -> str:
        """The page without its data."""
        return self.files[SHELL].content.decode()

    def answer(self, request: HttpRequest) -> HttpAnswer:
        """A file, or 404; also for a version that is no longer there."""
        found = self.files.get(request.path.removeprefix(self.base)) if request.path.startswith(self.base) else None
        if found is None:
            return HttpAnswer.text(404, "no such file")
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = (FOR_EVER, ("content-encoding", "gzip"), ("vary", "accept-encoding"))
            return HttpAnswer(200, found.compressed, found.content_type, headers)
        return HttpAnswer(200, found.content, found.content_type, (FOR_EVER, ("vary", "accept-encoding")))


def _shipped(text: str) -> bytes:
    """Strip indentation and comment lines, a tenth of a file. This is safe because none of our strings has several lines."""
    lines = (line.strip() for line in COMMENT.sub("", text).splitlines())
    return "\n".join(filter(None, lines)).encode() + b"\n"
