"""A start that is cancelled, or gets a signal, ends with the reads that are under way. The next start recovers."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from triolog.protocol.types import TopicPartition
from triolog.server.app import serve
from triolog.server.broker import open_broker_core
from triolog.server.config.broker_config import Address
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE

from tests.support.brokers import PATIENCE_S, TOPIC, broker_config, running_broker, value, values_from
from tests.support.gate_fs import GateFileSystem

LOGS = 8
OPENERS = 2


@pytest.fixture
async def killed(tmp_path: Path) -> Path:
    """A directory whose logs are all to be scanned."""
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, LOGS)
        for number in range(LOGS):
            await broker.writer.append(TopicPartition(TOPIC, number), value(str(number)))
    for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
        (tmp_path / name).unlink()
    return tmp_path


async def given_up(start: Callable[[], Awaitable[None]], stop: Callable[[], None], fs: GateFileSystem) -> set[str]:
    """Stop a start that is reading; answers the logs that it has read."""
    with trio.fail_after(PATIENCE_S), fs.hold("read", ".log") as gate:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            await gate.reached(OPENERS)
            stop()
            await trio.testing.wait_all_tasks_blocked(0.05)
            gate.release()
    return {call.path for call in fs.calls if call.operation == "read" and call.path.endswith(".log")}


async def check_recovered(directory: Path) -> None:
    assert not (directory / CLEAN_SHUTDOWN_FILE).exists()
    async with running_broker(directory) as broker:
        for number in range(LOGS):
            assert await values_from(broker, TopicPartition(TOPIC, number)) == [str(number).encode()]


async def test_a_cancelled_start_ends_with_the_reads_under_way(killed: Path, fs: GateFileSystem) -> None:
    scope = trio.CancelScope()

    async def start() -> None:
        with scope:
            async with running_broker(killed, fs=fs):
                raise AssertionError("it has started")

    assert len(await given_up(start, scope.cancel, fs)) == OPENERS
    assert scope.cancelled_caught
    assert fs.open_paths == []
    await check_recovered(killed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_during_recovery_ends_the_server_at_once(
    killed: Path, fs: GateFileSystem, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("triolog.server.app.open_broker_core", partial(open_broker_core, fs=fs))
    config = broker_config(killed, native=Address("127.0.0.1", 0))

    async def start() -> None:
        await serve(config, lambda _: pytest.fail("it has started"))

    assert len(await given_up(start, lambda: os.kill(os.getpid(), number), fs)) == OPENERS
    assert f"stopping signal={signal.Signals(number).name}: the start is given up" in caplog.text
    await check_recovered(killed)
