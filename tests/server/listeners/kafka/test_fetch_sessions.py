"""Fetch sessions: what a client has to say once only, and what it is told again only when it changed. Which fetch sessions
have a place in the cache: Kafka's rule, so that young sessions never evict each other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.limits import INT32_MAX
from triolog.protocol.types import TopicPartition
from triolog.server.listeners.kafka import fetch_sessions
from triolog.server.listeners.kafka.fetch_sessions import EVICTION_S, Asked, FetchSession, FetchSessions, Key

from tests.support.brokers import actor_of, until
from tests.support.gate_fs import GateFileSystem
from tests.support.kafka_server import TOPIC, KafkaServer, batch, fetch_of, fetch_partition, kafka_server, produced
from tests.support.kafka_stream import KafkaStream

SESSION_VERSIONS = range(7, 19)
PARKED_MS = 120_000

Told = dict[int, tuple[int, bytes]]
"""Partition -> (error code, records) of an answer."""


@attrs.define(eq=False)
class Reader:
    """A client's end of a session on the topic TOPIC."""

    kafka: KafkaServer
    client: KafkaStream
    version: int = 12
    session_id: int = 0
    epoch: int = 0

    async def fetch(self, *partitions: Any, forgotten: tuple[int, ...] = (), **fields: Any) -> Any:
        """The next request of the session: what is new or changed, and what is not wanted any more."""
        names = {"topic": TOPIC, "topic_id": self.kafka.topic_id()}
        request = fetch_of(
            [{"partitions": list(partitions), **names}] if partitions else [],
            **{
                "session_id": self.session_id,
                "session_epoch": self.epoch,
                "forgotten_topics_data": [{"partitions": list(forgotten), **names}] if forgotten else [],
                **fields,
            },
        )
        answer = await self.client.call(request, self.version)
        if not answer.error_code:
            self.session_id, self.epoch = answer.session_id, self.epoch + 1
        return answer

    async def told(self, *partitions: Any, **fields: Any) -> Told:
        answer = await self.fetch(*partitions, **fields)
        assert answer.error_code == 0
        return {
            each.partition_index: (each.error_code, bytes(each.records))
            for topic in answer.responses
            for each in topic.partitions
        }


@pytest.fixture
def reader(kafka: KafkaServer, client: KafkaStream) -> Reader:
    return Reader(kafka, client)


ALL = tuple(fetch_partition(partition=number) for number in range(3))


@pytest.mark.parametrize("version", SESSION_VERSIONS)
async def test_a_session_is_told_everything_and_then_what_is_new(kafka: KafkaServer, client: KafkaStream, version: int) -> None:
    reader = Reader(kafka, client, version)
    assert await reader.told(*ALL) == {0: (0, b""), 1: (0, b""), 2: (0, b"")}
    assert reader.session_id > 0
    assert await reader.told() == {}
    await produced(client, batch("x"), partition=1)
    told = await reader.told()
    assert list(told) == [1]
    assert told[1][1]
    assert await reader.told(fetch_partition(1, partition=1)) == {}


async def test_a_session_moves_on_once_where_its_fetch_has_to_wait_for_the_device(tmp_path: Path) -> None:
    async with kafka_server(tmp_path, fs=GateFileSystem(cached_reads=False)) as kafka, kafka.connected() as client:
        await kafka.broker.topics.create(TOPIC, 3)
        await produced(client, batch("x"), partition=1)
        reader = Reader(kafka, client)
        before = kafka.broker.disk.statistics().cold_reads
        assert list(await reader.told(*ALL)) == [0, 1, 2]
        for _ in range(2):
            assert list(await reader.told()) == [1]
        assert kafka.broker.disk.statistics().cold_reads > before


async def test_forgotten_partitions_are_not_served_and_added_ones_are(reader: Reader) -> None:
    assert set(await reader.told(*ALL[:2])) == {0, 1}
    assert set(await reader.told(ALL[2], forgotten=(0, 77))) == {2}
    for number in range(3):
        await produced(reader.client, batch("x"), partition=number)
    assert set(await reader.told()) == {1, 2}


async def test_a_moved_watermark_is_news_without_records(kafka: KafkaServer, reader: Reader) -> None:
    """The log start is, as well: a consumer shows its lag by them."""
    await produced(reader.client, batch("x"))
    await reader.told(fetch_partition(1), *ALL[1:])
    assert await reader.told() == {}
    await kafka.broker.logs.delete_records(TopicPartition(TOPIC, 0), 1)
    assert await reader.told() == {0: (0, b"")}
    assert await reader.told() == {}


async def test_errors_are_told_every_time(reader: Reader) -> None:
    missing = fetch_partition(partition=9)
    assert await reader.told(missing) == {9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")}
    assert await reader.told() == {9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")}
    assert await reader.told(fetch_partition(5), forgotten=(9,)) == {0: (ErrorCode.OFFSET_OUT_OF_RANGE, b"")}
    assert await reader.told() == {0: (ErrorCode.OFFSET_OUT_OF_RANGE, b"")}


async def test_partitions_with_records_take_turns(reader: Reader) -> None:
    """Where there is room for one at a time, none of them starves though the client never moves on."""
    for number in range(3):
        await produced(reader.client, batch(b"x" * 1000), partition=number)
    await reader.told(*ALL, max_bytes=1)
    served = [next(number for number, (_, records) in (await reader.told(max_bytes=1)).items() if records) for _ in range(6)]
    assert sorted(served[:3]) == sorted(served[3:]) == [0, 1, 2]


async def test_a_wait_in_a_session_ends_with_news(kafka: KafkaServer, reader: Reader) -> None:
    await reader.told(*ALL)
    async with kafka.connected() as other:
        request = fetch_of([], session_id=reader.session_id, session_epoch=reader.epoch, max_wait_ms=PARKED_MS)
        await reader.client.send(request, 12)
        await until(lambda: len(actor_of(kafka.broker).waiters) > 0)
        await produced(other, batch("x"), partition=2)
        answer = await reader.client.receive()
    assert [each.partition_index for each in answer.responses[0].partitions] == [2]


async def test_a_session_that_is_closed_is_gone(kafka: KafkaServer, reader: Reader) -> None:
    await reader.told(*ALL)
    assert len(kafka.door.fetch_sessions) == 1
    answer = await reader.client.call(fetch_of([], session_id=reader.session_id, session_epoch=-1), 12)
    assert (answer.error_code, answer.session_id, answer.responses) == (0, 0, [])
    assert len(kafka.door.fetch_sessions) == 0
    assert (await reader.fetch()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("ends", ["final epoch", "last partition forgotten", "no session", "empty session"])
async def test_fetch_with_nothing_to_fetch_is_answered_at_once(kafka: KafkaServer, reader: Reader, ends: str) -> None:
    """A Java consumer closes its session so; its fetch has the wait of all others."""
    if ends in ("final epoch", "last partition forgotten"):
        await reader.told(*ALL)
    session = {"final epoch": (reader.session_id, -1), "no session": (0, -1), "empty session": (0, 0)}
    reader.session_id, reader.epoch = session.get(ends, (reader.session_id, reader.epoch))
    forgotten = (0, 1, 2) if ends == "last partition forgotten" else ()
    began = trio.current_time()
    answer = await reader.fetch(forgotten=forgotten, max_wait_ms=PARKED_MS)
    assert await kafka.broker.reader.fetch([], max_bytes=1, max_wait_s=PARKED_MS / 1000) == [], "the other doors"
    assert trio.current_time() - began < PARKED_MS / 2000
    assert (answer.error_code, answer.responses) == (0, [])


async def test_a_session_that_begins_anew_replaces_the_old_one(kafka: KafkaServer, reader: Reader) -> None:
    await reader.told(*ALL)
    before, reader.epoch = reader.session_id, 0
    assert set(await reader.told(*ALL)) == {0, 1, 2}
    assert reader.session_id not in (0, before)
    assert len(kafka.door.fetch_sessions) == 1


async def test_without_a_session_nothing_is_remembered(kafka: KafkaServer, reader: Reader) -> None:
    reader.epoch = -1
    assert set(await reader.told(*ALL)) == {0, 1, 2}
    assert reader.session_id == 0
    assert len(kafka.door.fetch_sessions) == 0


async def test_an_epoch_that_is_not_the_next_one_is_refused(reader: Reader) -> None:
    await reader.told(*ALL)
    right = reader.epoch
    for reader.epoch in (right + 1, right + 100, 2):
        answer = await reader.fetch()
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (answer.session_id, answer.responses) == (0, [])
    reader.epoch = right
    assert await reader.told() == {}


@pytest.mark.parametrize("session_id", [0, 12345, -7])
async def test_a_session_that_nobody_opened_is_not_found(client: KafkaStream, session_id: int) -> None:
    answer = await client.call(fetch_of([], session_id=session_id, session_epoch=1), 12)
    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
async def test_a_session_keeps_to_names_or_to_ids(reader: Reader, first: int, then: int) -> None:
    reader.version = first
    await reader.told(*ALL)
    reader.version = then
    assert (await reader.fetch()).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_topic_made_again_does_not_continue_in_a_session(kafka: KafkaServer, reader: Reader) -> None:
    """Its name is known from the time of the old one, and its id is not that of the session (INCONSISTENT_TOPIC_ID)."""
    reader.version = 17
    await reader.told(ALL[0])
    await kafka.broker.topics.delete(TOPIC)
    request = {"session_id": reader.session_id, "max_wait_ms": PARKED_MS}
    answer = await reader.client.call(fetch_of([], session_epoch=1, **request), 17)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await kafka.broker.topics.create(TOPIC)
    await produced(reader.client, batch("of the new one"))
    answer = await reader.client.call(fetch_of([], session_epoch=2, **request), 17)
    [partition] = answer.responses[0].partitions
    assert (partition.error_code, partition.records) == (ErrorCode.INCONSISTENT_TOPIC_ID, b"")


async def test_what_is_asked_for_and_forgotten_at_once_is_forgotten(reader: Reader) -> None:
    await reader.told(*ALL[:2])
    assert await reader.told(ALL[2], forgotten=(2,)) == {}
    await produced(reader.client, batch("x"), partition=2)
    assert await reader.told() == {}


async def test_a_session_whose_last_partition_is_forgotten_ends(reader: Reader) -> None:
    await reader.told(ALL[0])
    before = reader.session_id
    assert await reader.told(forgotten=(0,)) == {}
    assert reader.session_id == 0
    answer = await reader.client.call(fetch_of([], session_id=before, session_epoch=2), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_may_begin_without_partitions_or_with_a_topic_not_yet_there(reader: Reader) -> None:
    assert await reader.told() == {}
    assert reader.session_id > 0
    assert set(await reader.told(ALL[0])) == {0}
    topic = {"topic": "", "topic_id": b"\x07" * 16, "partitions": [fetch_partition()]}
    answer = await reader.client.call(fetch_of([topic], session_epoch=0), 17)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert answer.session_id > 0


async def test_a_partition_that_a_topic_made_again_does_not_have_is_unknown(kafka: KafkaServer, reader: Reader) -> None:
    reader.version = 17
    await reader.told(ALL[2])
    await kafka.broker.topics.delete(TOPIC)
    await kafka.broker.topics.create(TOPIC)
    answer = await reader.client.call(fetch_of([], session_id=reader.session_id, session_epoch=1), 17)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


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


def test_a_session_has_a_limit_of_partitions(cache: FetchSessions) -> None:
    assert cache.open(partitions(MAX_SESSION_PARTITIONS + 1), by_id=False) is None
    session = opened(cache, MAX_SESSION_PARTITIONS)
    with pytest.raises(RequestError, match=r"^FETCH_SESSION_ID_NOT_FOUND"):
        polls(cache, session, partitions(1, "another"))
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
