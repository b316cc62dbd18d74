"""Opening many logs at the start, a start that is cancelled, a stop that is bounded, and a device that hangs."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing
from triolog.protocol.errors import RequestError, TopicAlreadyExistsError
from triolog.protocol.types import TopicPartition
from triolog.server.app import serve
from triolog.server.broker import Broker, StartProgress, open_broker_core
from triolog.server.config.broker_config import Address
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE

from tests.support.brokers import (
    PARTITION,
    PATIENCE_S,
    TOPIC,
    actor_of,
    broker_config,
    running_broker,
    until,
    value,
    values_from,
)
from tests.support.counting_fs import CallCountingFileSystem
from tests.support.gate_fs import GateFileSystem
from tests.support.logs import Clock
from tests.support.transactions import TransactionalProducer

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
    assert f"start cancelled: signal={signal.Signals(number).name}" in caplog.text
    await check_recovered(killed)


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
    assert "coordinators did not finish" in caplog.text
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    assert fs.open_paths == []
    async with running_broker(tmp_path) as broker:
        assert await values_from(broker)


COUNT: Final = 40
"""Partitions in two directories: more in each than there are places among the threads."""


def log_of(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}/00000000000000000000.log"


async def append(broker: Broker, partition: TopicPartition) -> None:
    try:
        await broker.writer.append(partition, value("x"))
    except RequestError:
        """Its topic was deleted."""


async def test_partitions_in_another_directory_do_not_wait_for_a_hung_one(tmp_path: Path, fs: GateFileSystem) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_broker(first, second, fs=fs, durability="fsync") as broker:
        await broker.topics.create(TOPIC, COUNT)
        partitions = [TopicPartition(TOPIC, number) for number in range(COUNT)]
        hung = [each for each in partitions if str(first) in actor_of(broker, each).log.directory]
        assert 10 < len(hung) < COUNT - 10
        async with trio.open_nursery() as nursery:
            with ExitStack() as gates:
                for each in hung:
                    gates.enter_context(fs.hold("sync", log_of(each)))
                    nursery.start_soon(append, broker, each)
                await trio.testing.wait_all_tasks_blocked(0.05)
                for each in partitions:
                    if each not in hung:
                        with trio.fail_after(30):
                            await append(broker, each)
                assert all(actor_of(broker, each).log.high_watermark == 0 for each in hung)
        assert all(actor_of(broker, each).log.high_watermark == 1 for each in partitions)


async def test_checkpoints_in_another_directory_do_not_wait_for_a_hung_one(tmp_path: Path, fs: GateFileSystem) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with running_broker(first, second, fs=fs) as broker:
        await broker.topics.create(TOPIC, 4)
        partitions = [TopicPartition(TOPIC, number) for number in range(4)]
        for each in partitions:
            await append(broker, each)
        there = next(each for each in partitions if str(second) in actor_of(broker, each).log.directory)
        async with trio.open_nursery() as nursery:
            with fs.hold("sync", str(first / "recovery-point-offset-checkpoint.tmp")) as gate:
                nursery.start_soon(broker._manager.log_directories.write_checkpoints)
                await gate.reached()
                with trio.fail_after(30):
                    assert await broker.logs.delete_records(there, 1) == 1


async def test_a_topic_whose_deletion_waits_for_a_device_holds_up_no_other(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path, fs=fs) as broker:
        await broker.topics.create(TOPIC)
        async with trio.open_nursery() as nursery:
            with fs.hold("write", log_of(PARTITION)) as gate:
                nursery.start_soon(append, broker, PARTITION)
                await gate.reached()
                nursery.start_soon(broker.topics.delete, TOPIC)
                await until(lambda: TOPIC not in broker.topics.names())
                with trio.fail_after(30):
                    await broker.topics.create("other")
                    await broker.topics.alter_configs("other", {"retention.ms": "1000"})
                with pytest.raises(TopicAlreadyExistsError, match="is being deleted"):
                    await broker.topics.create(TOPIC)
        await broker.topics.create(TOPIC)
        assert sorted(broker.topics.names()) == ["other", TOPIC]
    async with running_broker(tmp_path, fs=fs) as broker:
        assert sorted(broker.topics.names()) == ["other", TOPIC]
