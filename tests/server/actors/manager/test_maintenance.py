"""What is done from time to time, and that a disk which refuses it once is asked again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.storage.disk.checkpoints import HIGH_WATERMARK_FILE

from tests.support.brokers import PARTITION, TOPIC, one_partition, running_broker, until, value
from tests.support.gate_fs import GateFileSystem, held


def has_written(directory: Path, line: str) -> bool:
    return line in (directory / HIGH_WATERMARK_FILE).read_text()


async def test_checkpoints_are_written_while_the_server_runs(tmp_path: Path) -> None:
    async with one_partition(tmp_path, checkpoint_interval_ms=1) as broker:
        for number in range(1, 3):
            await broker.writer.append(PARTITION, value("x"))
            await until(lambda expected=number: has_written(tmp_path, f"{TOPIC} 0 {expected}\n"))  # type: ignore[misc]


async def test_a_checkpoint_that_cannot_be_written_is_said_and_tried_again(
    tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_partition(tmp_path, fs=fs, checkpoint_interval_ms=1) as broker:
        fs.fail("write", f"{HIGH_WATERMARK_FILE}.tmp", number=errno.ENOSPC)
        await broker.writer.append(PARTITION, value("x"))
        await until(lambda: has_written(tmp_path, f"{TOPIC} 0 1\n"))
    assert any("tried again" in record.getMessage() and "No space" in record.getMessage() for record in caplog.records)


async def test_what_was_deleted_goes_by_itself(tmp_path: Path) -> None:
    async with one_partition(tmp_path, checkpoint_interval_ms=1, topic={"file.delete.delay.ms": "0"}) as broker:
        await broker.topics.delete(TOPIC)
        await until(lambda: not any(path.is_dir() for path in tmp_path.iterdir()))


async def test_a_deletion_that_hangs_does_not_hold_up_checkpoints_and_the_reserve(tmp_path: Path, fs: GateFileSystem) -> None:
    settings = {"checkpoint_interval_ms": 100, "disk_reserve_bytes": 100_000, "topic": {"file.delete.delay.ms": "0"}}
    async with one_partition(tmp_path, fs=fs, **settings) as broker:
        await broker.topics.create("gone")
        async with held(fs.hold("unlink", ".log"), broker.topics.delete, "gone"):
            fs.free = 0
            await until(lambda: broker.directories.describe()[0].is_refusing)
            fs.free = 200_000
            await until(lambda: not broker.directories.describe()[0].is_refusing)
            await broker.writer.append(PARTITION, value("x"))
            await until(lambda: has_written(tmp_path, f"{TOPIC} 0 1\n"))


async def test_a_directory_that_cannot_be_deleted_does_not_keep_other_files_from_it(tmp_path: Path, fs: GateFileSystem) -> None:
    topic = {"file.delete.delay.ms": "0", "segment.bytes": "100", "retention.bytes": "100"}
    async with one_partition(tmp_path, fs=fs, checkpoint_interval_ms=10, topic=topic) as broker:
        for name in ("stuck", "gone"):
            await broker.topics.create(name)
            (tmp_path / f"{name}-0" / f"{name}.txt").touch()
        for _ in range(5):
            await broker.writer.append(PARTITION, value("x"))
        fs.fail("unlink", "stuck.txt", number=errno.EACCES, times=None)
        await broker.topics.delete("stuck")
        await until(lambda: fs.count("unlink", "stuck.txt") > 0)
        await broker.topics.delete("gone")
        assert await broker._manager.retention.run_pass() > 0
        await until(lambda: not list(tmp_path.glob("gone-0*")))
        await until(lambda: not list(tmp_path.glob("topic-0/*.deleted")))
        assert list(tmp_path.glob("stuck-0*"))


async def test_a_log_whose_files_cannot_be_deleted_does_not_keep_the_others_from_it(tmp_path: Path, fs: GateFileSystem) -> None:
    other = TopicPartition("other", 0)
    topic = {"file.delete.delay.ms": "0", "segment.bytes": "100", "retention.bytes": "100"}
    async with one_partition(tmp_path, fs=fs, checkpoint_interval_ms=10, topic=topic) as broker:
        await broker.topics.create(other.topic)
        for _ in range(5):
            await broker.writer.append(PARTITION, value("x"))
            await broker.writer.append(other, value("x"))
        fs.fail("unlink", f"{TOPIC}-0/00000000000000000000.log.deleted", number=errno.EIO, times=None)
        assert await broker._manager.retention.run_pass() > 0
        await until(lambda: fs.count("unlink", "other-0/00000000000000000000.log.deleted") > 0)
        assert (tmp_path / f"{TOPIC}-0" / "00000000000000000000.log.deleted").exists()


async def test_a_directory_whose_space_cannot_be_told_does_not_keep_the_others_from_being_guarded(
    tmp_path: Path, fs: GateFileSystem
) -> None:
    fs.free = 0
    fs.fail("free_bytes", "first", number=errno.EIO, times=None)
    directories = [tmp_path / "first", tmp_path / "second"]
    async with running_broker(*directories, fs=fs, checkpoint_interval_ms=10, disk_reserve_bytes=1000) as broker:
        await until(lambda: [each.is_refusing for each in broker.directories.describe()] == [False, True])
