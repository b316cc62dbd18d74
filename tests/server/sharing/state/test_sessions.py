"""Share sessions: epochs, partitions that are added and forgotten, limits."""

from __future__ import annotations

from typing import Final

import pytest
from triolog.protocol.errors import RequestError
from triolog.protocol.limits import INT32_MAX
from triolog.server.sharing.state import sessions as module
from triolog.server.sharing.state.sessions import ShareSessions
from triolog.server.sharing.state.values import ShareKey

KEYS: Final = [ShareKey("group", bytes(16), number) for number in range(4)]
CONNECTION: Final = object()


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions()


def begin(sessions: ShareSessions, member: str = "m", partitions: int = 1) -> None:
    sessions.begin("group", member, KEYS[:partitions], CONNECTION, says_something=False)


def test_only_the_next_epoch_or_the_final_one_is_right_and_after_the_last_comes_the_first(sessions: ShareSessions) -> None:
    begin(sessions)
    for epoch in (0, 2, INT32_MAX, -2):
        with pytest.raises(RequestError, match=r"^INVALID_SHARE_SESSION_EPOCH"):
            sessions.go_on("group", "m", epoch, KEYS)
    assert sessions.go_on("group", "m", -1).epoch == sessions.acknowledge("group", "m", -1).epoch == 1
    session = sessions.go_on("group", "m", 1)
    assert list(session.partitions) == KEYS[:1]
    session.epoch = INT32_MAX
    assert sessions.go_on("group", "m", INT32_MAX).epoch == 1
    begin(sessions, partitions=2)
    session = sessions.go_on("group", "m", 1, [KEYS[3], KEYS[0]], [KEYS[1], KEYS[2]])
    assert (list(session.partitions), session.epoch) == ([KEYS[0], KEYS[3]], 2), "added and forgotten"


def test_sessions_end_with_their_connection(sessions: ShareSessions) -> None:
    for member in "aab":
        begin(sessions, member)
    assert len(sessions) == 2, "a member that begins again has one session"
    assert sessions.disconnected(object()) == ([], set())
    assert sessions.has_group("group")
    assert sessions.remove("group", "a") is not None
    assert sessions.remove("group", "a") is None
    ended, groups = sessions.disconnected(CONNECTION)
    assert ([each.member_id for each in ended], groups) == (["b"], {"group"})
    assert not sessions.has_group("group")
    assert sessions.disconnected(CONNECTION) == ([], set())


def test_there_are_limits(sessions: ShareSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSION_PARTITIONS", 3)
    monkeypatch.setattr(module, "MAX_PARTITIONS", 4)
    with pytest.raises(RequestError, match=r"^INVALID_REQUEST"):
        begin(sessions, partitions=4)
    begin(sessions, partitions=2)
    begin(sessions, "other", partitions=2)
    with pytest.raises(RequestError, match=r"^SHARE_SESSION_LIMIT_REACHED"):
        begin(sessions, "third")
    with pytest.raises(RequestError):
        sessions.go_on("group", "m", 1, KEYS)
    sessions.remove("group", "other")
    begin(sessions, "third")
