"""What was scanned after an unclean stop is forced to the device for all logs together, before anything is served."""

from __future__ import annotations

import errno
import random
from pathlib import Path

from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE

from tests.support.brokers import running_broker, value
from tests.support.crash_fs import CrashFileSystem
from tests.support.sync_counting_fs import SyncCountingFileSystem, made_directories

LOG = "00000000000000000000.log"


async def left_unclean(fs: CrashFileSystem, path: Path, partitions: int) -> None:
    """Logs of two records each, of which none was ever forced to the device, as a killed server leaves them."""
    async with running_broker(path, fs=fs) as broker:
        await broker.topics.create("t", partitions)
        for number in range(partitions):
            for text in ("one", "two"):
                await broker.writer.append(TopicPartition("t", number), value(text))
        killed = fs.copy()
    fs._root = killed._root
    assert fs.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is None


def end_offsets(broker: Broker) -> list[int]:
    return [partition.log_end_offset for partition in broker.topics.describe("t").partitions]


async def syncs_of_a_start(tmp_path: Path, partitions: int) -> int:
    fs = SyncCountingFileSystem()
    tmp_path.mkdir()
    (path,) = made_directories(fs, tmp_path, 1)
    await left_unclean(fs, path, partitions)
    before = fs.syncs
    async with running_broker(path, fs=fs) as broker:
        assert end_offsets(broker) == [2] * partitions
        return fs.syncs - before


async def test_a_start_with_fifty_logs_takes_as_many_syncs_as_one_with_two(tmp_path: Path) -> None:
    assert await syncs_of_a_start(tmp_path / "two", 2) == await syncs_of_a_start(tmp_path / "fifty", 50)


async def test_what_is_served_after_a_kill_outlives_a_power_cut(tmp_path: Path) -> None:
    fs = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)
    await left_unclean(fs, path, 5)
    async with running_broker(path, fs=fs) as broker:
        assert end_offsets(broker) == [2] * 5
        for seed in range(20):
            after = fs.copy().crash(random.Random(seed))
            for number in range(5):
                assert after.content(f"{path}/t-{number}/{LOG}") == fs.content(f"{path}/t-{number}/{LOG}") != b""


async def test_what_the_device_refused_before_the_kill_is_written_again(tmp_path: Path) -> None:
    """A sync of all files alone would not bring it there: its pages are clean."""
    fs = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)
    await left_unclean(fs, path, 5)
    fs.fail_write_back(f"{path}/t-3/{LOG}")
    async with running_broker(path, fs=fs) as broker:
        assert end_offsets(broker) == [2] * 5
        for number in range(5):
            assert fs.durable_content(f"{path}/t-{number}/{LOG}") == fs.content(f"{path}/t-{number}/{LOG}") != b""


async def test_a_log_that_cannot_be_forced_to_the_device_is_offline_and_the_others_are_served(tmp_path: Path) -> None:
    fs = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)
    await left_unclean(fs, path, 5)
    fs.fail_next("sync_all", errno.EIO)
    fs.fail_next("sync_all", errno.EIO)
    fs.refuses = f"t-3/{LOG}"
    async with running_broker(path, fs=fs) as broker:
        partitions = broker.topics.describe("t").partitions
        assert [partition.error is None for partition in partitions] == [True, True, True, False, True]
        for number in (0, 1, 2, 4):
            assert fs.durable_content(f"{path}/t-{number}/{LOG}") == fs.content(f"{path}/t-{number}/{LOG}") != b""
