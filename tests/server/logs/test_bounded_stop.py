"""`stop_timeout_ms` bounds the whole stop, whatever a coordinator is in the middle of."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE

from tests.support.brokers import PARTITION, TOPIC, running_broker, until, values_from
from tests.support.gate_fs import GateFileSystem
from tests.support.transactions import TransactionalProducer


async def test_a_step_of_a_coordinator_does_not_hold_up_the_stop(
    tmp_path: Path, fs: GateFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is given up with the logs. The next start carries it out."""
    monkeypatch.setattr("triolog.server.broker.coordinators.OVERDUE_CHECK_S", 0.01)
    with ExitStack() as holding:
        async with trio.open_nursery() as nursery:
            async with running_broker(tmp_path, fs=fs, durability="fsync", stop_timeout_ms=100) as broker:
                await broker.topics.create(TOPIC)
                producer = await TransactionalProducer.start(broker)
                await producer.produce(PARTITION, "x")
                gate = holding.enter_context(fs.hold("sync", ".log"))
                broker.transactions.ids.owners[producer.transactional_id].deadline = 0.0
                await gate.reached()
                ids = broker.transactions.ids
                actor = ids._topic.actor(ids._topic.partition_of(producer.transactional_id))

                async def release_later() -> None:
                    """A device that hangs is waited for; the tasks in front of it are given up before."""
                    await until(lambda: actor._scope.cancel_called)
                    gate.release()

                nursery.start_soon(release_later)
    assert "a step of the coordinators takes too long" in caplog.text
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    assert fs.open_paths == []
    async with running_broker(tmp_path) as broker:
        assert await values_from(broker)
