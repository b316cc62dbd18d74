"""Retention and DeleteRecords on a running broker: what goes, what readers see, what is on the device when."""

from __future__ import annotations

import errno
import gc
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import trio
import trio.testing
from triolog.protocol.errors import OffsetOutOfRangeError, RequestError, UnknownTopicOrPartitionError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.cleaner_process import open_child_process
from triolog.server.logs.compaction import Scrub
from triolog.server.logs.log_manager import expire_producers
from triolog.server.storage.disk.checkpoints import HIGH_WATERMARK_FILE, LOG_START_FILE, decode_offsets
from triolog.server.storage.disk.diskops import FileHandle
from triolog.server.storage.errors import LogOfflineError
from triolog.server.storage.indexes.index import AbstractIndex

from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import START_MS, Clock, batch
from tests.support.transactions import TransactionalProducer

SIZE: Final = len(batch(value=b"0" * 10))
DAY_MS: Final = 86_400_000
YEAR_2013_MS: Final = 1_357_000_000_000


def started_at(directory: Path, name: str = LOG_START_FILE) -> int | None:
    """What the checkpoint says of the partition."""
    return decode_offsets(name, (directory / name).read_bytes()).get(PARTITION)


def files(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in (directory / "topic-0").glob(pattern))


async def append(broker: Broker, numbers: Iterable[int]) -> None:
    for number in numbers:
        await broker.writer.append(PARTITION, value(f"{number:010d}"))


FEW: Final = {"segment.bytes": str(5 * SIZE), "retention.bytes": str(5 * SIZE)}
"""Segments of five records, of which retention keeps one."""


@asynccontextmanager
async def ten_segments(directory: Path, clock: Clock | None = None, **topic: str) -> AsyncIterator[Broker]:
    """Fifty records, five in each segment, stamped START_MS."""
    settings = {"segment.bytes": str(5 * SIZE), "retention.ms": "-1"} | {
        key.replace("_", "."): text for key, text in topic.items()
    }
    async with one_partition(directory, clock=clock or Clock(), topic=settings) as broker:
        await append(broker, range(50))
        yield broker


async def test_expired_segments_go_and_reading_them_is_out_of_range(tmp_path: Path, clock: Clock) -> None:
    """Kafka: LogManagerTest.testCleanupExpiredSegments."""
    async with ten_segments(tmp_path, clock, retention_ms=str(DAY_MS), file_delete_delay_ms="1000") as broker:
        manager = broker._manager
        assert await manager.retention.run_pass() == 0
        clock.advance(DAY_MS + 1)
        assert await manager.retention.run_pass() == 10
        assert len(actor_of(broker).log.segments) == 1
        with pytest.raises(OffsetOutOfRangeError):
            await values_from(broker)
        assert len(files(tmp_path, "*.log.deleted")) == 10
        await manager.delete_doomed()
        assert len(files(tmp_path, "*.log.deleted")) == 10
        clock.advance(1000)
        await manager.delete_doomed()
        assert files(tmp_path, "*.deleted") == []
        assert files(tmp_path, "*.log") == [f"{50:020d}.log"]
        assert (await broker.writer.append(PARTITION, value("next"))).base_offset == 50
        assert await values_from(broker, offset=50) == [b"next"]


async def by_retention(broker: Broker, clock: Clock) -> None:
    clock.advance(DAY_MS + 1)
    assert await broker._manager.retention.run_pass() >= 10


async def by_deleted_records(broker: Broker, clock: Clock) -> None:
    assert await broker.logs.delete_records(PARTITION, 50) == 50
    assert await broker._manager.retention.run_pass() >= 10


async def by_a_deleted_topic(broker: Broker, clock: Clock) -> None:
    await broker.topics.delete(TOPIC)


async def by_compaction(broker: Broker, clock: Clock) -> None:
    await broker.topics.alter_configs(TOPIC, {"cleanup.policy": "compact"})
    assert await broker.logs.compact(PARTITION) == 1


def gone_files_in_memory() -> list[Path]:
    """Paths of files and indexes that are kept although they are deleted, or their partition is."""
    gc.collect()
    paths = [Path(each.path) for each in gc.get_objects() if isinstance(each, FileHandle | AbstractIndex)]
    return [path for path in paths if path.suffix == ".deleted" or not path.parent.exists()]


@pytest.mark.parametrize("way", [by_retention, by_deleted_records, by_a_deleted_topic, by_compaction])
async def test_nothing_of_files_that_are_gone_is_kept_in_memory(
    tmp_path: Path, way: Callable[[Broker, Clock], Awaitable[None]]
) -> None:
    """A server that runs for months deletes millions of them."""
    clock = Clock()
    settings = {"segment.bytes": str(5 * SIZE), "retention.ms": str(DAY_MS), "file.delete.delay.ms": "0"}
    async with one_partition(tmp_path, clock=clock, topic=settings) as broker:
        for number in range(50):
            await broker.writer.append(PARTITION, [(START_MS, b"a key", f"{number:010d}".encode(), ())])
        assert await values_from(broker)
        assert await broker.reader.offset_for_time(PARTITION, START_MS) == (START_MS, 0, 0)
        await way(broker, clock)
        await broker._manager.delete_doomed()
        await until(lambda: not [*tmp_path.glob("*/*.deleted"), *tmp_path.glob("*-delete")])
        await until(lambda: not gone_files_in_memory())


async def test_no_file_is_unlinked_before_all_new_names_are_on_the_device(tmp_path: Path, fs: GateFileSystem) -> None:
    """A power cut could give the others their old names back: a log with a hole."""
    settings = FEW | {"retention.bytes": "0", "file.delete.delay.ms": "0"}
    async with one_partition(tmp_path, fs=fs, topic=settings) as broker:
        await append(broker, range(12))
        assert await broker._manager.retention.run_pass() == 3
        fs.fail("sync_directory", "topic-0")
        with pytest.raises(OSError, match="No space"):
            await broker._manager.delete_doomed()
        assert len(files(tmp_path, "*.log.deleted")) == 3
        await broker._manager.delete_doomed()
        assert files(tmp_path, "*.deleted") == []


async def test_the_checkpoint_is_on_the_device_before_the_first_file_is_renamed(tmp_path: Path, fs: GateFileSystem) -> None:
    """Without it the files stay, and the next pass continues."""
    settings = FEW | {"retention.bytes": "0"}
    async with one_partition(tmp_path, fs=fs, topic=settings) as broker:
        await append(broker, range(12))
        fs.fail("open", f"{LOG_START_FILE}.tmp", number=errno.EMFILE)
        with pytest.raises(OSError, match="Too many open files"):
            await broker._manager.retention.run_pass()
        assert len(files(tmp_path, "*.log")) == 4, "all of them, and one to append to"
        async with held(fs.hold("rename", f"{0:020d}.log"), broker._manager.retention.run_pass):
            assert started_at(tmp_path) == 12
        assert files(tmp_path, "*.log") == [f"{12:020d}.log"]


async def test_without_space_for_a_checkpoint_segments_go_one_by_one(tmp_path: Path, fs: GateFileSystem) -> None:
    """A power cut leaves a log that starts further up, not one with a hole; nothing is written and nothing renamed."""
    async with one_partition(tmp_path, fs=fs, topic=FEW) as broker:
        await append(broker, range(20))
        await until(lambda: actor_of(broker).log.recovery_point >= 15)  # the flush behind the last roll
        fs.fail("write", f"{LOG_START_FILE}.tmp", number=errno.ENOSPC, times=None)
        before = len(fs.calls)
        assert await broker._manager.retention.run_pass() == 3
        await broker._manager.retention.delete_doomed()
        calls = [(call.operation, call.path.rpartition("/")[2]) for call in fs.calls[before:] if "topic-0" in call.path]
        steps = [call for call in calls if call[0] == "unlink" or call == ("sync_directory", "topic-0")]
        expected = []
        for base in (0, 5, 10):
            expected += [("unlink", f"{base:020d}.log"), ("sync_directory", "topic-0")]
            expected += [
                ("unlink", f"{base:020d}.{suffix}") for suffix in ("index", "timeindex", "txnindex", "snapshot", "batches")
            ]
        assert steps[steps.index(expected[0]) :] == expected
        assert not [call for call in calls if call[0] == "rename" and call[1].endswith(".log")]
        assert files(tmp_path, "*.log") == [f"{15:020d}.log"]
        assert len(await values_from(broker, offset=15)) == 5
        with pytest.raises(OffsetOutOfRangeError):
            await values_from(broker)
        fs.heal()
    async with one_partition(tmp_path, fs=fs, topic=FEW) as broker:
        assert broker.topics.describe(TOPIC).partitions[0].log_start_offset == 15


async def test_files_of_a_deleted_topic_are_not_unlinked_from_the_next_one(tmp_path: Path, fs: GateFileSystem) -> None:
    """Without room for a checkpoint the files go under the names that they had. Ten segments take more than one hop."""
    async with one_partition(tmp_path, fs=fs, topic=FEW) as broker:
        await append(broker, range(50))
        fs.fail("write", f"{LOG_START_FILE}.tmp", number=errno.ENOSPC, times=None)
        retention = broker._manager.retention
        assert await retention.run_pass() == 9
        fs.heal()
        hosted = broker._manager.topics.partition(PARTITION)

        async def make_it_again() -> None:
            await broker.topics.delete(TOPIC)
            await broker.topics.create(TOPIC)
            await append(broker, range(50))

        async with held(fs.hold("unlink", f"topic-0/{15:020d}.log", most=1), retention.delete_doomed) as nursery:
            nursery.start_soon(make_it_again)
            await until(lambda: hosted.unlinking.statistics().tasks_waiting > 0)
        assert files(tmp_path, "*.log") == [f"{base:020d}.log" for base in range(0, 50, 5)]
        assert len(await values_from(broker)) == 50


async def test_the_log_start_is_listed_as_long_as_older_files_could_come_back(tmp_path: Path, clock: Clock) -> None:
    """Kafka: LogManagerTest.testCheckpointLogStartOffsetForNormalTopic."""
    async with ten_segments(tmp_path, clock, file_delete_delay_ms="1000") as broker:
        manager = broker._manager
        assert await broker.logs.delete_records(PARTITION, 31) == 31
        assert started_at(tmp_path) == 31
        assert await broker.logs.delete_records(PARTITION, 35) == 35
        assert await manager.retention.run_pass() == 7
        await manager.log_directories.write_checkpoints()
        assert started_at(tmp_path) == 35, "renames that a power cut takes back would bring older segments back"
        clock.advance(1000)
        await manager.delete_doomed()
        await manager.log_directories.write_checkpoints()
        assert started_at(tmp_path) is None


async def test_appends_and_reads_go_on_between_the_pieces_of_a_deletion(tmp_path: Path, fs: GateFileSystem) -> None:
    """A turn of the log renames 16 segments at most; an append that waits comes before the next ones."""
    settings = {"segment.bytes": str(SIZE), "retention.bytes": str(SIZE)}
    async with one_partition(tmp_path, fs=fs, topic=settings) as broker:
        await append(broker, range(101))
        with fs.hold("rename", f"{0:020d}.log") as gate:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker._manager.retention.run_pass)
                await gate.reached()
                nursery.start_soon(broker.writer.append, PARTITION, value("in between"))
                assert (await values_from(broker, offset=100))[0] == f"{100:010d}".encode()
                gate.release()
                await until(lambda: actor_of(broker).log.log_end_offset == 102)
                assert len(actor_of(broker).log.segments) > 2, "the append did not wait for all of it"
        assert len(actor_of(broker).log.segments) == 2


async def test_maintenance_runs_retention_at_its_interval_without_offline_partitions(tmp_path: Path) -> None:
    settings = FEW | {"file.delete.delay.ms": "0"}
    async with running_broker(tmp_path, topic=settings, retention_check_interval_ms=1) as broker:
        await broker.topics.create(TOPIC, 2)
        actor_of(broker).take_offline("a test says so")
        other = TopicPartition(TOPIC, 1)
        for number in range(15):
            await broker.writer.append(other, value(f"{number:010d}"))
        await until(lambda: len(list((tmp_path / "topic-1").glob("*.log*"))) == 1)
        assert actor_of(broker, other).log.log_start_offset == 10


@pytest.mark.parametrize("kept", [False, True])
async def test_old_records_are_warned_of_and_expire(tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: bool) -> None:
    configs = {"retention.ms": "-1"} if kept else {}
    async with running_broker(tmp_path) as broker:
        await broker.topics.create(TOPIC, 1, configs)
        for number in range(3):
            await broker.writer.append(PARTITION, value(f"flight {number}", YEAR_2013_MS))
        warnings = [record.getMessage() for record in caplog.records if "retention.ms" in record.getMessage()]
        assert len(warnings) == (0 if kept else 1)
        assert kept or ("older than retention.ms=604800000" in warnings[0] and "Set retention.ms=-1" in warnings[0])
        assert broker.topics.describe_config(TOPIC)["retention.ms"] == (("-1", "topic") if kept else ("604800000", "default"))
        assert await broker._manager.retention.run_pass() == (0 if kept else 1)
        assert len(await values_from(broker, offset=actor_of(broker).log.log_start_offset)) == (3 if kept else 0)
        assert actor_of(broker).log.log_end_offset == 3


async def test_deleted_records_stay_deleted_after_a_crash(tmp_path: Path) -> None:
    async with ten_segments(tmp_path / "live") as broker:
        assert await broker.logs.delete_records(PARTITION, 17) == 17
        assert started_at(tmp_path / "live") == 17
        shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    async with one_partition(tmp_path / "crashed") as broker:
        with pytest.raises(OffsetOutOfRangeError):
            await values_from(broker, offset=16)
        assert (await values_from(broker, offset=17))[0] == f"{17:010d}".encode()


async def test_records_of_compacted_and_internal_topics_are_not_deleted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker._manager.changes.create("__consumer_offsets", 1, {}, internal=True)
        with pytest.raises(RequestError, match=r"^INVALID_TOPIC_EXCEPTION.*the server's own"):
            await broker.logs.delete_records(TopicPartition("__consumer_offsets", 0), 0)
        await broker.topics.create(TOPIC, 1, {"cleanup.policy": "compact"})
        await broker.writer.append(PARTITION, [(START_MS, b"key", b"value", ())])
        with pytest.raises(RequestError, match=r"^POLICY_VIOLATION.*cleanup\.policy=compact does not contain delete"):
            await broker.logs.delete_records(PARTITION, 1)
        await broker.topics.alter_configs(TOPIC, {"cleanup.policy": "compact,delete"})
        assert await broker.logs.delete_records(PARTITION, 1) == 1


async def test_without_a_cleanup_policy_only_people_delete_records(tmp_path: Path) -> None:
    clock = Clock()
    async with ten_segments(tmp_path, clock, retention_ms="1", retention_bytes="1", cleanup_policy="") as broker:
        clock.advance(DAY_MS)
        assert await broker.logs.apply_retention() == 0
        assert await broker.logs.delete_records(PARTITION, 20) == 20
        await broker.logs.apply_retention()
        assert actor_of(broker).log.segments.first.base_offset > 0


async def test_it_is_answered_once_the_checkpoint_is_on_the_device(tmp_path: Path, broker: Broker, fs: GateFileSystem) -> None:
    await broker.writer.append(PARTITION, value("x"))
    fs.fail("write", f"{LOG_START_FILE}.tmp", number=errno.ENOSPC)
    with pytest.raises(LogOfflineError, match=r"cannot be written: .*No space.*. Free space, then try again"):
        await broker.logs.delete_records(PARTITION, 1)

    async with held(fs.hold("sync", f"{LOG_START_FILE}.tmp"), broker.logs.delete_records, PARTITION, 1) as nursery:
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1
    assert started_at(tmp_path) == 1


async def test_many_partitions_share_a_checkpoint_and_each_has_its_answer(tmp_path: Path, fs: GateFileSystem) -> None:
    many = [TopicPartition("many", number) for number in range(20)]
    async with one_partition(tmp_path, fs=fs) as broker:
        await broker.topics.create("many", len(many))
        for each in many:
            await broker.writer.append(each, value("x"))
        before = len(fs.calls)
        answers = await broker.logs.delete_records_of(
            [*((each, -1) for each in many), (many[0], 5), (TopicPartition("gone", 0), 1)]
        )
        renamed = [call.path for call in fs.calls[before:] if call.operation == "rename"]
        assert [Path(path).name for path in renamed].count(f"{LOG_START_FILE}.tmp") == 1
        assert answers[: len(many)] == [1] * len(many)
        assert [type(each) for each in answers[len(many) :]] == [OffsetOutOfRangeError, UnknownTopicOrPartitionError]
    on_device = decode_offsets(LOG_START_FILE, (tmp_path / LOG_START_FILE).read_bytes())
    assert [on_device[each] for each in many] == [1] * len(many)


async def test_a_flush_in_the_background_and_retention_take_turns(tmp_path: Path, fs: GateFileSystem) -> None:
    """A flush that was planned syncs files by the names that they have."""
    async with one_partition(tmp_path, fs=fs, topic=FEW) as broker:
        await append(broker, range(10))
        await until(lambda: actor_of(broker).log.recovery_point == 5)
        async with trio.open_nursery() as nursery:
            with fs.hold("sync", f"{5:020d}.log") as gate:
                await append(broker, range(10, 15))
                await gate.reached()
                nursery.start_soon(broker._manager.retention.run_pass)
                await trio.testing.wait_all_tasks_blocked()
                assert files(tmp_path, "*.deleted") == []
        await until(lambda: len(files(tmp_path, "*.log.deleted")) == 2)
        assert actor_of(broker).log.offline is None
        assert not [call for call in fs.calls if call.operation == "sync" and call.path.endswith(".deleted")]


def has_written(directory: Path, line: str) -> bool:
    return line in (directory / HIGH_WATERMARK_FILE).read_text()


async def test_checkpoints_are_tried_again(tmp_path: Path, fs: GateFileSystem, caplog: pytest.LogCaptureFixture) -> None:
    async with one_partition(tmp_path, fs=fs, checkpoint_interval_ms=1) as broker:
        await broker.writer.append(PARTITION, value("x"))
        await until(lambda: has_written(tmp_path, f"{TOPIC} 0 1\n"))
        fs.fail("write", f"{HIGH_WATERMARK_FILE}.tmp", number=errno.ENOSPC)
        await broker.writer.append(PARTITION, value("x"))
        await until(lambda: has_written(tmp_path, f"{TOPIC} 0 2\n"))
    assert any("trying again" in record.getMessage() and "No space" in record.getMessage() for record in caplog.records)


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
        with pytest.raises(RequestError, match="producer 7 is new, but 2 are remembered"):
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


SMALL = {"segment.bytes": "2000"}


async def fill(broker: Broker) -> None:
    if TOPIC not in broker.topics.names():
        await broker.topics.create(TOPIC)
    for number in range(60):
        await broker.writer.append(PARTITION, [(START_MS, b"key", b"%060d" % number, ())])
    log = actor_of(broker).log
    assert len(log.segments) >= 3
    await until(lambda: log.recovery_point >= log.active.base_offset)


async def test_damage_in_a_closed_segment_is_said_once_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path, topic=SMALL) as broker:
        await fill(broker)
        path = actor_of(broker).log.segments.first.log.path
        data = bytearray(Path(path).read_bytes())
        data[200] ^= 1
        Path(path).write_bytes(data)
        scrub = Scrub(broker._manager, open_child_process)
        with trio.fail_after(60), caplog.at_level(logging.ERROR):
            await scrub.run_pass()
            await scrub.run_pass()
        (line,) = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
        assert path in line
        assert "triolog repair" in line
        statistics = scrub.statistics()
        assert (statistics.passes, statistics.damages) == (2, 1)
        assert statistics.bytes_read == 2 * sum(segment.size for segment in list(actor_of(broker).log.segments)[:-1])


async def test_it_is_off_by_default_and_runs_by_itself_when_it_is_on(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "off", topic=SMALL) as broker:
        with trio.fail_after(60):
            await Scrub(broker._manager, open_child_process).run()
    async with running_broker(tmp_path / "on", topic=SMALL, scrub_bytes_per_second=1 << 30, scrub_interval_ms=5) as broker:
        await fill(broker)
        await until(lambda: broker.scrub.statistics().bytes_read > 0)
        assert broker.scrub.statistics().damages == 0


async def test_leaving_while_it_reads_slowly_leaves_no_process(tmp_path: Path) -> None:
    """The leak check of every test would find it."""
    async with running_broker(tmp_path, topic=SMALL, scrub_bytes_per_second=1) as broker:
        await fill(broker)
        scrub = Scrub(broker._manager, open_child_process)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scrub.run_pass)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert scrub.statistics().passes == 0
