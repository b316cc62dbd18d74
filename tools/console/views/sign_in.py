"""Logging in and out, where the server wants users. Rights are the user's own: what he may not do, the server refuses."""

from __future__ import annotations

import json
from typing import Any, Final

from ....server.listeners.http.access import JSON, HttpAnswer
from ...client.login import LoginConfig
from ..errors import ApiError
from ..routes import Call, Route, of_console
from ..watching.watcher import Watcher

MAX_CHARS: Final = 1000


async def log_in(call: Call) -> HttpAnswer:
    """`{"user", "password"}`; answers with the cookie of a session, and the CSRF token that belongs to it."""
    user, password = call.field("user", str), call.field("password", str)
    if not 0 < len(user) <= MAX_CHARS or not 0 < len(password) <= MAX_CHARS:
        raise ApiError(400, "BAD_PARAMETER", "user and password: both are needed")
    settings = call.settings
    login = LoginConfig(user=user, password=password)
    watcher = Watcher(settings.server, settings.tls, login, call.watcher.describe)
    cookie = await call.sessions.log_in(user, watcher)
    if call.session is not None:
        call.sessions.log_out(call.cookie)
    return _told({"user": user, "csrf_token": call.sessions.csrf_token(cookie)}, call.sessions.cookie_header(cookie))


async def log_out(call: Call) -> HttpAnswer:
    """Ends the session and its connection."""
    call.sessions.log_out(call.cookie)
    cookie = call.sessions.new_cookie()
    return _told({"csrf_token": call.sessions.csrf_token(cookie)}, call.sessions.cookie_header(cookie))


def _told(value: dict[str, Any], header: tuple[str, str]) -> HttpAnswer:
    return HttpAnswer(200, json.dumps(value).encode() + b"\n", JSON, (header,))


ROUTES: Final[tuple[Route, ...]] = (of_console("/login", log_in), of_console("/logout", log_out))
