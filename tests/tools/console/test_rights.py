"""Who may only look changes nothing around the server, and one user's logins end no other user's session."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from triolog.protocol.kafka.authorization import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from triolog.server.access.acls import Acl
from triolog.server.config.values import Address
from triolog.tools.console.sessions import MAX_SESSIONS, MAX_USER_SESSIONS, LoggedIn, Sessions

from .conftest import shown_broker
from .test_sessions import WITH_RIGHTS, wanted


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


def logged_in(sessions: Sessions, user: str, used_s: float) -> None:
    """As `log_in` does behind the connection."""
    sessions._make_room(user)
    watcher: Any = None
    sessions._logged_in[f"{user} {used_s}"] = LoggedIn(user, watcher, trio.CancelScope(), 0.0, used_s)


def counts(sessions: Sessions) -> Counter[str]:
    return Counter(session.user for session in sessions._logged_in.values())


def test_logins_of_one_user_end_the_oldest_of_his_own() -> None:
    sessions = Sessions("c")
    logged_in(sessions, "alice", 0.0)
    for number in range(2 * MAX_SESSIONS):
        logged_in(sessions, "bob", 1.0 + number)
    assert counts(sessions) == {"alice": 1, "bob": MAX_USER_SESSIONS}
    assert max(each.used_s for each in sessions._logged_in.values()) == 2 * MAX_SESSIONS
    assert min(each.used_s for each in sessions._logged_in.values() if each.user == "bob") > MAX_SESSIONS


def test_where_all_places_are_taken_the_user_with_most_gives_one() -> None:
    sessions = Sessions("c")
    logged_in(sessions, "alice", 0.0)
    users = [f"user-{number}" for number in range(MAX_SESSIONS)]
    for number in range(MAX_USER_SESSIONS):
        for user in users[: MAX_SESSIONS // MAX_USER_SESSIONS]:
            logged_in(sessions, user, 1.0 + number)
    for user in users[MAX_SESSIONS // MAX_USER_SESSIONS :][:8]:
        logged_in(sessions, user, 100.0)
    assert len(sessions._logged_in) == MAX_SESSIONS
    assert counts(sessions)["alice"] == 1
