"""Opening many logs at the start: all of them, in order, several at a time, and how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from triolog.protocol.types import TopicPartition
from triolog.server.broker import StartProgress, open_broker_core
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE

from tests.support.brokers import TOPIC, broker_config, running_broker, value, values_from
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import Clock

RECORD = "x" * 1000


async def fill(directory: Path, partitions: int) -> int:
    """A record in each partition; answers the log bytes."""
    async with running_broker(directory) as broker:
        await broker.topics.create(TOPIC, partitions)
        for number in range(partitions):
            await broker.writer.append(TopicPartition(TOPIC, number), value(f"{number} {RECORD}"))
    return sum(path.stat().st_size for path in directory.rglob("*.log"))


def crash(directory: Path) -> None:
    """As after a kill before the first checkpoint."""
    for name in (CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE):
        (directory / name).unlink()


@pytest.mark.parametrize("partitions", [1, 3, 4, 5, 17, 70])
async def test_every_partition_is_opened_and_stays_in_its_place(tmp_path: Path, partitions: int) -> None:
    await fill(tmp_path, partitions)
    async with running_broker(tmp_path) as broker:
        assert len(broker.topics.describe(TOPIC).partitions) == partitions
        for number in range(partitions):
            assert await values_from(broker, TopicPartition(TOPIC, number)) == [f"{number} {RECORD}".encode()]


async def test_progress_ends_with_all_bytes_after_a_crash_and_with_none_after_a_stop(tmp_path: Path) -> None:
    size = await fill(tmp_path, 5)
    for scanned in (0, size):
        seen: list[StartProgress] = []
        async with open_broker_core(broker_config(tmp_path), now_ms=Clock(), report=seen.append):
            pass
        assert seen[-1] == StartProgress(logs=5, logs_done=5, scan_bytes=scanned, scanned_bytes=scanned)
        assert [each.scanned_bytes for each in seen] == sorted(each.scanned_bytes for each in seen)
        crash(tmp_path)


async def test_logs_are_recovered_side_by_side(tmp_path: Path, fs: GateFileSystem) -> None:
    """Two of them wait for the device at the same time."""
    await fill(tmp_path, 4)
    crash(tmp_path)
    with fs.hold("sync", f"{0:020d}.log", most=2) as gate:
        async with trio.open_nursery() as nursery:

            async def start() -> None:
                async with open_broker_core(broker_config(tmp_path), fs=fs, now_ms=Clock()) as broker:
                    assert await values_from(broker, TopicPartition(TOPIC, 3)) == [f"3 {RECORD}".encode()]

            nursery.start_soon(start)
            await gate.reached(2)
            gate.release()


async def test_a_log_that_cannot_be_opened_counts_as_done(tmp_path: Path) -> None:
    await fill(tmp_path, 3)
    (tmp_path / "topic-1" / f"{7:020d}.log").mkdir()
    seen: list[StartProgress] = []
    async with open_broker_core(broker_config(tmp_path), now_ms=Clock(), report=seen.append) as broker:
        assert [each.error is None for each in broker.topics.describe(TOPIC).partitions] == [True, False, True]
    assert (seen[-1].logs, seen[-1].logs_done) == (3, 3)


class Faulty(GateFileSystem):
    """What no device does: an error that is no OSError."""

    def open(self, path: str, flags: int) -> int:
        if path.endswith(f"topic-1/{0:020d}.log"):
            raise RuntimeError("a fault of the program")
        return super().open(path, flags)


async def test_a_fault_of_the_program_while_a_log_is_opened_ends_the_start(tmp_path: Path) -> None:
    """Kafka: LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash (what is no I/O error goes up)."""
    await fill(tmp_path, 3)
    crash(tmp_path)
    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="a fault"), allow_unwrapped=True, flatten_subgroups=True):
        async with running_broker(tmp_path, fs=Faulty()):
            pass
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
