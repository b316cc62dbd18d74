"""Which fetch sessions have a place in the cache: Kafka's rule, so that young sessions never evict each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
import pytest
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.limits import INT32_MAX
from triolog.server.listeners.kafka import fetch_sessions
from triolog.server.listeners.kafka.fetch_sessions import EVICTION_S, Asked, FetchSession, FetchSessions, Key

from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_of, fetch_partition, produced
from tests.support.kafka_stream import KafkaStream

OLD_S: Final = EVICTION_S + 1
MAX_SESSIONS: Final = 50
MAX_SESSION_PARTITIONS: Final = 100
MAX_PARTITIONS: Final = 1000


@attrs.define
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> FetchSessions:
    for name in ("MAX_SESSIONS", "MAX_SESSION_PARTITIONS", "MAX_PARTITIONS"):
        monkeypatch.setattr(fetch_sessions, name, globals()[name])
    return FetchSessions(clock)


def partitions(count: int, topic: str = "t") -> dict[Key, Asked]:
    return {Key(topic, bytes(16), number): Asked(0, 1, -1, -1) for number in range(count)}


def opened(cache: FetchSessions, count: int = 1) -> FetchSession:
    session = cache.open(partitions(count), by_id=False)
    assert session is not None
    return session


def polls(cache: FetchSessions, session: FetchSession, changed: dict[Key, Asked] | None = None) -> FetchSession:
    return cache.continued(session.session_id, session.epoch, changed or {}, [], by_id=False)


def filled(cache: FetchSessions, count: int = 1) -> list[FetchSession]:
    return [opened(cache, count) for _ in range(MAX_SESSIONS)]


def all_poll(cache: FetchSessions, sessions: Iterable[FetchSession]) -> None:
    for session in sessions:
        polls(cache, session)


def test_young_sessions_are_not_evicted_for_a_newcomer(cache: FetchSessions) -> None:
    sessions = filled(cache)
    assert cache.open(partitions(10), by_id=False) is None
    all_poll(cache, sessions)
    assert len(cache) == MAX_SESSIONS


def test_a_session_that_was_unused_for_two_minutes_is_evicted(cache: FetchSessions, clock: Clock) -> None:
    first, *others = filled(cache, 2)
    clock.now = OLD_S / 2
    all_poll(cache, others)
    clock.now = OLD_S
    opened(cache, 1)
    with pytest.raises(RequestError, match=f"no fetch session {first.session_id}"):
        polls(cache, first)
    all_poll(cache, others)
    assert cache.open(partitions(1), by_id=False) is None


def test_a_larger_newcomer_evicts_the_smallest_old_session(cache: FetchSessions, clock: Clock) -> None:
    sessions = filled(cache, 3)
    small = sessions[20]
    clock.now = OLD_S
    for session in sessions:
        cache.continued(session.session_id, 1, {}, [Key("t", bytes(16), 0)] if session is small else [], by_id=False)
    assert cache.open(partitions(1), by_id=False) is None
    newcomer = opened(cache, 2)
    with pytest.raises(RequestError, match=f"no fetch session {small.session_id}"):
        polls(cache, small)
    all_poll(cache, [newcomer, *(session for session in sessions if session is not small)])
    assert cache.open(partitions(2), by_id=False) is None


def test_a_fetch_of_too_many_partitions_has_no_session(cache: FetchSessions) -> None:
    assert cache.open(partitions(MAX_SESSION_PARTITIONS + 1), by_id=False) is None


def test_a_session_that_grows_past_its_limit_ends(cache: FetchSessions) -> None:
    session = opened(cache, MAX_SESSION_PARTITIONS)
    with pytest.raises(RequestError) as caught:
        polls(cache, session, partitions(1, "another"))
    assert caught.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_all_sessions_together_have_a_limit_of_partitions(cache: FetchSessions) -> None:
    full = MAX_PARTITIONS // MAX_SESSION_PARTITIONS
    sessions = [opened(cache, MAX_SESSION_PARTITIONS) for _ in range(full)]
    assert cache.open(partitions(1), by_id=False) is None
    all_poll(cache, sessions)


def test_a_session_that_grows_past_the_limit_of_all_ends_and_no_other(cache: FetchSessions) -> None:
    *others, last = [opened(cache) for _ in range(MAX_PARTITIONS // MAX_SESSION_PARTITIONS)]
    for session in others:
        polls(cache, session, partitions(MAX_SESSION_PARTITIONS))
    beside = opened(cache)
    with pytest.raises(RequestError, match=f"no fetch session {last.session_id}"):
        polls(cache, last, partitions(MAX_SESSION_PARTITIONS))
    all_poll(cache, [*others, beside])


def test_a_closed_session_leaves_its_place(cache: FetchSessions, clock: Clock) -> None:
    sessions = filled(cache)
    clock.now = OLD_S
    all_poll(cache, sessions)
    for session in sessions:
        cache.close(session.session_id)
    filled(cache)
    assert cache.open(partitions(1), by_id=False) is None


def test_epochs_begin_at_1_again_behind_the_largest(cache: FetchSessions) -> None:
    session = opened(cache)
    session.epoch = INT32_MAX
    assert polls(cache, session).epoch == 1


async def test_a_client_without_a_place_gets_its_records_all_the_same(
    kafka: KafkaServer, client: KafkaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "MAX_SESSIONS", 0)
    await produced(client, batch("x"))
    request: dict[str, Any] = {"topic": TOPIC, "topic_id": kafka.topic_id(), "partitions": [fetch_partition()]}
    for _ in range(2):
        answer = await client.call(fetch_of([request], session_id=0, session_epoch=0), 12)
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert answer.responses[0].partitions[0].records
