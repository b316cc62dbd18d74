"""What share groups have begun, as it is shown: who has what and until when, how often it was given, and what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
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

from tests.support.brokers import PARTITION, TOPIC, one_partition
from tests.support.logs import START_MS

GROUP: Final = "group"
ACCEPT, RELEASE = 1, 2
LOCK_MS: Final = 30_000
CONFIG: Final = ShareConfig(offset_reset=OffsetReset.EARLIEST, record_lock_duration_ms=LOCK_MS)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A share group with one member, and ten records that it may read."""
    async with one_partition(tmp_path) as broker:
        await joined(broker)
        await broker.writer.append(PARTITION, build_batch([(START_MS, None, b"value", ())] * 10))
        yield broker


async def joined(broker: Broker) -> None:
    broker.shares.config_of = lambda _: CONFIG
    await broker.groups.share.heartbeat(ShareHeartbeat(group_id=GROUP, member_id="a", topic_names=(TOPIC,)))


async def take(broker: Broker, max_records: int, member: str = "a") -> None:
    fetch = ShareFetch(
        group_id=GROUP,
        member_id=member,
        partitions=broker.share_views.keys(GROUP),
        min_bytes=1,
        max_bytes=2**20,
        max_records=max_records,
        batch_size=100,
        mode=AcquireMode.RECORD_LIMIT,
    )
    await broker.share_fetches.take(fetch, is_last=True)


async def say(broker: Broker, first: int, last: int, kind: int) -> None:
    (key,) = broker.share_views.keys(GROUP)
    await broker.shares.acknowledge(key, "a", [Acknowledgement(first, last, [kind])])


def seen(broker: Broker) -> SharePartitionView:
    (key,) = broker.share_views.keys(GROUP)
    return broker.share_views.view(key)


async def test_before_anybody_asks_it_is_not_known_where_a_group_begins(broker: Broker) -> None:
    view = seen(broker)
    assert (view.topic_partition, view.start_offset, view.end_offset, view.lag) == (PARTITION, None, 10, None)
    assert (view.records, view.acquired_count, view.deliveries) == ((), 0, {})


async def test_what_members_have_is_shown_with_the_end_of_its_lock(broker: Broker) -> None:
    await take(broker, 4)
    view = seen(broker)
    [records] = view.records
    assert (records.first_offset, records.last_offset, records.count) == (0, 3, 4)
    assert (records.state, records.member_id, records.delivery_count) == (RecordState.ACQUIRED, "a", 1)
    assert records.lock_ends_ms is not None
    assert abs(records.lock_ends_ms - broker.now_ms() - LOCK_MS) < 10_000
    assert (view.start_offset, view.acquired_count, view.lag, view.deliveries) == (0, 4, 10, {1: 4})


async def test_the_lag_is_what_is_not_done_and_deliveries_are_counted_for_it(broker: Broker) -> None:
    await take(broker, 6)
    await say(broker, 3, 4, ACCEPT)
    await say(broker, 5, 5, RELEASE)
    await take(broker, 1, "b")
    view = seen(broker)
    assert [(each.first_offset, each.state.name, each.delivery_count, each.member_id) for each in view.records] == [
        (0, "ACQUIRED", 1, "a"),
        (3, "ACKNOWLEDGED", 1, None),
        (5, "ACQUIRED", 2, "b"),
    ]
    assert (view.start_offset, view.lag, view.acquired_count, view.deliveries) == (0, 8, 4, {1: 3, 2: 1})


async def test_after_a_restart_it_is_what_is_stored(tmp_path: Path) -> None:
    async with one_partition(tmp_path) as broker:
        await joined(broker)
        await broker.writer.append(PARTITION, build_batch([(START_MS, None, b"value", ())] * 10))
        await take(broker, 6)
        await say(broker, 0, 1, ACCEPT)
        await say(broker, 3, 3, RELEASE)
    async with one_partition(tmp_path) as broker:
        view = seen(broker)
        assert (view.start_offset, view.end_offset, view.lag, view.acquired_count) == (2, 10, 8, 0)
        assert view.deliveries == {1: 1}


async def test_a_topic_that_is_gone_is_not_shown_nor_a_group_that_nobody_knows(broker: Broker) -> None:
    await broker.topics.create("other", 2)
    await broker.groups.share.heartbeat(ShareHeartbeat(group_id=GROUP, member_id="b", topic_names=("other",)))
    places = [broker.share_views.view(key).topic_partition for key in broker.share_views.keys(GROUP)]
    assert places == [TopicPartition("other", 0), TopicPartition("other", 1), PARTITION]
    await broker.topics.delete("other")
    assert broker.share_views.keys(GROUP) == [ShareKey(GROUP, broker.topics.id_of(TOPIC), 0)]
    assert broker.share_views.keys("nobody") == []
