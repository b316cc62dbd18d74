"""Clocks that jump: what retention by time makes of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio.testing
from triolog.server.system.clock import HOLD_S, MAX_STEP_MS, ClockWatch

from tests.support.brokers import PARTITION, actor_of, one_partition, until, value
from tests.support.logs import Clock

YEAR_MS = 365 * 86_400_000
HOUR_MS = 3_600_000


async def test_time_that_passes_is_trusted(mock_clock: trio.testing.MockClock) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    for seconds in (1, 60, 86_400):
        mock_clock.jump(seconds)
        wall.advance(seconds * 1000)
        watch.look()
        assert watch.is_trusted


async def test_a_jump_ahead_holds_retention_by_time_for_an_hour_and_is_believed_then(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    mock_clock.jump(5)
    wall.advance(5000 + YEAR_MS)
    with caplog.at_level(logging.WARNING):
        watch.look()
    assert f"jumped ahead by {YEAR_MS} ms" in caplog.text
    assert not watch.is_trusted
    mock_clock.jump(HOLD_S - 1)
    wall.advance(round(HOLD_S - 1) * 1000)
    watch.look()
    assert not watch.is_trusted
    mock_clock.jump(1)
    assert watch.is_trusted


async def test_a_clock_that_is_set_right_again_is_trusted_at_once(mock_clock: trio.testing.MockClock) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    wall.advance(YEAR_MS)
    watch.look()
    assert not watch.is_trusted
    wall.advance(-YEAR_MS)
    watch.look()
    assert watch.is_trusted


async def test_a_jump_back_is_said_and_a_small_step_is_not(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Clock()
    watch = ClockWatch(wall)
    with caplog.at_level(logging.WARNING):
        wall.advance(MAX_STEP_MS)
        watch.look()
        wall.advance(-MAX_STEP_MS)
        watch.look()
        assert caplog.text == ""
        wall.advance(-HOUR_MS * 2)
        watch.look()
    assert watch.is_trusted
    assert f"jumped back by {2 * HOUR_MS} ms" in caplog.text


async def test_a_clock_a_year_ahead_does_not_expire_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    settings = {"segment.bytes": "100", "retention.bytes": "250", "retention.ms": str(HOUR_MS)}
    async with one_partition(tmp_path, clock=clock, topic=settings, retention_check_interval_ms=100) as broker:
        await broker.writer.append(PARTITION, value("x"))
        with caplog.at_level(logging.WARNING):
            clock.advance(YEAR_MS)
            await until(lambda: "jumped ahead" in caplog.text)
        for _ in range(5):
            await broker.writer.append(PARTITION, value("y"))
        await until(lambda: actor_of(broker).log.log_start_offset > 0)
        assert actor_of(broker).log.log_start_offset == 2, "retention by size goes on"
        await broker._manager.retention.run_pass(by_time=False)
        assert actor_of(broker).log.log_start_offset == 2
