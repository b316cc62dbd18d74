"""What may go goes before an append is refused, and before the server ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from triolog.protocol.errors import RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker

from tests.support.brokers import actor_of, running_broker, value
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import batch

SIZE = len(batch(value=b"0" * 10))
ORDERS = TopicPartition("orders", 0)
pytestmark = pytest.mark.usefixtures("mock_clock")
"""Time stands still: no maintenance beside these tests."""


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
    async with running_broker(tmp_path, fs=fs, topic={"segment.bytes": str(5 * SIZE)}, disk_reserve_bytes=1000) as broker:
        await broker.topics.create("orders", 1, keeping(10 * SIZE))
        await append(broker, 30)
        fs.free = 900
        await broker._manager.guard.check()
        assert actor_of(broker, ORDERS).log.log_start_offset == 20
        assert list((tmp_path / "orders-0").glob("*.deleted")) == []


async def test_nothing_that_is_deleted_is_left_when_the_server_has_stopped(tmp_path: Path) -> None:
    async with running_broker(tmp_path, topic={"segment.bytes": str(5 * SIZE)}) as broker:
        await broker.topics.create("orders", 1, keeping(5 * SIZE))
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
    async with running_broker(tmp_path, topic={"segment.bytes": str(5 * SIZE)}) as broker:
        await broker.topics.create("orders", 1, keeping(20 * SIZE))
        retention, log = broker._manager.retention, actor_of(broker, ORDERS).log
        await append(broker, 45)
        assert (await retention.run_outgrown(), log.log_start_offset) == (0, 0), "twice retention.bytes and a segment"
        await append(broker, 1)
        assert (await retention.run_outgrown(), log.log_start_offset) == (5, 25)
        await broker.topics.alter_configs("orders", {"retention.bytes": "-1"})
        await append(broker, 100)
        assert await retention.run_outgrown() == 0
