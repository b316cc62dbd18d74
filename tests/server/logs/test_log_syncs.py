"""Partitions are forced to the device together when they are made, at a stop, and at a start after a kill. What one
directory does not take another one does; no log is called clean that is not there."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, decode_offsets
from triolog.server.storage.errors import LogDirectoryError, LogOfflineError

from tests.support.brokers import PARTITION, actor_of, one_partition, running_broker, value, values_from
from tests.support.counting_fs import SyncCountingFileSystem, made_directories
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem

LOG = "00000000000000000000.log"


async def fill(broker: Broker, partitions: int) -> None:
    await broker.topics.create("t", partitions)
    for number in range(partitions):
        for text in ("one", "two", "three"):
            await broker.writer.append(TopicPartition("t", number), value(text))


def recovery_points(fs: CrashFileSystem, directory: Path) -> dict[int, int]:
    path = f"{directory}/{RECOVERY_POINT_FILE}"
    return {tp.partition: offset for tp, offset in decode_offsets(path, fs.content(path)).items()}


def contents(fs: CrashFileSystem, path: Path, *, durable: bool = False) -> list[bytes | None]:
    """Of each log, or what the device has of it."""
    names = sorted(name for name in fs.list_directory(str(path)) if name.startswith("t-"))
    return [(fs.durable_content if durable else fs.content)(f"{path}/{name}/{LOG}") for name in names]


@pytest.fixture
def fs() -> SyncCountingFileSystem:
    return SyncCountingFileSystem()


@pytest.fixture
def path(fs: SyncCountingFileSystem, tmp_path: Path) -> Path:
    """A log directory, which is on the device."""
    (path,) = made_directories(fs, tmp_path, 1)
    return path


async def left_unclean(fs: CrashFileSystem, path: Path, partitions: int) -> None:
    """Logs of which none was ever forced to the device, as a killed server leaves them."""
    async with running_broker(path, fs=fs) as broker:
        await fill(broker, partitions)
        killed = fs.copy()
    fs._root = killed._root
    assert fs.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is None


def end_offsets(broker: Broker) -> list[int]:
    return [partition.log_end_offset for partition in broker.topics.describe("t").partitions]


async def syncs(tmp_path: Path, partitions: int, when: str) -> int:
    """Of a stop, or of a start."""
    fs = SyncCountingFileSystem()
    tmp_path.mkdir()
    (path,) = made_directories(fs, tmp_path, 1)
    if when == "start":
        await left_unclean(fs, path, partitions)
    before = fs.syncs
    async with running_broker(path, fs=fs) as broker:
        if when == "start":
            assert end_offsets(broker) == [3] * partitions
            return fs.syncs - before
        await fill(broker, partitions)
        before = fs.syncs
    return fs.syncs - before


@pytest.mark.parametrize("when", ["start", "stop"])
async def test_fifty_logs_take_as_many_syncs_as_two(tmp_path: Path, when: str) -> None:
    assert await syncs(tmp_path / "two", 2, when) == await syncs(tmp_path / "fifty", 50, when)


async def test_after_a_stop_a_power_cut_takes_nothing_and_a_start_is_clean(fs: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=fs) as broker:
        await fill(broker, 10)
    for seed in range(20):
        after = fs.copy().crash(random.Random(seed))
        assert after.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is not None
        assert recovery_points(after, path) == dict.fromkeys(range(10), 3)
        assert contents(after, path) == contents(fs, path)
        assert all(contents(after, path))


async def test_what_is_served_after_a_kill_outlives_a_power_cut(fs: SyncCountingFileSystem, path: Path) -> None:
    await left_unclean(fs, path, 5)
    async with running_broker(path, fs=fs) as broker:
        assert end_offsets(broker) == [3] * 5
        for seed in range(20):
            after = fs.copy().crash(random.Random(seed))
            assert contents(after, path) == contents(fs, path)
            assert all(contents(after, path))


async def test_what_the_device_refused_before_the_kill_is_written_again(fs: SyncCountingFileSystem, path: Path) -> None:
    """A sync of all files alone would not bring it there: its pages are clean."""
    await left_unclean(fs, path, 5)
    fs.fail_write_back(f"{path}/t-3/{LOG}")
    async with running_broker(path, fs=fs) as broker:
        assert end_offsets(broker) == [3] * 5
        assert contents(fs, path, durable=True) == contents(fs, path)
        assert all(contents(fs, path))


async def test_a_log_that_cannot_be_forced_to_the_device_at_a_start_is_offline(fs: SyncCountingFileSystem, path: Path) -> None:
    await left_unclean(fs, path, 5)
    fs.fail_next("sync_all", errno.EIO)
    fs.fail_next("sync_all", errno.EIO)
    fs.refuses = f"t-3/{LOG}"
    async with running_broker(path, fs=fs) as broker:
        partitions = broker.topics.describe("t").partitions
        assert [partition.error is None for partition in partitions] == [True, True, True, False, True]
        for number in (0, 1, 2, 4):
            assert contents(fs, path, durable=True)[number] == contents(fs, path)[number] != b""


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_log_not_on_the_device_is_not_called_clean(fs: SyncCountingFileSystem, path: Path, is_lost: bool) -> None:
    """Also where the kernel has lost its pages: the error belongs to one file, all of the file system is synced at once, and
    nobody had asked about that file before."""
    async with running_broker(path, fs=fs) as broker:
        await fill(broker, 10)
        if is_lost:
            fs.fail_write_back(f"{path}/t-7/{LOG}")
        else:
            fs.fail_next("sync_all", errno.EIO)
            fs.refuses = f"t-7/{LOG}"
    assert fs.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is None
    assert recovery_points(fs, path) == {number: 0 if number == 7 else 3 for number in range(10)}
    for number in set(range(10)) - {7}:
        assert contents(fs, path, durable=True)[number] == contents(fs, path)[number] != b""


async def test_a_stop_writes_where_a_log_begins_that_could_not_be_written_before(tmp_path: Path) -> None:
    """Simulated seed 2677: deleted records came back."""
    async with one_partition(tmp_path) as broker:
        for text in ("one", "two", "three"):
            await broker.writer.append(PARTITION, value(text))
        assert await broker.logs.delete_records(PARTITION, 1) == 1
    fs = GateFileSystem()
    async with one_partition(tmp_path, fs=fs) as broker:
        fs.fail("write", "derived.json.tmp", number=errno.EIO)
        assert await broker.logs.delete_records(PARTITION, 2) == 2
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker, offset=2) == [b"three"]
        assert actor_of(broker).log.log_start_offset == 2


async def test_a_hundred_partitions_take_as_many_syncs_as_one(fs: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=fs) as broker:
        taken = []
        for name, count in (("one", 1), ("many", 100)):
            before = fs.syncs
            await broker.topics.create(name, count)
            taken.append(fs.syncs - before)
    assert taken[0] == taken[1] < 10


async def test_where_not_all_can_be_synced_at_once_each_file_is(fs: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=fs) as broker:
        fs.fail_next("sync_all", errno.EIO)
        before = fs.syncs
        await broker.topics.create("many", 50)
        assert fs.syncs - before > 100
        for number in range(50):
            assert fs.durable_content(f"{path}/many-{number}/partition.metadata") is not None
            assert fs.durable_content(f"{path}/many-{number}/00000000000000000000.log") == b""


async def test_what_one_directory_cannot_sync_is_made_in_another(fs: SyncCountingFileSystem, tmp_path: Path) -> None:
    paths = made_directories(fs, tmp_path, 2)
    async with running_broker(*paths, fs=fs) as broker:
        for _ in paths:
            fs.fail_next("sync_all", errno.EIO)
        fs.refuses = f"{paths[0]}/many-"
        await broker.topics.create("many", 4)
        made = [[name for name in fs.list_directory(str(path)) if name.startswith("many-")] for path in paths]
        assert made == [[], ["many-0", "many-1", "many-2", "many-3"]]
    async with running_broker(*paths, fs=fs) as broker:
        assert [each.error for each in broker.topics.describe("many").partitions] == [None] * 4


async def test_a_topic_that_no_directory_can_sync_is_not_made_nor_left(fs: SyncCountingFileSystem, path: Path) -> None:
    async with running_broker(path, fs=fs) as broker:
        fs.fail_next("sync_all", errno.EIO)
        fs.refuses = "many-2/"
        with pytest.raises(LogOfflineError, match="could not be made"):
            await broker.topics.create("many", 4)
        assert "many" not in broker.topics.names()
        assert [name for name in fs.list_directory(str(path)) if name.startswith("many-")] == []


async def test_what_no_directory_can_store_is_refused(tmp_path: Path) -> None:
    """Simulated seed 591: producer ids that no directory knew were given out again, and a record was taken for another's."""
    async with running_broker(tmp_path) as broker:
        await broker.topics.create("many", 2)
        directories = broker._manager.changes.directories
        with pytest.raises(LogDirectoryError):
            directories.fail(directories.live[0], OSError(errno.EIO, "gone"))
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: broker.topics.create("more", 4),
            lambda: broker.producers.init(None, 0),
            lambda: broker.topics.alter_configs("many", {"retention.ms": "1"}, ()),
            lambda: broker.topics.create_partitions("many", 3),
            lambda: broker.group_configs.change("a", lambda _: {"share.delivery.count.limit": "3"}),
            lambda: broker.topics.delete("many"),
        ]
        for change in refused:
            with pytest.raises(LogOfflineError, match=r"no log directory (can be used|is in service)"):
                await change()
        assert broker.group_configs.overrides() == {}
        assert "more" not in broker.topics.names()
    async with running_broker(tmp_path) as broker:
        assert broker.topics.describe("many").configs == {}


@pytest.mark.parametrize("skipped", range(4))
async def test_a_topic_is_whole_or_absent_whichever_sync_fails(fs: SyncCountingFileSystem, path: Path, skipped: int) -> None:
    """Simulated seed 90541: topics.json named it, and its files were taken back."""
    async with running_broker(path, fs=fs) as broker:
        fs.fail_next("sync_directory", errno.EIO, skip=skipped)
        with contextlib.suppress(LogOfflineError, LogDirectoryError):
            await broker.topics.create("many", 2)
        fs.forget_failures()
    async with running_broker(path, fs=fs) as broker:
        names = list(broker.topics.names())
        assert [each.error for name in names for each in broker.topics.describe(name).partitions] == [None, None] * len(names)
        if not names:
            await broker.topics.create("many", 2)
