"""Share-partitions of a running broker: locks end by its clock, what is said is on the device before it counts, a restart
forgets who had what and nothing else. What is shown of them: who has what and until when, and what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.coordinator.share_group_records import SHARE_GROUP_STATE_TOPIC
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.records.builder import build_batch
from triolog.protocol.types import TopicPartition
from triolog.server.broker import (
    Acknowledgement,
    AcquireMode,
    Broker,
    OffsetReset,
    RecordState,
    ShareConfig,
    ShareFetch,
    ShareHeartbeat,
    ShareKey,
    SharePartitionView,
)

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, until
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS

GROUP: Final = "group"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_S: Final = 30
STATE: Final = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
CONFIG: Final = ShareConfig(offset_reset=OffsetReset.EARLIEST, delivery_count_limit=2)


def key_of(broker: Broker) -> ShareKey:
    return ShareKey(GROUP, broker.topics.id_of(TOPIC), 0)


async def ten_records(broker: Broker) -> None:
    broker.shares.config_of = lambda _: CONFIG
    if broker.shares.read_summary(*key_of(broker)) is None:
        await broker.shares.initialize(*key_of(broker))
        await broker.writer.append(PARTITION, build_batch([(START_MS, None, b"value", ())] * 10))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with one_partition(tmp_path) as broker:
        await ten_records(broker)
        yield broker


def asked(broker: Broker, member: str, max_records: int = 100) -> ShareFetch:
    return ShareFetch(
        group_id=GROUP,
        member_id=member,
        partitions=[key_of(broker)],
        min_bytes=1,
        max_bytes=2**20,
        max_records=max_records,
        batch_size=100,
        mode=AcquireMode.RECORD_LIMIT,
    )


async def take(broker: Broker, member: str = "a", max_records: int = 100) -> Sequence[tuple[int, int, int]]:
    fetched, _ = await broker.share_fetches.take(asked(broker, member, max_records), is_last=True)
    assert all(each.error is None for each in fetched)
    return [acquired for each in fetched for acquired in each.acquired]


async def say(broker: Broker, first: int, last: int, kind: int, member: str = "a") -> None:
    await broker.shares.acknowledge(key_of(broker), member, [Acknowledgement(first, last, [kind])])


async def test_a_lock_ends_and_who_waits_gets_the_records(broker: Broker, mock_clock: trio.testing.MockClock) -> None:
    assert await take(broker) == [(0, 9, 1)]
    mock_clock.jump(LOCK_S - 1)
    assert await take(broker, "b") == await take(broker, "b", 3) == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.share_fetches.wait, asked(broker, "b"))
        mock_clock.jump(1.01)
    assert await take(broker, "b") == [(0, 9, 2)]
    assert await take(broker, "c") == []
    with pytest.raises(RequestError, match=r"^INVALID_RECORD_STATE"):
        await say(broker, 0, 9, ACCEPT)
    mock_clock.jump(LOCK_S + 0.01)
    await until(lambda: broker.shares.in_flight(*key_of(broker)) == (10, 10, 0, 0))
    await until(lambda: broker.shares.read_summary(*key_of(broker)) == (0, 10, 0, 0))


async def test_a_renewed_lock_begins_anew(broker: Broker, mock_clock: trio.testing.MockClock) -> None:
    await take(broker)
    mock_clock.jump(LOCK_S - 1)
    await say(broker, 0, 4, 4)
    mock_clock.jump(LOCK_S - 1)
    await until(lambda: broker.shares.in_flight(*key_of(broker)) == (0, 10, 5, 0))
    await say(broker, 0, 4, ACCEPT)
    assert await take(broker, "b") == [(5, 9, 2)]


async def test_what_was_acknowledged_never_comes_again_and_the_rest_with_its_delivery_count(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await ten_records(broker)
        assert await take(broker) == [(0, 9, 1)]
        await say(broker, 2, 4, ACCEPT)
        await say(broker, 6, 7, RELEASE)
        summary = broker.shares.read_summary(*key_of(broker))
        assert summary == (0, 0, 0, 3)
    async with one_partition(tmp_path) as broker:
        await ten_records(broker)
        assert broker.shares.read_summary(*key_of(broker)) == summary
        assert await take(broker) == [(0, 1, 1), (5, 5, 1), (6, 7, 2), (8, 9, 1)]


async def test_nobody_is_told_what_is_not_on_the_device(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        await ten_records(broker)
        await take(broker)
        async with held(fs.hold("sync", ".log"), say, broker, 0, 9, ACCEPT):
            assert broker.shares.read_summary(*key_of(broker)) == (0, -1, 0, -1)
            assert broker.shares.in_flight(*key_of(broker)) == (0, 10, 10, 10)
            with pytest.raises(RequestError):
                await say(broker, 0, 0, ACCEPT)
        assert broker.shares.in_flight(*key_of(broker)) == (10, 10, 0, 0)


async def test_what_cannot_be_stored_has_not_happened(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.shares.sessions_at(0).begin(GROUP, "a", [key_of(broker)], object(), says_something=False)
    await take(broker)
    actor_of(broker, STATE).take_offline("it burns")
    with pytest.raises(RequestError, match=r"^COORDINATOR_NOT_AVAILABLE"):
        await say(broker, 0, 9, ACCEPT)
    await broker.shares.release_member(GROUP, "a", 0)
    assert "records of member a wait" in caplog.text
    assert broker.shares.in_flight(*key_of(broker)) == (0, 10, 10, 0)


async def test_who_spoke_with_the_share_partition_before_it_began_anew_is_fenced(broker: Broker) -> None:
    await take(broker)
    share = broker.shares.find(key_of(broker))
    assert share is not None
    await broker.shares.initialize(*key_of(broker), start_offset=5, state_epoch=1)
    with pytest.raises(RequestError, match=r"^NOT_LEADER_OR_FOLLOWER"):
        await share.acknowledge("a", [Acknowledgement(0, 9, [ACCEPT])])
    assert await take(broker) == [(5, 9, 1)]


async def test_a_member_that_is_gone_gives_back_what_it_had(broker: Broker) -> None:
    broker.shares.sessions_at(0).begin(GROUP, "a", [key_of(broker)], object(), says_something=False)
    await take(broker, max_records=4)
    await take(broker, "b", max_records=3)
    await broker.shares.release_member(GROUP, "a", 0)
    await broker.shares.release_member(GROUP, "nobody", 0)
    assert await take(broker, "c") == [(0, 3, 2), (7, 9, 1)]


async def test_batches_that_others_have_are_passed_over(broker: Broker) -> None:
    await broker.writer.append(PARTITION, build_batch([(START_MS, None, b"value", ())] * 10))
    assert (await take(broker, "a", 10), await take(broker, "b", 10)) == ([(0, 9, 1)], [(10, 19, 1)])
    await say(broker, 0, 4, RELEASE)
    assert await take(broker, "c", 7) == [(0, 4, 2)]


async def test_one_fetch_reads_a_partition_at_a_time(broker: Broker) -> None:
    share = await broker.shares.open(key_of(broker))
    share.is_being_read = True
    assert await broker.share_fetches.take(asked(broker, "a"), is_last=False) == ([], False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.share_fetches.wait, asked(broker, "a"))
        await until(lambda: len(share.waiters) == 1)
        share.is_being_read = False
        share.waiters.wake_all()
    assert await take(broker) == [(0, 9, 1)]


async def test_what_is_stored_of_a_deleted_topic_is_forgotten(broker: Broker) -> None:
    key = key_of(broker)
    await take(broker)
    assert list(broker.shares.stored_of(GROUP)) == [(key.topic_id, 0)]
    request = asked(broker, "a")
    await broker.topics.delete(TOPIC)
    fetched, is_enough = await broker.share_fetches.take(request, is_last=False)
    assert is_enough
    assert [each.error and each.error.code for each in fetched] == [ErrorCode.UNKNOWN_TOPIC_ID]
    await broker.shares._forget_deleted()
    assert list(broker.shares.stored_of(GROUP)) == []


async def test_what_groups_did_with_a_topic_goes_with_it_at_once(broker: Broker) -> None:
    key = key_of(broker)
    await take(broker, max_records=4)
    await broker.topics.create("other", 2)
    other = [ShareKey(GROUP, broker.topics.id_of("other"), number) for number in range(2)]
    assert await broker.shares.initialize_all(GROUP, [each[1:] for each in other]) == {}
    await broker.topics.delete(TOPIC)
    assert broker.shares.read_summary(*key) is None
    assert broker.shares.find(key) is None
    assert set(broker.shares.stored_of(GROUP)) == {each[1:] for each in other}
    with pytest.raises(RequestError, match=r"^UNKNOWN_TOPIC_OR_PARTITION"):
        await broker.shares.acknowledge(key, "a", [Acknowledgement(0, 3, [ACCEPT])])


async def test_what_becomes_of_records_is_counted(broker: Broker, mock_clock: trio.testing.MockClock) -> None:
    await take(broker, max_records=8)
    for first, last, kind in ((0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, REJECT), (4, 4, GAP)):
        await say(broker, first, last, kind)
    await say(broker, 5, 5, RENEW)
    told = await broker.shares.statistics()
    assert told.in_flight == {GROUP: 3}
    assert attrs.asdict(told.counters) == {
        "acquired": 8,
        "accepted": 2,
        "released": 1,
        "rejected": 1,
        "gaps": 1,
        "renewed": 1,
        "lock_timeouts": 0,
        "archived": 0,
        "dead_lettered": 0,
        "dead_letters_failed": 0,
    }
    assert await take(broker, max_records=1) == [(2, 2, 2)]
    mock_clock.jump(LOCK_S + 1)
    await until(lambda: broker.shares.counters.lock_timeouts == 4)
    told = await broker.shares.statistics()
    assert (told.in_flight, told.counters.acquired, told.counters.lock_timeouts) == ({GROUP: 0}, 9, 4)
    assert told.counters.archived == 1, "the second delivery was the last"


async def join(broker: Broker) -> None:
    """A share group with one member, and ten records that it may read."""
    broker.shares.config_of = lambda _: CONFIG
    await broker.groups.share.heartbeat(ShareHeartbeat(group_id=GROUP, member_id="a", topic_names=(TOPIC,)))
    await broker.writer.append(PARTITION, build_batch([(START_MS, None, b"value", ())] * 10))


@pytest.fixture
async def joined(tmp_path: Path) -> AsyncIterator[Broker]:
    async with one_partition(tmp_path) as broker:
        await join(broker)
        yield broker


def seen(broker: Broker) -> SharePartitionView:
    (key,) = broker.share_views.keys(GROUP)
    return broker.share_views.view(key)


async def test_before_anybody_asks_it_is_not_known_where_a_group_begins(joined: Broker) -> None:
    view = seen(joined)
    assert (view.topic_partition, view.start_offset, view.end_offset, view.lag) == (PARTITION, None, 10, None)
    assert (view.records, view.acquired_count, view.deliveries) == ((), 0, {})


async def test_what_members_have_is_shown_with_the_end_of_its_lock(joined: Broker) -> None:
    await take(joined, max_records=4)
    view = seen(joined)
    [records] = view.records
    assert (records.first_offset, records.last_offset, records.count) == (0, 3, 4)
    assert (records.state, records.member_id, records.delivery_count) == (RecordState.ACQUIRED, "a", 1)
    assert records.lock_ends_ms is not None
    assert abs(records.lock_ends_ms - joined.now_ms() - LOCK_S * 1000) < 10_000
    assert (view.start_offset, view.acquired_count, view.lag, view.deliveries) == (0, 4, 10, {1: 4})


async def test_the_lag_is_what_is_not_done_and_deliveries_are_counted_for_it(joined: Broker) -> None:
    await take(joined, max_records=6)
    await say(joined, 3, 4, ACCEPT)
    await say(joined, 5, 5, RELEASE)
    await take(joined, "b", 1)
    view = seen(joined)
    assert [(each.first_offset, each.state.name, each.delivery_count, each.member_id) for each in view.records] == [
        (0, "ACQUIRED", 1, "a"),
        (3, "ACKNOWLEDGED", 1, None),
        (5, "ACQUIRED", 2, "b"),
    ]
    assert (view.start_offset, view.lag, view.acquired_count, view.deliveries) == (0, 8, 4, {1: 3, 2: 1})


async def test_after_a_restart_it_is_what_is_stored(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await join(broker)
        await take(broker, max_records=6)
        await say(broker, 0, 1, ACCEPT)
        await say(broker, 3, 3, RELEASE)
    async with one_partition(tmp_path) as broker:
        view = seen(broker)
        assert (view.start_offset, view.end_offset, view.lag, view.acquired_count) == (2, 10, 8, 0)
        assert view.deliveries == {1: 1}


async def test_a_topic_that_is_gone_is_not_shown_nor_a_group_that_nobody_knows(joined: Broker) -> None:
    await joined.topics.create("other", 2)
    await joined.groups.share.heartbeat(ShareHeartbeat(group_id=GROUP, member_id="b", topic_names=("other",)))
    places = [joined.share_views.view(key).topic_partition for key in joined.share_views.keys(GROUP)]
    assert places == [TopicPartition("other", 0), TopicPartition("other", 1), PARTITION]
    await joined.topics.delete("other")
    assert joined.share_views.keys(GROUP) == [ShareKey(GROUP, joined.topics.id_of(TOPIC), 0)]
    assert joined.share_views.keys("nobody") == []
