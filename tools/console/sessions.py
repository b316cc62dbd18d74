"""Sessions of browsers: a cookie for each, the CSRF token that belongs to it, and the users who have logged in.

A cookie is a random name without content. Links from other sites send it, so that a view can be shared; no other request from
another site does. Its CSRF token is an HMAC of it under a key of this process, so browsers without a login need no memory.
A login creates another cookie and a connection to the server with the user's credentials. The password is kept as long as the
session, because the connection may have to be opened again.
"""

from __future__ import annotations

import hmac
import secrets
from collections import Counter
from http.cookies import CookieError, SimpleCookie
from typing import Final

import attrs
import trio

from .errors import ApiError
from .watching.watcher import Watcher

MAX_SESSIONS: Final = 64
MAX_USER_SESSIONS: Final = 8
"""Of one user: the next login ends the one of these that was used longest ago, and nobody else's."""
SESSION_S: Final = 8 * 3600.0
IDLE_S: Final = 30 * 60.0
LOOK_S: Final = 30.0
"""Between two looks for sessions that have ended."""
COOKIE_BYTES: Final = 24
COOKIE_CHARS: Final = 32


@attrs.define(eq=False, repr=False)
class LoggedIn:
    """A user who has logged in. Owner: `Sessions`."""

    user: str
    watcher: Watcher
    scope: trio.CancelScope
    begun_s: float
    used_s: float

    def has_ended(self, now_s: float) -> bool:
        return now_s - self.begun_s > SESSION_S or now_s - self.used_s > IDLE_S


@attrs.define(eq=False, repr=False)
class Sessions:
    """Owner of those who have logged in, by their cookies. `run` is its task, and parent of their connections."""

    cookie_name: str
    """With the port: cookies of one host are shared by all of its ports."""
    _key: bytes = attrs.field(factory=lambda: secrets.token_bytes(32), repr=False)
    _logged_in: dict[str, LoggedIn] = attrs.field(factory=dict, repr=False)
    _nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep connections of users, and end sessions that are over."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                await trio.sleep(LOOK_S)
                now_s = trio.current_time()
                for cookie in [each for each, session in self._logged_in.items() if session.has_ended(now_s)]:
                    self.log_out(cookie)

    # ---- cookies -------------------------------------------------------------------------------------------------------

    def cookie_of(self, headers: dict[str, str]) -> str | None:
        """The cookie that a browser sends back; None for one that is none of ours."""
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return None
        return found.value if found is not None and len(found.value) == COOKIE_CHARS else None

    def new_cookie(self) -> str:
        return secrets.token_urlsafe(COOKIE_BYTES)

    def cookie_header(self, cookie: str) -> tuple[str, str]:
        """Has a browser keep it until it is closed, for this host and no script."""
        return "set-cookie", f"{self.cookie_name}={cookie}; Path=/; HttpOnly; SameSite=Lax"

    def csrf_token(self, cookie: str) -> str:
        """Return the CSRF token that a page sends with each change."""
        return hmac.digest(self._key, cookie.encode(), "sha256").hex()

    def has_csrf_token(self, cookie: str | None, headers: dict[str, str]) -> bool:
        if cookie is None:
            return False
        return hmac.compare_digest(headers.get("x-csrf-token", "").encode(), self.csrf_token(cookie).encode())

    # ---- users ---------------------------------------------------------------------------------------------------------

    def of(self, cookie: str | None) -> LoggedIn | None:
        """Return the session of a cookie, or None. Each use prolongs the session."""
        session = None if cookie is None else self._logged_in.get(cookie)
        if session is None or cookie is None:
            return None
        now_s = trio.current_time()
        if session.has_ended(now_s):
            self.log_out(cookie)
            return None
        session.used_s = now_s
        return session

    async def log_in(self, user: str, watcher: Watcher) -> str:
        """Connect in the name of a user; answers the cookie. Raises what the server refuses."""
        if self._nursery is None:
            raise ApiError(503, "NOT_STARTED", "the console has not started yet")
        scope = trio.CancelScope()
        await self._nursery.start(_run, watcher, scope)
        try:
            await watcher.client.connected()
        except BaseException:
            scope.cancel()
            raise
        self._make_room(user)
        cookie, now_s = self.new_cookie(), trio.current_time()
        self._logged_in[cookie] = LoggedIn(user, watcher, scope, now_s, now_s)
        return cookie

    def _make_room(self, user: str) -> None:
        """End the session that was used longest ago: of the user who has as many as a user may, or where all are taken, of the
        user who has most."""
        counts = Counter(session.user for session in self._logged_in.values())
        most = max(counts.values(), default=0)
        if counts[user] >= MAX_USER_SESSIONS:
            ending = {user}
        elif len(self._logged_in) >= MAX_SESSIONS:
            ending = {each for each, count in counts.items() if count == most}
        else:
            return
        cookies = [cookie for cookie, session in self._logged_in.items() if session.user in ending]
        self.log_out(min(cookies, key=lambda each: self._logged_in[each].used_s))

    def log_out(self, cookie: str) -> None:
        """The session ends, its connection is closed."""
        session = self._logged_in.pop(cookie, None)
        if session is not None:
            session.scope.cancel()


async def _run(watcher: Watcher, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    with scope:
        await watcher.run(task_status=task_status)
