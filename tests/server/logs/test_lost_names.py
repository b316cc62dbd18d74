"""A power cut takes the name of a log's only segment: other files say where the log begins, and no offset is given twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from triolog.server.broker import Broker
from triolog.server.partitions.flusher import flush
from triolog.server.storage.disk.checkpoints import LOG_START_FILE, PARTITION_METADATA_FILE
from triolog.server.storage.disk.paths import DELETED_SUFFIX
from triolog.server.storage.log.derived_files import FILE_NAME as DERIVED_FILE
from triolog.server.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE

from tests.server.logs.test_log_retention import started_at
from tests.support.brokers import PARTITION, TOPIC, actor_of, one_partition, value
from tests.support.crash_fs import CrashFileSystem
from tests.support.logs import Clock
from tests.support.sync_counting_fs import SyncCountingFileSystem, made_directories

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
async def test_no_offset_is_given_twice_when_power_cuts_take_every_name(
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
async def test_a_log_without_files_ends_where_it_was_known_to_end_and_says_what_is_lost(
    tmp_path: Path, durability: str
) -> None:
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
