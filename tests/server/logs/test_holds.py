"""Groups that hold a log: what they have not committed stays, in every way that records go, and what goes is seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from triolog.protocol.errors import RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.log.derived_files import NOTHING_DROPPED, Dropped

from tests.support.brokers import PARTITION, TOPIC, actor_of, running_broker, value, values_from
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import Clock, batch

SIZE: Final = len(batch(value=b"0" * 10))
DAY_MS: Final = 86_400_000
HELD: Final = {
    "retention.hold.groups": "uplink",
    "retention.ms": "1",
    "segment.bytes": str(5 * SIZE),
    "file.delete.delay.ms": "0",
}
RESERVE: Final = 1_000_000
pytestmark = pytest.mark.usefixtures("mock_clock")
"""Time stands still: no maintenance beside these tests."""


@asynccontextmanager
async def held_topic(
    directory: Path, clock: Clock, records: int = 20, *, fs: GateFileSystem | None = None, reserve: int = 0, **topic: str
) -> AsyncIterator[Broker]:
    """Segments of five records, which retention is to take a moment later."""
    keys = HELD | {key.replace("_", "."): text for key, text in topic.items()}
    async with running_broker(directory, clock=clock, fs=fs, disk_reserve_bytes=reserve) as broker:
        if TOPIC not in broker.topics.names():
            await broker.topics.create(TOPIC, 1, keys)
            for number in range(records):
                await broker.writer.append(PARTITION, value(f"{number:010d}"))
        clock.advance(DAY_MS)
        yield broker


async def commit(broker: Broker, offset: int, group: str = "uplink", partition: TopicPartition = PARTITION) -> None:
    assert await broker.offsets.commit(group, [(partition, offset, None)]) == [None]


async def retain(broker: Broker) -> int:
    await broker._manager.retention.run_pass()
    return actor_of(broker).log.log_start_offset


async def test_what_a_group_has_not_committed_is_held_and_without_a_commit_all_of_it(tmp_path: Path, clock: Clock) -> None:
    async with held_topic(tmp_path, clock) as broker:
        assert await retain(broker) == 0
        await commit(broker, 20, group="display")
        assert await retain(broker) == 0, "another group's commits do not count"
        await commit(broker, 12)
        assert await retain(broker) == 10
        assert len(await values_from(broker, offset=10)) == 10
        await commit(broker, 20)
        holds = broker._manager.holds
        holds.committed, known = None, holds.committed
        assert await retain(broker) == 10, "nothing goes before the offsets are known"
        holds.committed = known
        assert await retain(broker) == 20
        assert actor_of(broker).log.derived.dropped == NOTHING_DROPPED


async def test_the_group_that_is_furthest_behind_counts(tmp_path: Path, clock: Clock) -> None:
    async with held_topic(tmp_path, clock, retention_hold_groups="uplink,display") as broker:
        await commit(broker, 20)
        assert await retain(broker) == 0
        await commit(broker, 5, group="display")
        assert await retain(broker) == 5
        await broker.groups.delete("display")
        assert await retain(broker) == 5, "a group that is deleted has committed nothing"
        await broker.topics.alter_configs(TOPIC, {"retention.hold.groups": "uplink"}, [])
        assert await retain(broker) == 20


async def test_a_hold_outlives_a_restart_and_the_retention_of_offsets(tmp_path: Path, clock: Clock) -> None:
    async with held_topic(tmp_path, clock) as broker:
        await commit(broker, 12)
        await commit(broker, 1, group="display")
    clock.advance(30 * DAY_MS)
    async with held_topic(tmp_path, clock) as broker:
        assert await broker.groups.expire() == 1, "that of the group which nobody waits for"
        assert await retain(broker) == 10
        await broker.topics.alter_configs(TOPIC, {}, ["retention.hold.groups"])
        assert await broker.groups.expire() == 1
        assert await retain(broker) == 20


async def test_past_its_bounds_the_oldest_are_dropped(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    keys = {"disk_full_policy": "drop-oldest", "retention_hold_max_bytes": str(10 * SIZE)}
    async with held_topic(tmp_path, clock, **keys) as broker:
        await commit(broker, 2)
        assert await retain(broker) == 10
        assert actor_of(broker).log.derived.dropped == Dropped(8, 8 * SIZE, 2, 10)
    assert f"{PARTITION}: 8 records ({8 * SIZE} bytes) at offsets 2 to 9 were dropped" in caplog.text
    async with held_topic(tmp_path, clock) as broker:
        assert actor_of(broker).log.derived.dropped == Dropped(8, 8 * SIZE, 2, 10)


async def test_appends_past_its_bounds_await_a_commit(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with held_topic(tmp_path, clock, retention_hold_max_bytes=str(15 * SIZE)) as broker:
        guard = broker._manager.guard
        await commit(broker, 3)
        for _ in range(2):
            await guard.check()
        assert await retain(broker) == 0
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION.*uplink of retention\.hold\.groups has committed offset 3"):
            await broker.writer.append(PARTITION, value("x"))
        await commit(broker, 5)
        await guard.check()
        assert (await broker.writer.append(PARTITION, value("x"))).base_offset == 20
    said = [record.levelname for record in caplog.records if "hold" in record.getMessage()]
    assert said == ["ERROR", "WARNING"], "one line for each change"


async def test_a_full_disk_takes_what_is_held_last_and_tells_it(
    tmp_path: Path, clock: Clock, fs: GateFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"disk_full_policy": "drop-oldest", "retention_ms": "-1"}
    async with held_topic(tmp_path, clock, fs=fs, reserve=RESERVE, **keys) as broker:
        freely = {"retention.hold.groups": "", "retention.ms": "-1", "disk.full.policy": "drop-oldest"}
        await broker.topics.create("plain", 1, HELD | freely)
        plain = TopicPartition("plain", 0)
        for number in range(20):
            await broker.writer.append(plain, value(f"{number:010d}"))
        await commit(broker, 7)
        guard, starts = broker._manager.guard, []
        for segments in (1, 3, 1):
            fs.free = RESERVE - segments * 5 * SIZE
            await guard.check()
            starts.append([actor_of(broker, each).log.log_start_offset for each in (PARTITION, plain)])
        assert starts == [[5, 0], [5, 15], [10, 15]]
        assert actor_of(broker).log.derived.dropped == Dropped(3, 3 * SIZE, 7, 10)
    assert "at offsets 7 to 9 were dropped" in caplog.text


BATCH_SIZE = len(batch(value=b"0" * 10))
ORDERS = TopicPartition("orders", 0)


async def append(broker: Broker, count: int, text: str = "0" * 10) -> None:
    for _ in range(count):
        await broker.writer.append(ORDERS, value(text))


def keeping(size: int) -> dict[str, str]:
    """Configuration of a topic that is limited by size alone."""
    return {"retention.bytes": str(size), "retention.ms": "-1"}


async def test_retention_lets_segments_go_before_log_max_bytes_refuses_an_append(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topic={"segment.bytes": "5000"}, log_max_bytes=50_000) as broker:
        await broker.topics.create("orders", 1, keeping(10_000))
        await append(broker, 100, "0" * 1000)
        log = actor_of(broker, ORDERS).log
        assert log.log_end_offset == 100
        assert log.size_in_bytes <= 50_000
        assert log.log_start_offset > 0
        assert list((tmp_path / "orders-0").glob("*.deleted")) == [], "unlinked at once"
        await broker.topics.alter_configs("orders", {"retention.bytes": "-1"})
        with pytest.raises(RequestError, match="log_max_bytes"):
            await append(broker, 60, "0" * 1000)


async def test_retention_lets_segments_go_before_the_reserve_of_the_disk_refuses_an_append(tmp_path: Path) -> None:
    fs = GateFileSystem()
    async with running_broker(tmp_path, fs=fs, topic={"segment.bytes": str(5 * BATCH_SIZE)}, disk_reserve_bytes=1000) as broker:
        await broker.topics.create("orders", 1, keeping(10 * BATCH_SIZE))
        await append(broker, 30)
        fs.free = 900
        await broker._manager.guard.check()
        assert actor_of(broker, ORDERS).log.log_start_offset == 20
        assert list((tmp_path / "orders-0").glob("*.deleted")) == []


async def test_nothing_that_is_deleted_is_left_when_the_server_has_stopped(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topic={"segment.bytes": str(5 * BATCH_SIZE)}) as broker:
        await broker.topics.create("orders", 1, keeping(5 * BATCH_SIZE))
        await broker.topics.create("gone", 2)
        await append(broker, 30)
        assert await broker.logs.apply_retention() > 0
        await broker.topics.delete("gone")
        assert list((tmp_path / "orders-0").glob("*.deleted")) != []
        assert list(tmp_path.glob("gone-*-delete")) != []
    assert list((tmp_path / "orders-0").glob("*.deleted")) == []
    assert list(tmp_path.glob("gone-*")) == []


async def test_a_log_that_outgrows_its_retention_does_not_wait_for_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triolog.server.logs.log_retention.OUTGROWN_BYTES", 0)
    async with running_broker(tmp_path, topic={"segment.bytes": str(5 * BATCH_SIZE)}) as broker:
        await broker.topics.create("orders", 1, keeping(20 * BATCH_SIZE))
        retention, log = broker._manager.retention, actor_of(broker, ORDERS).log
        await append(broker, 45)
        assert (await retention.run_outgrown(), log.log_start_offset) == (0, 0), "twice retention.bytes and a segment"
        await append(broker, 1)
        assert (await retention.run_outgrown(), log.log_start_offset) == (5, 25)
        await broker.topics.alter_configs("orders", {"retention.bytes": "-1"})
        await append(broker, 100)
        assert await retention.run_outgrown() == 0
