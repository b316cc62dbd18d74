"""Several log directories: one that fails goes out of service with its partitions, the others serve."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from triolog.protocol.errors import ErrorCode, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.directory.log_directory import PROBE_FILE, WATCHDOG_FILE, is_passing
from triolog.server.storage.directory.topics_file import TOPICS_FILE
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from triolog.server.storage.errors import LogDirectoryError, LogOfflineError

from tests.support.brokers import TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.gate_fs import GateFileSystem

FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


async def filled(directory: Path) -> tuple[Path, Path]:
    """Partition 0 in the first directory, 1 in the second, a record in each."""
    one, two = directory / "one", directory / "two"
    async with running_broker(one, two) as broker:
        await broker.topics.create(TOPIC, 2)
        for partition in (FIRST, SECOND):
            await broker.writer.append(partition, value(str(partition.partition)))
        assert (one / "topic-0").exists()
        assert (two / "topic-1").exists()
    return one, two


def errors_of(broker: Broker) -> list[bool]:
    """Which of the directories are out of service."""
    return [each.error is not None for each in broker.directories.describe()]


def a_file_in_its_place(fs: GateFileSystem, path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.touch()


def a_read_only_mount(fs: GateFileSystem, path: Path) -> None:
    fs.fail("write", f"{path.name}/{TOPICS_FILE}.tmp", number=errno.EROFS, times=None)
    fs.fail("unlink", f"{path.name}/{CLEAN_SHUTDOWN_FILE}", number=errno.EROFS, times=None)


def a_device_that_cannot_be_read(fs: GateFileSystem, path: Path) -> None:
    fs.fail("open", f"{path.name}/{TOPICS_FILE}", number=errno.EIO, times=None)


@pytest.mark.parametrize("breaks", [a_file_in_its_place, a_read_only_mount, a_device_that_cannot_be_read])
async def test_a_directory_that_cannot_be_used_at_the_start_is_left_out_and_the_others_serve(
    tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture, breaks: Callable[[GateFileSystem, Path], None]
) -> None:
    """Kafka: LogLoaderTest.testLogRecoveryIsCalledUponBrokerCrash (the directory goes offline, the start goes on)."""
    one, two = await filled(tmp_path)
    breaks(fs, two)
    async with running_broker(one, two, fs=fs) as broker:
        assert errors_of(broker) == [False, True]
        assert await values_from(broker, FIRST) == [b"0"]
        with pytest.raises(LogOfflineError, match=f"{two} is out of service") as raised:
            await broker.writer.append(SECOND, value("x"))
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await broker.topics.create("other", 2)
        assert {path.name for path in one.iterdir() if path.is_dir()} == {"topic-0", "other-0", "other-1"}
    assert next(record.levelname for record in caplog.records if "out of service" in record.getMessage()) == "CRITICAL"
    assert (one / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_directory_that_is_back_serves_its_partitions_but_not_deleted_ones(tmp_path: Path) -> None:
    one, two = await filled(tmp_path)
    for step in ("append", "delete", "create"):
        fs = GateFileSystem()
        a_device_that_cannot_be_read(fs, two)
        async with running_broker(one, two, fs=fs) as broker:
            if step == "append":
                await broker.writer.append(FIRST, value("more"))
            elif step == "delete":
                await broker.topics.delete(TOPIC)
            else:
                await broker.topics.create(TOPIC, 2)
                await broker.writer.append(SECOND, value("new"))
        if step == "append":
            async with running_broker(one, two) as broker:
                assert errors_of(broker) == [False, False]
                assert await values_from(broker, SECOND) == [b"1"]
                assert await values_from(broker, FIRST) == [b"0", b"more"]
    for _ in range(2):
        async with running_broker(one, two, topic={"file.delete.delay.ms": "0"}) as broker:
            assert await values_from(broker, SECOND) == [b"new"]
            await broker._manager.delete_doomed()
            assert [path.name for path in two.iterdir() if path.is_dir()] == []
            assert "deleted_topic_ids" not in (one / TOPICS_FILE).read_text()


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
async def test_a_directory_whose_checkpoints_fail_is_taken_out_with_its_partitions(
    tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    one, two = await filled(tmp_path)
    async with running_broker(one, two, fs=fs) as broker:
        await broker.writer.append(SECOND, value("x"))
        fs.fail(operation, f"two/{RECOVERY_POINT_FILE}.tmp", number=errno.EIO, times=None)
        actor_of(broker, SECOND).log.recovery_point = 0
        await broker._manager.log_directories.write_checkpoints()
        assert errors_of(broker) == [False, True]
        for attempt in (broker.writer.append(SECOND, value("y")), values_from(broker, SECOND)):
            with pytest.raises(LogOfflineError, match="is out of service"):
                await attempt
        await broker.writer.append(FIRST, value("y"))
        assert await values_from(broker, FIRST) == [b"0", b"y"]
        await broker.topics.create("other", 1)
        assert (one / "other-0").exists()
    assert any(record.levelname == "CRITICAL" and "two is out of service" in record.getMessage() for record in caplog.records)
    assert (one / CLEAN_SHUTDOWN_FILE).exists()
    assert not (two / CLEAN_SHUTDOWN_FILE).exists()


async def test_a_full_disk_takes_nothing_out_of_service(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs) as broker:
        await broker.writer.append(FIRST, value("x"))
        fs.fail("write", f"{RECOVERY_POINT_FILE}.tmp", number=errno.ENOSPC)
        with pytest.raises(OSError, match="No space"):
            await broker._manager.log_directories.write_checkpoints()
        fs.fail("write", WATCHDOG_FILE, number=errno.ENOSPC)
        await broker.directories.feed_watchdog()
        assert errors_of(broker) == [False]
        await broker._manager.log_directories.write_checkpoints()


async def test_without_any_directory_the_server_does_not_start_or_ends(tmp_path: Path, fs: GateFileSystem) -> None:
    for name in ("one", "two"):
        (tmp_path / name).touch()
    with pytest.raises(LogDirectoryError, match=r"no log directory can be used: .*one: .*; .*two: "):
        async with running_broker(tmp_path / "one", tmp_path / "two"):
            pass
    with pytest.RaisesGroup(LogDirectoryError, allow_unwrapped=True, flatten_subgroups=True):
        async with one_partition(tmp_path / "three", fs=fs, checkpoint_interval_ms=100) as broker:
            fs.fail("write", f"{RECOVERY_POINT_FILE}.tmp", number=errno.EIO, times=None)
            await broker.writer.append(FIRST, value("x"))
            await trio.sleep_forever()


@pytest.mark.parametrize("is_writable", [True, False])
async def test_a_failed_log_takes_an_unwritable_directory_along(tmp_path: Path, fs: GateFileSystem, is_writable: bool) -> None:
    one, two, beside = tmp_path / "one", tmp_path / "two", TopicPartition(TOPIC, 2)
    async with running_broker(one, two, fs=fs, durability="fsync", checkpoint_interval_ms=100) as broker:
        await broker.topics.create(TOPIC, 4)
        fs.fail("sync", "topic-0/00000000000000000000.log", number=errno.EIO)
        if not is_writable:
            fs.fail("sync", f"one/{PROBE_FILE}.tmp", number=errno.EIO)
        with pytest.raises(LogOfflineError, match="a sync failed"):
            await broker.writer.append(FIRST, value("x"))
        if is_writable:
            await until(lambda: fs.count("unlink", f"one/{PROBE_FILE}") == 1)
            await broker.writer.append(beside, value("x"))
        else:
            await until(lambda: errors_of(broker) == [True, False])
            with pytest.raises(RequestError, match=r"its log directory .*one is out of service"):
                await broker.writer.append(beside, value("x"))
        assert errors_of(broker) == [not is_writable, False]
        await broker.writer.append(TopicPartition(TOPIC, 3), value("x"))


async def test_the_watchdog_waits_for_the_slowest_directory_and_for_nothing_else(tmp_path: Path, fs: GateFileSystem) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    async with running_broker(one, two, fs=fs) as broker, trio.open_nursery() as nursery:
        with fs.hold("sync", f"two/{WATCHDOG_FILE}") as gate:
            nursery.start_soon(broker.directories.feed_watchdog)
            await gate.reached()
            await until(lambda: fs.count("close", f"one/{WATCHDOG_FILE}") == 1)
            assert len(nursery.child_tasks) == 1
    assert fs.count("close", f"two/{WATCHDOG_FILE}") == 1
    assert (two / WATCHDOG_FILE).read_bytes() == b"%020d\n" % broker.now_ms()


async def test_a_directory_that_does_not_take_the_watchdogs_write_is_out_of_service(tmp_path: Path, fs: GateFileSystem) -> None:
    async with running_broker(tmp_path / "one", tmp_path / "two", fs=fs) as broker:
        fs.fail("sync", f"one/{WATCHDOG_FILE}", number=errno.EIO)
        await broker.directories.feed_watchdog()
        assert errors_of(broker) == [True, False]
        await broker.directories.feed_watchdog()
    assert fs.count("sync", f"one/{WATCHDOG_FILE}") == 1
    assert fs.count("sync", f"two/{WATCHDOG_FILE}") == 2


async def test_a_partition_goes_to_the_next_directory_when_one_refuses_it(tmp_path: Path, fs: GateFileSystem) -> None:
    """Kafka: LogManagerTest.testCreateLogWithLogDirFallback."""
    paths = [tmp_path / str(number) for number in range(5)]
    async with running_broker(*paths, fs=fs) as broker:
        fs.fail("make_directory", "topic-0", number=errno.EIO, times=2)
        await broker.topics.create(TOPIC)
        assert [path.name for path in paths if (path / "topic-0").exists()] == ["2"]
        await broker.writer.append(FIRST, value("x"))
    assert fs.count("make_directory", "topic-0") == 3


def test_errors_that_may_pass_are_told_from_others() -> None:
    for number in (errno.ENOSPC, errno.EMFILE, errno.EIO, errno.EROFS, errno.ENOENT):
        assert is_passing(OSError(number, "x")) == (number in (errno.ENOSPC, errno.EMFILE))


async def test_stray_directories_are_reported_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stray = tmp_path / f"old-3.{'0' * 32}-stray"
    future = tmp_path / f"old-4.{'1' * 32}-future"
    for path in (stray, future):
        path.mkdir()
        (path / "kept").touch()
    with caplog.at_level(logging.WARNING):
        async with running_broker(tmp_path) as broker:
            assert list(broker.topics.names()) == []
            (described,) = broker.directories.describe()
            assert set(described.stray) == {str(stray), str(future)}
    assert (stray / "kept").exists()
    assert (future / "kept").exists()
    assert sum("is left alone" in record.getMessage() for record in caplog.records) == 2
