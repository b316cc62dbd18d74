"""Logs that find no space when they are opened: they are read, refuse appends, and are opened again without another start."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio
import trio.testing
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker, FetchPartition
from triolog.server.logs import log_manager
from triolog.server.offsets.committed_offsets import Commit
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, decode_offsets
from triolog.server.storage.errors import WaitsForSpaceError

from tests.support.brokers import (
    PARTITION,
    PATIENCE_S,
    TOPIC,
    actor_of,
    one_partition,
    running_broker,
    until,
    value,
    values_from,
)
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import Clock, batch
from tests.support.transactions import TransactionalProducer, committed_values, is_stable

SIZE: Final = len(batch(value=b"0" * 10))
SETTINGS: Final = {"segment.bytes": str(5 * SIZE), "index.interval.bytes": "0", "retention.ms": "-1"}
RECORDS: Final = 23
GROUP: Final = "readers"
settled = trio.testing.wait_all_tasks_blocked
pytestmark = pytest.mark.usefixtures("mock_clock")
"""Time stands still: nobody looks for space but these tests."""


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%010d" % number for number in range(first, first + count)]


async def append(broker: Broker, first: int, count: int, partition: TopicPartition = PARTITION) -> None:
    for number in range(first, first + count):
        assert (await broker.writer.append(partition, value(f"{number:010d}"))).base_offset == number


async def commit(broker: Broker, offset: int) -> None:
    offsets = broker._coordinators.committed_offsets
    (error,) = await offsets.commit(GROUP, [Commit(PARTITION, offset, "", -1)], check=lambda: None)
    assert error is None


def committed(broker: Broker) -> int:
    ((_, offset, _),) = broker._coordinators.committed_offsets.fetch(GROUP, [PARTITION], require_stable=False)
    return offset


async def write_log(directory: Path, **settings: Any) -> None:
    """RECORDS records and a committed offset, as a killed server leaves them."""
    async with one_partition(directory, topic=SETTINGS | settings) as broker:
        await append(broker, 0, RECORDS)
        await commit(broker, 7)
    (directory / CLEAN_SHUTDOWN_FILE).unlink()
    (directory / RECOVERY_POINT_FILE).unlink()


@pytest.fixture
def fs() -> GateFileSystem:
    """A full device. Nothing that is new has room: neither indexes nor checkpoints."""
    fs = GateFileSystem()
    fs.free = 0
    fs.fail("write", ".tmp", times=None)
    return fs


def free_space(fs: GateFileSystem) -> None:
    fs.heal()
    fs.free = 1 << 30


async def find_space(broker: Broker, fs: GateFileSystem) -> None:
    free_space(fs)
    await broker._manager.waiting.check()


@asynccontextmanager
async def waiting_broker(directory: Path, fs: GateFileSystem, **settings: Any) -> AsyncIterator[Broker]:
    """On the directory of `write_log`, without room until it stops."""
    if not (directory / "topic-0").exists():
        await write_log(directory)
    topic = SETTINGS | settings.pop("topic", {})
    async with running_broker(directory, fs=fs, topic=topic, **settings) as broker:
        yield broker
        fs.heal()


async def refused(call: Any, *arguments: Any) -> RequestError:
    with pytest.raises(RequestError) as raised:
        await call(*arguments)
    return raised.value


async def test_a_waiting_log_is_read_and_refuses_writes(tmp_path: Path, fs: GateFileSystem) -> None:
    await write_log(tmp_path)
    logs = {path.name: path.read_bytes() for path in (tmp_path / "topic-0").glob("*.log")}
    async with waiting_broker(tmp_path, fs) as broker:
        files = {path.name: path.read_bytes() for path in (tmp_path / "topic-0").iterdir()}
        assert logs.items() <= files.items(), "snapshots of producers may be made again"
        assert await values_from(broker) == numbered(0, RECORDS)
        assert (await broker.reader.offset_for_time(PARTITION, -1)).offset == RECORDS
        assert broker.topics.describe(TOPIC).partitions[0].high_watermark == RECORDS
        assert broker.topics.describe(TOPIC).partitions[0].error is None
        assert "waits for space" in str(broker.topics.describe(TOPIC).partitions[0].waiting)
        told = (await broker.statistics()).total
        assert (told.waiting, told.offline) == (2, 0)
        assert committed(broker) == 7
        for call, *arguments in (
            (broker.writer.append, PARTITION, value("x")),
            (commit, broker, 8),
            (broker.logs.raise_leader_epoch, PARTITION),
        ):
            error = await refused(call, *arguments)
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert "waits for space" in error.message
            assert "No space left on device" in error.message
        assert isinstance(actor_of(broker).log.waiting, WaitsForSpaceError)
        assert (await refused(broker.topics.create, "new")).code is ErrorCode.KAFKA_STORAGE_ERROR
        assert await values_from(broker) == numbered(0, RECORDS)
        assert committed(broker) == 7
        assert {path.name: path.read_bytes() for path in (tmp_path / "topic-0").iterdir()} == files
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists(), "the checkpoints have room in the end, but the stop is not clean"
    assert decode_offsets("", (tmp_path / RECOVERY_POINT_FILE).read_bytes()).get(PARTITION, 0) == 0
    async with running_broker(tmp_path, topic=SETTINGS) as broker:
        assert await values_from(broker) == numbered(0, RECORDS)


async def test_a_log_too_large_for_memory_is_offline_until_there_is_space(
    tmp_path: Path, fs: GateFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_manager, "waiting_logs_bytes", lambda cap: 10)
    async with waiting_broker(tmp_path, fs) as broker:
        assert "waits for space" in (await refused(values_from, broker)).message
        assert "cannot be read until then" in caplog.text
        await broker._manager.waiting.check()
        assert "waits for space" in (await refused(values_from, broker)).message
        await find_space(broker, fs)
        await append(broker, RECORDS, 2)
        assert await values_from(broker) == numbered(0, RECORDS + 2)
        assert committed(broker) == 7
        await commit(broker, 8)
        assert committed(broker) == 8


async def test_logs_are_served_given_space(tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with waiting_broker(tmp_path, fs) as broker:
        waiting = broker._manager.waiting
        assert (len(waiting), waiting.overlay.held_bytes > 0) == (2, True)
        await find_space(broker, fs)
        assert (len(waiting), waiting.overlay.held_bytes) == (0, 0)
        assert actor_of(broker).log.refusal is None
        assert broker.topics.describe(TOPIC).partitions[0].waiting is None
        assert (await broker.statistics()).total.waiting == 0
        assert await values_from(broker) == numbered(0, RECORDS)
        await append(broker, RECORDS, 9)
        await commit(broker, 8)
        assert committed(broker) == 8
        await broker.topics.create("new")
    for topic in (TOPIC, "__consumer_offsets"):
        assert sum(f"{topic}-0 waits for space" in line for line in caplog.text.splitlines() if "WARNING" in line) == 1
        assert sum(f"{topic}-0 has space now" in line for line in caplog.text.splitlines() if "INFO" in line) == 1
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    async with running_broker(tmp_path, topic=SETTINGS) as broker:
        assert await values_from(broker) == numbered(0, RECORDS + 9)
        assert committed(broker) == 8


async def test_a_waiting_reader_gets_the_first_record_appended_afterwards(tmp_path: Path, fs: GateFileSystem) -> None:
    async with waiting_broker(tmp_path, fs) as broker, trio.open_nursery() as nursery:
        found: list[int] = []

        async def read() -> None:
            question = FetchPartition(PARTITION, RECORDS, 1 << 20)
            (answer,) = await broker.reader.fetch([question], max_bytes=1 << 20, max_wait_s=PATIENCE_S)
            assert answer.fetched is not None
            found.append(len(answer.fetched.records))

        nursery.start_soon(read)
        await settled()
        await broker._manager.waiting.check()
        await find_space(broker, fs)
        await settled()
        assert found == []
        await append(broker, RECORDS, 1)
        await until(lambda: bool(found))
        assert found == [SIZE]


async def test_a_log_is_read_and_refuses_appends_while_it_is_being_opened(tmp_path: Path, fs: GateFileSystem) -> None:
    async with waiting_broker(tmp_path, fs) as broker:
        free_space(fs)
        async with held(fs.hold("sync", ".log"), broker._manager.waiting.check):
            assert await values_from(broker) == numbered(0, RECORDS)
            assert committed(broker) == 7
            assert "waits for space" in (await refused(broker.writer.append, PARTITION, value("x"))).message
            assert await broker._manager.retention.run_pass() == 0
        await append(broker, RECORDS, 1)


async def test_an_attempt_is_due_with_more_space_or_after_a_pause_that_doubles(tmp_path: Path, fs: GateFileSystem) -> None:
    """Each attempt scans a log."""
    async with waiting_broker(tmp_path, fs) as broker:
        waiting = broker._manager.waiting

        async def attempts() -> int:
            before = fs.count("open", "index.tmp")
            await waiting.check()
            return fs.count("open", "index.tmp") - before

        assert await attempts() == 1
        assert await attempts() == 0
        fs.free = 10
        assert await attempts() == 1
        fs.free = 0
        assert await attempts() == 0
        (last,) = waiting._attempts.values()
        pauses = [last.pause_s]
        for _ in range(6):
            last.due_s = trio.current_time()
            assert await attempts() == 1
            pauses.append(last.pause_s)
        assert pauses == [4, 8, 16, 32, 60, 60, 60]


async def test_a_topic_can_be_deleted_while_it_is_being_opened(tmp_path: Path, fs: GateFileSystem) -> None:
    async with waiting_broker(tmp_path, fs, topic={"file.delete.delay.ms": "0"}) as broker:
        fs.heal()
        async with held(fs.hold("sync", ".log"), broker._manager.waiting.check):
            await broker.topics.delete(TOPIC)
            await broker.topics.create(TOPIC)
        await append(broker, 0, 3)
        await broker._manager.waiting.check()
        assert await values_from(broker) == numbered(0, 3)


async def test_a_stop_while_a_log_is_being_opened_ends(tmp_path: Path, fs: GateFileSystem) -> None:
    async with trio.open_nursery() as nursery, waiting_broker(tmp_path, fs) as broker:
        manager = broker._manager
        free_space(fs)
        holding = fs.hold("sync", f"{20:020d}.log")
        gate = holding.__enter__()

        async def release_when_stopping() -> None:
            await until(lambda: manager.waiting.is_stopping)
            await settled()
            holding.__exit__(None, None, None)

        nursery.start_soon(release_when_stopping)
        manager.nursery.start_soon(manager.waiting.check)
        await gate.reached()
    async with running_broker(tmp_path, topic=SETTINGS) as broker:
        assert await values_from(broker) == numbered(0, RECORDS)


@pytest.mark.parametrize(("operation", "base", "taken_out"), [("sync", 20, 0), ("unlink", 0, 3)])
async def test_a_log_that_cannot_be_opened_for_another_reason_is_offline(
    tmp_path: Path, fs: GateFileSystem, operation: str, base: int, taken_out: int
) -> None:
    topic = {"retention.bytes": str(8 * SIZE)} if taken_out else {}
    async with waiting_broker(tmp_path, fs, topic=topic) as broker:
        assert await broker._manager.retention.run_pass() == taken_out
        free_space(fs)
        fs.fail(operation, f"{base:020d}.log", number=errno.EIO, times=None)
        await broker._manager.waiting.check()
        assert "it waited for space, and opening it failed" in (await refused(values_from, broker)).message
        assert len(broker._manager.waiting) == 0


async def test_retention_deletes_segments_of_a_waiting_log(tmp_path: Path, fs: GateFileSystem) -> None:
    async with waiting_broker(tmp_path, fs, clock=Clock(), topic={"retention.bytes": str(8 * SIZE)}) as broker:
        manager = broker._manager
        assert await manager.retention.run_pass() == 3
        await manager.delete_doomed()
        assert sorted(path.name for path in (tmp_path / "topic-0").glob("*.log")) == [f"{base:020d}.log" for base in (15, 20)]
        assert await values_from(broker, offset=15) == numbered(15, 8)
        assert await manager.retention.run_pass() == 0
        await find_space(broker, fs)
        await append(broker, RECORDS, 1)
        assert broker.topics.describe(TOPIC).partitions[0].log_start_offset == 15
        assert await values_from(broker, offset=15) == numbered(15, 9)


async def test_the_last_segment_of_a_waiting_log_stays(tmp_path: Path, fs: GateFileSystem) -> None:
    """It could only go if there were another one, for which there is no space."""
    async with waiting_broker(tmp_path, fs, topic={"retention.bytes": "0"}) as broker:
        assert await broker._manager.retention.run_pass() == 4
        assert await values_from(broker, offset=20) == numbered(20, 3)


@pytest.mark.parametrize("when", ["while it is being opened", "when it is open"])
async def test_a_log_is_opened_without_segments_about_to_go(tmp_path: Path, fs: GateFileSystem, when: str) -> None:
    """The guard has taken them out and stands before the first file; it goes on when the opening waits for it. (Without that it
    would be at that segment's index, or would have ended.)"""
    async with waiting_broker(tmp_path, fs, topic={"disk.full.policy": "drop-oldest"}, disk_reserve_bytes=0) as broker:
        manager, is_open = broker._manager, trio.Event()
        manager.guard.reserve_bytes = 10 * SIZE  # for which it has not looked at the start
        unlinking = manager.topics.partition(PARTITION).unlinking

        async def open_it() -> None:
            await manager.waiting.check()
            is_open.set()

        most = 1 if when == "while it is being opened" else 0
        async with trio.open_nursery() as opening:
            with fs.hold("open", f"topic-0/{0:020d}.index", most=most) as at_index:
                async with held(fs.hold("unlink", f"topic-0/{0:020d}.log", most=1), manager.guard.check):
                    free_space(fs)
                    opening.start_soon(open_it)
                    await until(lambda: is_open.is_set() or at_index.arrived > 0 or unlinking.statistics().tasks_waiting > 0)
        log = actor_of(broker).log
        assert (log.offline, log.waiting) == (None, None)
        assert [Path(segment.log.path).name for segment in log.segments] == [f"{base:020d}.log" for base in (10, 15, 20)]
        assert all(Path(file.path).exists() for segment in log.segments for file in segment.files)
        await append(broker, RECORDS, 1)
        assert await values_from(broker, offset=10) == numbered(10, 14)


async def test_records_are_deleted_when_that_can_be_promised(tmp_path: Path, fs: GateFileSystem) -> None:
    async with waiting_broker(tmp_path, fs) as broker:
        error = await refused(broker.logs.delete_records, PARTITION, 12)
        assert "the checkpoint in" in error.message
        free_space(fs)
        assert await broker.logs.delete_records(PARTITION, 12) == 12
        await broker._manager.waiting.check()
        assert await values_from(broker, offset=12) == numbered(12, RECORDS - 12)
        assert broker.topics.describe(TOPIC).partitions[0].log_start_offset == 12


async def test_a_transaction_that_was_open_goes_on_when_there_is_space(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, topic=SETTINGS) as broker:
        producer = await TransactionalProducer.start(broker, "mover")
        await producer.produce(PARTITION, "moved")
    (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    (tmp_path / RECOVERY_POINT_FILE).unlink()
    async with waiting_broker(tmp_path, fs) as broker:
        waiting = {hosted.actor.topic_partition.topic for hosted in broker._manager.topics.hosted() if hosted.actor.log.waiting}
        assert waiting == {TOPIC, "__transaction_state"}
        producer = attrs.evolve(producer, broker=broker)
        assert (await refused(producer.commit)).retriable
        assert await committed_values(broker, PARTITION) == []
        await find_space(broker, fs)
        await producer.commit()
        await until(lambda: is_stable(broker, PARTITION))
        assert await committed_values(broker, PARTITION) == ["moved"]
