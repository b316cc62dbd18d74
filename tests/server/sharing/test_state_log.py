"""The log of share groups' state: what is stored is there after a crash, and what is needed no longer is deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.protocol.coordinator.share_group_records import SHARE_GROUP_STATE_TOPIC, ShareStateValue
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.limits import MIB
from triolog.protocol.records.batch import iter_batches
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, FetchPartition
from triolog.server.loop.procedures import perform
from triolog.server.sharing import state_log
from triolog.server.sharing.state.stored_state import UPDATES_PER_SNAPSHOT, StoredShare, plan_write
from triolog.server.sharing.state.values import RecordState, ShareKey, StateBatch
from triolog.server.sharing.state_log import ShareStateLog

from tests.support.brokers import actor_of, running_broker

LOG: Final = TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)
KEY: Final = ShareKey("group", bytes(range(16)), 0)
OTHER: Final = ShareKey("group", bytes(range(16)), 1)


@pytest.fixture
async def broker(fast_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(fast_path) as broker:
        yield broker


async def opened(broker: Broker) -> ShareStateLog:
    """As another server would read it."""
    log = ShareStateLog.of(broker._manager, broker.now_ms)
    await log.load()
    return log


def end_of_log(broker: Broker) -> int:
    return actor_of(broker, LOG).log.log_end_offset


async def batches_after(broker: Broker, offset: int) -> list[int]:
    """How many records each batch has from there on."""
    answers, _ = await perform(broker.reader.read([FetchPartition(LOG, offset, 4 * MIB)], max_bytes=4 * MIB))
    assert answers[0].fetched is not None
    return [header.last_offset - header.base_offset + 1 for header, _ in iter_batches(answers[0].fetched.records)]


def acknowledged(first: int, last: int, start_offset: int = 0) -> Callable[[StoredShare | None], ShareStateValue]:
    def plan(before: StoredShare | None) -> ShareStateValue:
        assert before is not None
        batch = StateBatch(first, last, RecordState.ACKNOWLEDGED, 1)
        return plan_write(
            before, start_offset=start_offset, delivery_complete_count=1, batches=[batch], leader_epoch=0, now_ms=1
        )

    return plan


def start_offset(log: ShareStateLog, key: ShareKey) -> int | None:
    stored = log.find(key)
    return None if stored is None else stored.start_offset


async def test_what_is_stored_is_read_again_until_its_snapshot_is_gone(broker: Broker) -> None:
    log = await opened(broker)
    assert log.find(KEY) is None
    await log.initialize(KEY, start_offset=3, state_epoch=2)
    await log.write(KEY, acknowledged(5, 7, 3))
    await log.write(KEY, acknowledged(8, 8, 4))
    for key, code in (
        (KEY, ErrorCode.FENCED_STATE_EPOCH),
        (ShareKey("", bytes(16), 0), ErrorCode.INVALID_GROUP_ID),
        (ShareKey("x" * 40_000, bytes(16), 0), ErrorCode.INVALID_GROUP_ID),
    ):
        with pytest.raises(RequestError) as caught:
            await log.initialize(key, state_epoch=1)
        assert caught.value.code is code
    stored = log.find(KEY)
    assert stored is not None
    assert (stored.state_epoch, stored.start_offset, stored.batches) == (2, 4, ((5, 8, RecordState.ACKNOWLEDGED, 1),))
    again = await opened(broker)
    assert again.find(KEY) == stored
    assert list(again.known()) == [KEY]
    await broker._manager.retention.prune(LOG, 1)
    assert (await opened(broker)).find(KEY) is None
    await log.delete(KEY)
    await log.delete(OTHER)
    assert log.find(KEY) is None
    assert list((await opened(broker)).known()) == []


async def test_writes_of_one_share_partition_come_one_after_the_other(broker: Broker) -> None:
    log = await opened(broker)
    await log.initialize(KEY)
    async with trio.open_nursery() as nursery:
        for offset in range(UPDATES_PER_SNAPSHOT + 20):
            nursery.start_soon(log.write, KEY, acknowledged(offset, offset))
    stored = log.find(KEY)
    assert stored is not None
    assert stored.batches == ((0, UPDATES_PER_SNAPSHOT + 19, RecordState.ACKNOWLEDGED, 1),)
    assert (stored.snapshot_epoch, stored.updates) == (1, 19)
    assert (await opened(broker)).find(KEY) == stored


async def test_what_is_before_all_snapshots_is_deleted(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "COLD_RECORDS", 100)
    async with running_broker(fast_path) as broker:
        log = await opened(broker)
        await log.initialize(OTHER, start_offset=9)
        await log.initialize(KEY)
        for offset in range(90):
            await log.write(KEY, acknowledged(offset, offset))
        await log.prune()
        assert actor_of(broker, LOG).snapshot().log_start_offset == 0
        for offset in range(90, UPDATES_PER_SNAPSHOT + 1):
            await log.write(KEY, acknowledged(offset, offset))
        await log.prune()
        snapshot = actor_of(broker, LOG).snapshot()
        assert snapshot.log_start_offset == UPDATES_PER_SNAPSHOT + 2
        assert snapshot.high_watermark == UPDATES_PER_SNAPSHOT + 4
        stored = {key: log.find(key) for key in log.known()}
    async with running_broker(fast_path) as broker:
        again = await opened(broker)
        assert actor_of(broker, LOG).snapshot().log_start_offset == UPDATES_PER_SNAPSHOT + 2
        assert {key: again.find(key) for key in again.known()} == stored


async def test_a_log_that_cannot_be_read_says_so(broker: Broker) -> None:
    log = await opened(broker)
    await log.initialize(KEY)
    actor_of(broker, LOG).take_offline("it burns")
    log = await opened(broker)
    with pytest.raises(RequestError, match="cannot serve the state of share groups"):
        log.find(KEY)
    await log.prune()


async def test_many_share_partitions_begin_in_one_batch(broker: Broker) -> None:
    log = await opened(broker)
    keys = [ShareKey("group", bytes(16), number) for number in range(300)]
    await log.initialize(keys[7], state_epoch=5)
    before = end_of_log(broker)
    failed = await log.initialize_all(keys, start_offset=3, state_epoch=1)
    assert {key: error.code for key, error in failed.items()} == {keys[7]: ErrorCode.FENCED_STATE_EPOCH}
    assert await batches_after(broker, before) == [299]
    again = await opened(broker)
    assert {key for key in again.known() if start_offset(again, key) == 3} == set(keys) - {keys[7]}
    assert await again.delete_all([*keys, ShareKey("nobody", bytes(16), 0)]) == {}
    assert list((await opened(broker)).known()) == []
    before = end_of_log(broker)
    large = [ShareKey("g" * 32_000, bytes(16), number) for number in range(20)]
    assert await log.initialize_all(large) == {}
    assert await batches_after(broker, before) == [8, 8, 4], "as many names as fit"


async def test_more_than_there_may_be_do_not_begin(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "MAX_SHARES", 3)
    log = await opened(broker)
    keys = [ShareKey("group", bytes(16), number) for number in range(5)]
    assert set(await log.initialize_all(keys)) == set(keys[3:])
    assert set(log.known()) == set(keys[:3])
