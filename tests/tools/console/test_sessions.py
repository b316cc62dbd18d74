from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from triolog.protocol.kafka.authorization import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from triolog.server.access.acls import Acl
from triolog.server.config.values import Address
from triolog.server.listeners.http.access import HttpAccess, HttpRequest
from triolog.tools.client.login import LoginConfig
from triolog.tools.console.dispatch import Dispatch, StaticFiles
from triolog.tools.console.routes import Call, ConsoleSettings, change
from triolog.tools.console.sessions import IDLE_S, MAX_SESSIONS, MAX_USER_SESSIONS, SESSION_S, LoggedIn, Sessions
from triolog.tools.console.watching.watcher import Watcher

from tests.support.browser_wire import Browser
from tests.tools.console.conftest import ANY_PORT, Shown, showing, shown_broker

WITH_USERS: dict[str, Any] = {
    "users": {"alice": "secret", "bob": "secret too"},
    "security": {"native_security": "sasl_plaintext", "connection_failed_authentication_delay_ms": 1},
    "topics": ["t"],
}


async def wanted(shown: Shown) -> None:
    with trio.fail_after(60):
        while (await shown.browser.get("/api/topics")).json.get("error", {}).get("name") != "LOGIN_REQUIRED":
            pass


async def test_users_log_in_and_out() -> None:
    async with shown_broker(**WITH_USERS) as shown:
        await wanted(shown)
        browser = shown.browser
        page = await browser.open("/topics")
        assert (page.status, page.first["error"]["name"]) == (401, "LOGIN_REQUIRED")
        assert "view" not in page.first
        before, token = dict(browser.cookies), browser.token
        browser.token = "0" * 64
        refused = await browser.post("/api/login", {"user": "alice", "password": "secret"})
        assert (refused.status, refused.json["error"]["name"]) == (403, "CSRF_TOKEN_MISSING")
        browser.token = token

        wrong = await browser.post("/api/login", {"user": "alice", "password": "wrong"})
        assert (wrong.status, wrong.json["error"]["name"]) == (401, "SASL_AUTHENTICATION_FAILED")
        assert browser.cookies == before

        right = await browser.post("/api/login", {"user": "alice", "password": "secret"})
        assert right.status == 200
        assert right.headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Lax")
        assert browser.cookies != before
        assert "secret" not in right.text
        assert (await browser.get("/api/topics")).json["found"] == 1
        page = await browser.open("/")
        assert page.first["console"]["user"] == "alice"
        assert right.json["csrf_token"] == browser.token
        assert (await shown.other().get("/api/topics")).status == 401

        assert (await browser.post("/api/logout")).status == 200
        assert (await browser.get("/api/topics")).status == 401
        login = LoginConfig(user="alice", password="secret")
        async with showing(tuple(shown.broker.native), login=login) as of_alice:
            page = await of_alice.open("/topics")
            assert (page.first["view"]["found"], page.first["console"]["user"]) == (1, "alice"), "it asks nobody"


async def test_a_login_that_makes_no_sense_is_refused(shown: Shown) -> None:
    await shown.browser.open("/")
    for body in ({}, {"user": "alice"}, {"user": "", "password": "x"}, {"user": 1, "password": "x"}, [1]):
        assert (await shown.browser.post("/api/login", body)).status == 400, body


WITH_RIGHTS: dict[str, Any] = {
    **WITH_USERS,
    "security": {**WITH_USERS["security"], "acl_enable": True, "super_users": "User:alice"},
}
"""Alice may do everything, bob nothing."""


async def logged_in(shown: Shown) -> tuple[Browser, Browser]:
    """Alice and bob."""
    await wanted(shown)
    alice, bob = shown.other(), shown.other()
    for browser, user in ((alice, "alice"), (bob, "bob")):
        await browser.open("/")
        assert (await browser.post("/api/login", {"user": user, "password": WITH_USERS["users"][user]})).status == 200
    return alice, bob


async def test_rights_are_the_users_own() -> None:
    async with shown_broker(**WITH_RIGHTS) as shown:
        alice, bob = await logged_in(shown)
        assert (await alice.get("/api/topics/t")).status == 200
        assert (await bob.get("/api/")).status == 403
        assert (await bob.get("/api/topics")).json["found"] == 0
        for path in ("", "/records", "/tail", "/search?q=x", "/walk"):
            refused = await bob.get(f"/api/topics/t{path}")
            assert (refused.status, refused.json["error"]["name"]) == (403, "TOPIC_AUTHORIZATION_FAILED"), path
        for path in ("/records", "/walk"):
            assert (await alice.get(f"/api/topics/t{path}")).status == 200, path


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/forward"), ("POST", "/forward/link/pause"), ("GET", "/test"), ("POST", "/test/stop")]
)
async def test_what_knows_no_users_is_for_whoever_may_see_the_statistics(tmp_path: Path, method: str, path: str) -> None:
    """Also in the moment after the login, when it is not known yet."""
    console = {"allow_changes": True, "forward_state_dir": str(tmp_path), "control": Address("127.0.0.1", 1)}
    async with shown_broker(console=console, **WITH_RIGHTS) as shown:
        await wanted(shown)
        await shown.browser.open("/")
        reply = await shown.browser.post("/api/login", {"user": "bob", "password": "secret too"})
        shown.browser.token = reply.json["csrf_token"]
        answer = await (shown.browser.get if method == "GET" else shown.browser.post)(f"/api{path}")
        assert (answer.status, answer.json["error"]["name"]) == (403, "CLUSTER_AUTHORIZATION_FAILED")


async def test_nobody_sees_it_before_the_server_has_answered(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"forward_state_dir": str(tmp_path), "control": Address("127.0.0.1", 1)}
    async with showing(("127.0.0.1", 1), **settings) as browser:
        for path in ("/api/forward", "/api/test"):
            answer = await browser.get(path)
            assert (answer.status, answer.json["error"]["name"]) == (503, "NO_ANSWER")
            assert "cannot check permissions" in answer.json["error"]["message"]


async def _change(call: Call) -> dict[str, Any]:
    call.check_confirmed(call.path["name"])
    return {"done": call.path["name"]}


async def _answers(dispatch: Dispatch, cookie: str, token: str, body: bytes = b"{}") -> tuple[int, str | None]:
    headers = {"host": "127.0.0.1", "cookie": f"c={cookie}", "x-csrf-token": token, "content-type": "application/json"}
    answer = await dispatch.answer(HttpRequest("DELETE", "/api/things/x", "", headers, body))
    return answer.status, json.loads(answer.body).get("error", {}).get("name")


async def test_changes_need_permission_the_token_and_a_typed_name() -> None:
    sessions = Sessions("c")
    dispatch = Dispatch(
        settings=ConsoleSettings(server=("127.0.0.1", 1), listen=ANY_PORT),
        access=HttpAccess(),
        sessions=sessions,
        watcher=Watcher(("127.0.0.1", 1)),
        static=StaticFiles.read(),
        routes=(change("DELETE", "/things/{name}", _change),),
    )
    cookie = sessions.new_cookie()
    token = sessions.csrf_token(cookie)
    assert await _answers(dispatch, cookie, token) == (403, "CHANGES_NOT_ALLOWED")
    dispatch.settings = attrs.evolve(dispatch.settings, allow_changes=True)
    assert await _answers(dispatch, cookie, "") == (403, "CSRF_TOKEN_MISSING")
    assert await _answers(dispatch, sessions.new_cookie(), token) == (403, "CSRF_TOKEN_MISSING")
    assert await _answers(dispatch, cookie, token) == (400, "NOT_CONFIRMED")
    assert await _answers(dispatch, cookie, token, b'{"confirm": "y"}') == (400, "NOT_CONFIRMED")
    assert await _answers(dispatch, cookie, token, b"[" * 100_000) == (400, "BAD_BODY")
    assert await _answers(dispatch, cookie, token, b'{"confirm": "x"}') == (200, None)


def test_a_session_ends_after_eight_hours_or_thirty_idle_minutes_and_tokens_belong_to_cookies() -> None:
    session = LoggedIn("alice", Watcher(("127.0.0.1", 1)), trio.CancelScope(), begun_s=0.0, used_s=0.0)
    assert not session.has_ended(IDLE_S - 1)
    assert session.has_ended(IDLE_S + 1)
    session.used_s = SESSION_S
    assert not session.has_ended(SESSION_S - 1)
    assert session.has_ended(SESSION_S + 1)
    for foreign in ("", "c=1", "c=" + "x" * 31, 'c="', "c=\x00" * 40, "other=" + "x" * 32):
        assert Sessions("c").cookie_of({"cookie": foreign}) is None, foreign
    sessions, others = Sessions("c"), Sessions("c")
    cookie = sessions.new_cookie()
    assert sessions.cookie_of({"cookie": f"a=b; c={cookie}"}) == cookie
    token = {"x-csrf-token": sessions.csrf_token(cookie)}
    assert sessions.has_csrf_token(cookie, token)
    assert not sessions.has_csrf_token(sessions.new_cookie(), token)
    assert not sessions.has_csrf_token(None, token)
    assert not others.has_csrf_token(cookie, token)
    assert not sessions.has_csrf_token(cookie, {"x-csrf-token": "é"})


def allowed(operation: AclOperation) -> Acl:
    """Of bob, on the cluster."""
    return Acl(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:bob", "*", operation, AclPermission.ALLOW)


@pytest.mark.parametrize("path", ["/forward/link/pause", "/forward/link/resume", "/test/stop", "/test/clock/freeze"])
async def test_changes_around_the_server_need_the_right_to_change_it(tmp_path: Path, path: str) -> None:
    console = {"allow_changes": True, "forward_state_dir": str(tmp_path), "control": Address("127.0.0.1", 1)}
    async with shown_broker(console=console, **WITH_RIGHTS) as shown:
        await wanted(shown)
        await shown.broker.core.security.create_acls([allowed(AclOperation.DESCRIBE)])
        await shown.browser.open("/")
        reply = await shown.browser.post("/api/login", {"user": "bob", "password": "secret too"})
        shown.browser.token = reply.json["csrf_token"]
        assert (await shown.browser.get("/api/forward")).status == 200, "he may look"
        refused = await shown.browser.post(f"/api{path}")
        answers = [(refused.status, refused.json["error"]["name"])]
        await shown.broker.core.security.create_acls([allowed(AclOperation.ALTER_CONFIGS)])
        answers.append((await shown.browser.post(f"/api{path}")).json["error"]["name"])
    there = "NO_SUCH_LINK" if path.startswith("/forward") else "CONTROL_PORT"
    assert answers[0] == (403, "CLUSTER_AUTHORIZATION_FAILED")
    assert there in answers[1]


def add_session(sessions: Sessions, user: str, used_s: float) -> None:
    """As `log_in` does behind the connection."""
    sessions._make_room(user)
    watcher: Any = None
    sessions._logged_in[f"{user} {used_s}"] = LoggedIn(user, watcher, trio.CancelScope(), 0.0, used_s)


def counts(sessions: Sessions) -> Counter[str]:
    return Counter(session.user for session in sessions._logged_in.values())


def test_logins_of_one_user_end_the_oldest_of_his_own() -> None:
    sessions = Sessions("c")
    add_session(sessions, "alice", 0.0)
    for number in range(2 * MAX_SESSIONS):
        add_session(sessions, "bob", 1.0 + number)
    assert counts(sessions) == {"alice": 1, "bob": MAX_USER_SESSIONS}
    assert max(each.used_s for each in sessions._logged_in.values()) == 2 * MAX_SESSIONS
    assert min(each.used_s for each in sessions._logged_in.values() if each.user == "bob") > MAX_SESSIONS


def test_where_all_places_are_taken_the_user_with_most_gives_one() -> None:
    sessions = Sessions("c")
    add_session(sessions, "alice", 0.0)
    users = [f"user-{number}" for number in range(MAX_SESSIONS)]
    for number in range(MAX_USER_SESSIONS):
        for user in users[: MAX_SESSIONS // MAX_USER_SESSIONS]:
            add_session(sessions, user, 1.0 + number)
    for user in users[MAX_SESSIONS // MAX_USER_SESSIONS :][:8]:
        add_session(sessions, user, 100.0)
    assert len(sessions._logged_in) == MAX_SESSIONS
    assert counts(sessions)["alice"] == 1
