"""State belongs to a topic id, not to a name: a new topic inherits nothing from a deleted topic with the same name. A log that
a power cut took every name from ends where it was known to end."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
import trio
from triolog.protocol.coordinator.offsets import OFFSETS_TOPIC
from triolog.protocol.errors import InvalidRequestError, RequestError
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.logs.cleaner_process import open_child_process
from triolog.server.logs.compaction import Scrub
from triolog.server.partitions.flusher import flush
from triolog.server.storage.disk.checkpoints import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
)
from triolog.server.storage.disk.diskops import drive
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import DELETED_SUFFIX
from triolog.server.storage.log.derived_files import FILE_NAME as DERIVED_FILE
from triolog.server.storage.log.gaps import NO_FILE, OffsetGap
from triolog.server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from triolog.server.storage.lookups.fetch import fetch_batches

from tests.server.logs.test_log_retention import SMALL, fill, started_at
from tests.server.stages.test_stage_commits import APPLICATION, stage
from tests.support.brokers import LARGE, PARTITION, TOPIC, actor_of, one_partition, running_broker, until, value, values_from
from tests.support.counting_fs import SyncCountingFileSystem, made_directories
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem, held
from tests.support.logs import Clock
from tests.support.transactions import committed_offset

OLD_RECORDS = 50
CHECKPOINTS = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, CLEANER_OFFSET_FILE)


async def fill_and_trim(broker: Broker, directory: Path) -> None:
    """Leave a topic whose every checkpoint has an entry above 0."""
    await broker.topics.create(TOPIC, 1)
    for number in range(OLD_RECORDS):
        await broker.writer.append(PARTITION, value(f"old-{number}"))
    await broker.logs.delete_records(PARTITION, OLD_RECORDS - 10)
    await broker._manager.log_directories.write_checkpoints()
    (directory / CLEANER_OFFSET_FILE).write_bytes(encode_offsets({PARTITION: OLD_RECORDS - 5}))
    assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " not in (directory / name).read_text()] == []


async def recreate(broker: Broker, records: int = 0) -> None:
    await broker.topics.delete(TOPIC)
    await broker.topics.create(TOPIC)
    for number in range(records):
        await broker.writer.append(PARTITION, value(f"new-{number}"))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("records", [5, OLD_RECORDS - 5])
async def test_recreated_topic_keeps_every_record_after_a_kill(tmp_path: Path, is_restarted: bool, records: int) -> None:
    directory, killed = tmp_path / "data", tmp_path / "killed"
    async with running_broker(directory) as broker:
        await fill_and_trim(broker, directory)
        if not is_restarted:
            await recreate(broker, records)
            shutil.copytree(directory, killed)
    if is_restarted:
        async with running_broker(directory) as broker:
            await recreate(broker, records)
            shutil.copytree(directory, killed)
    async with running_broker(killed) as broker:
        log = actor_of(broker).log
        assert (log.log_start_offset, log.log_end_offset) == (0, records)
        assert await values_from(broker) == [b"new-%d" % number for number in range(records)]


async def test_checkpoints_of_other_topics_stay(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await fill_and_trim(broker, tmp_path)
        await broker.topics.create("other", 1)
        assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " not in (tmp_path / name).read_text()] == []
        await broker.topics.delete(TOPIC)
        await broker.topics.create(TOPIC, 1)
        assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " in (tmp_path / name).read_text()] == []


async def test_unreadable_checkpoint_does_not_stop_a_creation(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        (tmp_path / LOG_START_FILE).write_bytes(b"0\nmany\n")
        await broker.topics.create(TOPIC, 1)
        await broker.writer.append(PARTITION, value("x"))
        assert await values_from(broker) == [b"x"]


OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
OFFSETS_LOG = f"{OFFSETS_TOPIC}-0/00000000000000000000.log"


async def commit(broker: Broker, group: str, offset: int) -> None:
    assert await broker.offsets.commit(group, [(PARTITION, offset, None)]) == [None]


async def test_committed_offsets_that_could_not_be_taken_back_are_not_inherited(tmp_path: Path, fs: GateFileSystem) -> None:
    """As after a kill or a power cut between the deletion and the tombstones."""
    async with one_partition(tmp_path, fs=fs) as broker:
        await commit(broker, "group", 5)
        fs.fail("write", OFFSETS_LOG)
        await recreate(broker)
        assert await committed_offset(broker, "group", PARTITION) == -1
        assert broker._manager.holds.committed is not None
        assert broker._manager.holds.committed("group", PARTITION) is None
    async with one_partition(tmp_path) as broker:
        assert await committed_offset(broker, "group", PARTITION) == -1
        assert await broker.offsets.fetch("group", None) == []
        await commit(broker, "other", 2)
        await until(lambda: broker.reader.snapshot(OFFSETS).log_end_offset == 3)  # what is left is taken back later
        assert await committed_offset(broker, "other", PARTITION) == 2
    async with one_partition(tmp_path) as broker:
        assert await committed_offset(broker, "other", PARTITION) == 2


async def test_a_deletion_takes_back_no_offset_of_the_topic_that_follows(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs) as broker:
        await commit(broker, "group", 5)
        async with held(fs.hold("write", OFFSETS_LOG), commit, broker, "another", 1) as nursery:
            nursery.start_soon(broker.topics.delete, TOPIC)
            await until(lambda: TOPIC not in broker.topics.names() and not broker._manager.changes._going)
            await broker.topics.create(TOPIC)
            nursery.start_soon(commit, broker, "group", 2)
            await until(lambda: actor_of(broker, OFFSETS).statistics().waiting_commands == 2)
        assert await committed_offset(broker, "group", PARTITION) == 2
        assert await committed_offset(broker, "another", PARTITION) == -1


async def test_a_read_that_was_under_way_never_reads_the_next_topic(tmp_path: Path) -> None:
    """Its files are opened by name, perhaps when the name is that of others."""
    async with one_partition(tmp_path) as broker:
        await broker.writer.append(PARTITION, value("old"))
        snapshot = broker.reader.snapshot(PARTITION)
        await recreate(broker)
        await broker.writer.append(PARTITION, value("new"))
        fetched = drive(OsFileSystem(), fetch_batches(snapshot, 0, LARGE, min_one_batch=True))
        assert b"old" in bytes(fetched.records)
        assert await values_from(broker) == [b"new"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_records_staged_for_a_deleted_topic_are_not_committed_to_another(tmp_path: Path, restarts: bool) -> None:
    async with one_partition(tmp_path) as broker:
        share = await stage(broker, "1", "old")
        if not restarts:
            await recreate(broker)
            with pytest.raises(InvalidRequestError, match="has nothing staged"):
                await broker.stage_commits.commit(APPLICATION, 0, [share])
    async with one_partition(tmp_path) as broker:
        if restarts:
            await recreate(broker)
        with pytest.raises(InvalidRequestError, match="has nothing staged"):
            await broker.stage_commits.commit(APPLICATION, 0, [share])
        again = await stage(broker, "1", "new")
        assert (await broker.stage_commits.commit(APPLICATION, 0, [again])).by_this_call
        assert await values_from(broker) == [b"new"]


async def test_a_topic_that_is_recreated_while_a_commit_is_checked_refuses_it(tmp_path: Path, fs: GateFileSystem) -> None:
    async with one_partition(tmp_path, fs=fs, durability="fsync") as broker:
        share = await stage(broker, "1", "old")
        refused: list[RequestError] = []

        async def commit_staged() -> None:
            try:
                await broker.stage_commits.commit(APPLICATION, 0, [share])
            except RequestError as exc:
                refused.append(exc)

        async with held(fs.hold("sync", broker.stage_commits.stages.file_name("1", PARTITION)), commit_staged):
            await recreate(broker)
        assert "has nothing staged" in refused[0].message
        assert (await broker.stage_commits.commit(APPLICATION, 1, [await stage(broker, "1", "new", version=1)])).by_this_call
        assert await values_from(broker) == [b"new"]


async def test_a_deletion_removes_the_topic_from_every_checkpoint(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await fill_and_trim(broker, tmp_path)
        await broker.topics.create(f"{TOPIC}s", 1)
        await broker._manager.log_directories.write_checkpoints()
        await broker.topics.delete(TOPIC)
        assert [name for name in CHECKPOINTS if f"{TOPIC} 0 " in (tmp_path / name).read_text()] == []
        assert f"{TOPIC}s 0 0" in (tmp_path / CHECKPOINTS[0]).read_text()


async def test_a_gap_and_damage_of_the_next_topic_are_told_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gap = OffsetGap(3, 6, NO_FILE)
    async with running_broker(tmp_path, topic=SMALL) as broker:
        scrub, passes = Scrub(broker._manager, open_child_process), broker.gaps.passes
        with trio.fail_after(60), caplog.at_level(logging.ERROR):
            for count in (1, 2):
                await fill(broker)
                path = Path(actor_of(broker).log.segments.first.log.path)
                data = bytearray(path.read_bytes())
                data[200] ^= 1
                path.write_bytes(data)
                for _ in range(2):
                    await scrub.run_pass()
                    passes.passed("client", PARTITION, [gap])
                assert scrub.statistics().damages == count
                assert passes.counts().passed == {TOPIC: count}
                await broker.topics.delete(TOPIC)
        assert len([record for record in caplog.records if "are damaged" in record.getMessage()]) == 2


RETENTION = {"retention.ms": "1000"}
OLD = "0" * 20


def ends(broker: Broker) -> tuple[int, int]:
    snapshot = broker.reader.snapshot(PARTITION)
    return snapshot.log_start_offset, snapshot.log_end_offset


async def emptied(fs: CrashFileSystem, path: Path, clock: Clock, durability: str) -> None:
    """Leave a log that was stopped cleanly and of which every record is deleted: its files are still there."""
    async with one_partition(path, fs=fs, clock=clock, durability=durability, topic=RETENTION) as broker:
        for text in ("one", "two"):
            await broker.writer.append(PARTITION, value(text))
        await broker.logs.delete_records(PARTITION, -1)


def after_power_cut(fs: CrashFileSystem, path: Path) -> CrashFileSystem:
    """The names that were renamed are on the device, those of new files are not."""
    directory, after = f"{path}/{PARTITION}", fs.crash(None)
    for name in after.list_directory(directory):
        if name.startswith(OLD) and not name.endswith(DELETED_SUFFIX):
            after.rename(f"{directory}/{name}", f"{directory}/{name}{DELETED_SUFFIX}")
    after.sync_directory(directory)
    return after


@pytest.mark.parametrize("durability", ["fsync", "group:50", "os"])
@pytest.mark.parametrize("cleanly", [False, True])
async def test_no_offset_is_given_twice_if_all_names_are_lost(
    tmp_path: Path, clock: Clock, durability: str, cleanly: bool
) -> None:
    """The first cut takes the name of the empty segment that retention leaves, the second that of the one made in its place."""
    fs: CrashFileSystem = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)  # type: ignore[arg-type]
    await emptied(fs, path, clock, durability)
    clock.advance(10_000)
    async with one_partition(path, fs=fs, clock=clock, durability=durability, topic=RETENTION) as broker:
        await broker.logs.apply_retention()
        assert ends(broker) == (2, 2)
        cut = fs.copy()
    fs = after_power_cut(cut, path)
    assert not [name for name in fs.list_directory(f"{path}/{PARTITION}") if name.endswith(".log")]
    async with one_partition(path, fs=fs, clock=clock, durability=durability, topic=RETENTION) as broker:
        assert ends(broker) == (2, 2)
        await broker._manager.log_directories.write_checkpoints()
        cut = fs.copy()
    fs = after_power_cut(fs if cleanly else cut, path)
    async with one_partition(path, fs=fs, clock=clock, durability=durability, topic=RETENTION) as broker:
        assert ends(broker) == (2, 2)
        assert (await broker.writer.append(PARTITION, value("three"))).base_offset == 2


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_a_log_without_files_ends_at_its_known_end_and_says_what_is_lost(tmp_path: Path, durability: str) -> None:
    killed = tmp_path / "killed"
    async with one_partition(tmp_path / "data", durability=durability) as broker:
        for text in ("one", "two", "three"):
            await broker.writer.append(PARTITION, value(text))
        await broker.logs.delete_records(PARTITION, 1)
        await broker._manager.log_directories.write_checkpoints()
        shutil.copytree(tmp_path / "data", killed)
    for path in (killed / str(PARTITION)).glob(f"{OLD}.*"):
        path.unlink()
    promised = 3 if durability == "fsync" else 1
    async with one_partition(killed, durability=durability) as broker:
        assert ends(broker) == (1, promised)
        [gaps] = await broker.gaps.of(TOPIC) if promised == 3 else [None]
        assert gaps is None or [each.gap[:2] for each in gaps.gaps] == [(1, 3)]
        assert (await broker.writer.append(PARTITION, value("four"))).base_offset == promised


@pytest.mark.parametrize("kept", [LOG_START_FILE, DERIVED_FILE, LEADER_EPOCH_FILE])
async def test_a_log_without_segments_begins_where_any_file_says(tmp_path: Path, clock: Clock, kept: str) -> None:
    async with one_partition(tmp_path, clock=clock) as broker:
        for text in ("one", "two", "three"):
            await broker.writer.append(PARTITION, value(text))
        await broker.logs.delete_records(PARTITION, 2)
    async with one_partition(tmp_path, clock=clock):
        pass  # a start takes what lies below out of the leader epochs
    for path in [*tmp_path.glob("*-checkpoint"), *(tmp_path / str(PARTITION)).iterdir()]:
        if path.name not in (kept, PARTITION_METADATA_FILE):
            path.unlink()
    async with one_partition(tmp_path, clock=clock) as broker:
        assert ends(broker) == (2, 2)


async def test_the_log_start_is_listed_as_long_as_a_power_cut_can_take_the_first_file(tmp_path: Path, clock: Clock) -> None:
    async with one_partition(tmp_path, clock=clock, durability="os", topic=RETENTION) as broker:
        for text in ("one", "two"):
            await broker.writer.append(PARTITION, value(text))
        clock.advance(10_000)
        await broker.logs.apply_retention()
        log = actor_of(broker).log
        log.doomed.clear()
        await broker._manager.log_directories.write_checkpoints()
        assert log.segments.first.base_offset == started_at(tmp_path) == 2
        await broker.writer.append(PARTITION, value("three"))
        await actor_of(broker).perform(flush)
        await broker._manager.log_directories.write_checkpoints()
        assert started_at(tmp_path) is None
