"""Opening many logs at the start: all of them, in order, several at a time, how far it is, and how few calls each takes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import trio
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, StartProgress, open_broker_core
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE

from tests.support.brokers import TOPIC, broker_config, running_broker, value, values_from
from tests.support.counting_fs import CallCountingFileSystem
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
    (tmp_path / "topic-1" / f"{7:020d}.log").mkdir()
    async with open_broker_core(broker_config(tmp_path), now_ms=Clock(), report=seen.append) as broker:
        assert [each.error is None for each in broker.topics.describe(TOPIC).partitions] == [True, False, True, True, True]
    assert (seen[-1].logs, seen[-1].logs_done) == (5, 5), "one that cannot be opened counts as done"


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


class Faulty(GateFileSystem):
    """What no device does: an error that is no OSError."""

    def open(self, path: str, flags: int) -> int:
        if path.endswith(f"topic-1/{0:020d}.log"):
            raise RuntimeError("a fault of the program")
        return super().open(path, flags)


async def test_an_unhandled_exception_while_a_log_is_opened_takes_that_partition_offline(tmp_path: Path) -> None:
    """Every start would end in it. Kafka: LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash (there the start ends)."""
    await fill(tmp_path, 3)
    crash(tmp_path)
    async with running_broker(tmp_path, fs=Faulty()) as broker:
        assert ["a fault" in str(each.error) for each in broker.topics.describe(TOPIC).partitions] == [False, True, False]
        assert await values_from(broker, TopicPartition(TOPIC, 2)) == [f"2 {RECORD}".encode()]
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


FEW, MANY = 5, 25
MOST_CALLS: Final = {"clean": 24, "killed": 56}
"""By log. A small file takes four: opening, measuring, reading, closing. Of a killed log four files and the directory are
synced, here each by itself, and what shares a page with bytes that are written again is read twice."""
MOST_MADE: Final = {"clean": 0, "killed": 2}
"""Files that are made anew: the time index and the producer snapshot, which say something else than before."""


async def calls_of_a_start(directory: Path, partitions: int, how: str) -> Counter[str]:
    """What is done to logs of two records, which were stopped in order, or written to once more and killed then."""
    left = directory / "left"

    async def append_to_all(broker: Broker) -> None:
        for number in range(partitions):
            await broker.writer.append(TopicPartition("t", number), value("x"))

    async with running_broker(directory / "first") as broker:
        await broker.topics.create("t", partitions)
        await append_to_all(broker)
    shutil.copytree(directory / "first", left)
    if how == "killed":
        async with running_broker(directory / "first") as broker:
            await append_to_all(broker)
            shutil.rmtree(left)
            shutil.copytree(directory / "first", left)
    fs = CallCountingFileSystem()
    async with running_broker(left, fs=fs) as broker:
        calls = fs.calls.copy()
        ends = [each.log_end_offset for each in broker.topics.describe("t").partitions]
        assert ends == [2 if how == "killed" else 1] * partitions
    return calls


@pytest.mark.parametrize("how", ["clean", "killed"])
async def test_each_log_adds_few_calls_to_a_start(tmp_path: Path, how: str) -> None:
    few = await calls_of_a_start(tmp_path / "few", FEW, how)
    many = await calls_of_a_start(tmp_path / "many", MANY, how)
    each = {name: (many[name] - few[name]) / (MANY - FEW) for name in many}
    assert each.pop("made") <= MOST_MADE[how]
    assert sum(each.values()) <= MOST_CALLS[how], each
    assert each["list_directory"] == 1
