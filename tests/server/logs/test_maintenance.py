"""What is done from time to time, and that a disk which refuses it once is asked again. Producers that are silent for long
enough are forgotten, and there is a limit to those that are not."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from triolog.protocol.errors import RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.logs.log_manager import expire_producers
from triolog.server.storage.disk.checkpoints import HIGH_WATERMARK_FILE

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock, batch
from tests.support.transactions import TransactionalProducer


def has_written(directory: Path, line: str) -> bool:
    return line in (directory / HIGH_WATERMARK_FILE).read_text()


async def test_checkpoints_are_tried_again(tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    async with one_partition(tmp_path, fs=fs, checkpoint_interval_ms=1) as broker:
        await broker.writer.append(PARTITION, value("x"))
        await until(lambda: has_written(tmp_path, f"{TOPIC} 0 1\n"))
        fs.fail("write", f"{HIGH_WATERMARK_FILE}.tmp", number=errno.ENOSPC)
        await broker.writer.append(PARTITION, value("x"))
        await until(lambda: has_written(tmp_path, f"{TOPIC} 0 2\n"))
    assert any("tried again" in record.getMessage() and "No space" in record.getMessage() for record in caplog.records)


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


async def test_files_that_cannot_be_deleted_do_not_keep_others_from_it(tmp_path: Path, fs: GateFileSystem) -> None:
    topic = {"file.delete.delay.ms": "0", "segment.bytes": "100", "retention.bytes": "100"}
    other = TopicPartition("other", 0)
    async with one_partition(tmp_path, fs=fs, checkpoint_interval_ms=10, topic=topic) as broker:
        for name in ("stuck", "gone", "other"):
            await broker.topics.create(name)
            (tmp_path / f"{name}-0" / f"{name}.txt").touch()
        for _ in range(5):
            await broker.writer.append(PARTITION, value("x"))
            await broker.writer.append(other, value("x"))
        fs.fail("unlink", "stuck.txt", number=errno.EACCES, times=None)
        fs.fail("unlink", f"{TOPIC}-0/00000000000000000000.log.deleted", number=errno.EIO, times=None)
        await broker.topics.delete("stuck")
        await until(lambda: fs.count("unlink", "stuck.txt") > 0)
        await broker.topics.delete("gone")
        assert await broker._manager.retention.run_pass() > 0
        await until(lambda: not list(tmp_path.glob("gone-0*")))
        await until(lambda: not list(tmp_path.glob("other-0/*.deleted")))
        assert list(tmp_path.glob("stuck-0*"))
        assert (tmp_path / f"{TOPIC}-0" / "00000000000000000000.log.deleted").exists()


async def test_a_directory_of_unknown_space_does_not_keep_others_unguarded(tmp_path: Path, fs: GateFileSystem) -> None:
    fs.free = 0
    fs.fail("free_bytes", "first", number=errno.EIO, times=None)
    directories = [tmp_path / "first", tmp_path / "second"]
    async with running_broker(*directories, fs=fs, checkpoint_interval_ms=10, disk_reserve_bytes=1000) as broker:
        await until(lambda: [each.is_refusing for each in broker.directories.describe()] == [False, True])


async def test_silent_producers_are_forgotten(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka: UnifiedLogTest.testPeriodicProducerIdExpiration (without being asked)."""
    monkeypatch.setattr("triolog.server.logs.log_manager.PRODUCER_CHECK_S", 0.01)
    async with one_partition(tmp_path, clock=clock, producer_id_expiration_ms=1000) as broker:
        log = actor_of(broker).log
        await broker.writer.append(PARTITION, batch(START_MS, producer_id=5, producer_epoch=0, base_sequence=0))
        assert list(log.producers.entries) == [5]
        clock.advance(1000)
        await until(lambda: not log.producers.entries)


async def test_a_producer_beyond_the_limit_is_refused_until_an_older_one_is_forgotten(tmp_path: Path, clock: Clock) -> None:
    limits = {"max_producers_per_partition": 2, "producer_id_expiration_ms": 1000}

    def of(producer_id: int, sequence: int = 0) -> bytes:
        return batch(START_MS, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    async with one_partition(tmp_path, clock=clock, **limits) as broker:
        await broker.writer.append(PARTITION, of(5))
        await broker.writer.append(PARTITION, of(6))
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION.*max_producers_per_partition=2"):
            await broker.writer.append(PARTITION, of(7))
        assert (await broker.writer.append(PARTITION, of(5))).base_offset == 0
        assert (await broker.writer.append(PARTITION, of(6, 1))).base_offset == 2
        assert (await broker.writer.append(PARTITION, batch(START_MS))).base_offset == 3
    async with one_partition(tmp_path, clock=clock, **limits) as broker:
        with pytest.raises(RequestError, match="producer 7 is new and 2 are remembered"):
            await broker.writer.append(PARTITION, of(7))
        clock.advance(999)
        await expire_producers(broker._manager.topics, clock, broker.config, broker.disk.errors)
        with pytest.raises(RequestError, match="producer 7 is new"):
            await broker.writer.append(PARTITION, of(7))
        clock.advance(1)
        await expire_producers(broker._manager.topics, clock, broker.config, broker.disk.errors)
        assert (await broker.writer.append(PARTITION, of(7))).base_offset == 4


async def test_a_limit_that_is_reached_ends_no_transaction(tmp_path: Path) -> None:
    async with one_partition(tmp_path, max_producers_per_partition=1) as broker:
        producer = await TransactionalProducer.start(broker)
        await producer.produce(PARTITION, "a")
        await producer.commit_offset("group", PARTITION, 1)
        other = await TransactionalProducer.start(broker, "other")
        with pytest.raises(RequestError, match="max_producers_per_partition=1"):
            await other.produce(PARTITION, "b")
        with pytest.raises(RequestError, match=r"__consumer_offsets-0.*max_producers_per_partition=1"):
            await other.commit_offset("group", PARTITION, 2)
        await other.abort()
        await producer.commit()
        assert await broker.offsets.fetch("group", [PARTITION]) == [(PARTITION, 1, "")]
