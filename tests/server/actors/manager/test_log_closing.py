"""An orderly stop forces all logs to the device together, and calls no log clean that is not there."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from triolog.protocol.types import TopicPartition
from triolog.server.broker import Broker
from triolog.server.storage.disk.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, decode_offsets

from tests.support.brokers import PARTITION, actor_of, one_partition, running_broker, value, values_from
from tests.support.crash_fs import CrashFileSystem
from tests.support.gate_fs import GateFileSystem
from tests.support.sync_counting_fs import SyncCountingFileSystem, made_directories

LOG = "00000000000000000000.log"


async def append_to_each(broker: Broker, topic: str, partitions: int) -> None:
    for number in range(partitions):
        for text in ("one", "two", "three"):
            await broker.writer.append(TopicPartition(topic, number), value(text))


def recovery_points(fs: CrashFileSystem, directory: Path) -> dict[int, int]:
    path = f"{directory}/{RECOVERY_POINT_FILE}"
    return {tp.partition: offset for tp, offset in decode_offsets(path, fs.content(path)).items()}


async def syncs_of_a_stop(tmp_path: Path, partitions: int) -> int:
    fs = SyncCountingFileSystem()
    tmp_path.mkdir()
    async with running_broker(*made_directories(fs, tmp_path, 1), fs=fs) as broker:
        await broker.topics.create("t", partitions)
        await append_to_each(broker, "t", partitions)
        before = fs.syncs
    return fs.syncs - before


async def test_a_stop_with_fifty_logs_takes_as_many_syncs_as_with_two(tmp_path: Path) -> None:
    assert await syncs_of_a_stop(tmp_path / "two", 2) == await syncs_of_a_stop(tmp_path / "fifty", 50)


async def test_after_a_stop_a_power_cut_takes_nothing_and_the_next_start_is_clean(tmp_path: Path) -> None:
    fs = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)
    async with running_broker(path, fs=fs) as broker:
        await broker.topics.create("t", 10)
        await append_to_each(broker, "t", 10)
    for seed in range(20):
        after = fs.copy().crash(random.Random(seed))
        assert after.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is not None
        assert recovery_points(after, path) == dict.fromkeys(range(10), 3)
        for number in range(10):
            assert after.content(f"{path}/t-{number}/{LOG}") == fs.content(f"{path}/t-{number}/{LOG}") != b""


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_log_that_cannot_be_forced_to_the_device_is_not_called_clean(tmp_path: Path, is_lost: bool) -> None:
    """Also where the kernel has lost its pages: the error belongs to one file, all of the file system is synced at once, and
    nobody had asked about that file before."""
    fs = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)
    async with running_broker(path, fs=fs) as broker:
        await broker.topics.create("t", 10)
        await append_to_each(broker, "t", 10)
        if is_lost:
            fs.fail_write_back(f"{path}/t-7/{LOG}")
        else:
            fs.fail_next("sync_all", errno.EIO)
            fs.refuses = f"t-7/{LOG}"
    assert fs.file_size(f"{path}/{CLEAN_SHUTDOWN_FILE}") is None
    assert recovery_points(fs, path) == {number: 0 if number == 7 else 3 for number in range(10)}
    for number in set(range(10)) - {7}:
        assert fs.durable_content(f"{path}/t-{number}/{LOG}") == fs.content(f"{path}/t-{number}/{LOG}") != b""


async def test_a_stop_writes_where_a_log_begins_that_could_not_be_written_before(tmp_path: Path, fs: GateFileSystem) -> None:
    """Simulated seed 2677: deleted records came back."""
    async with one_partition(tmp_path) as broker:
        for text in ("one", "two", "three"):
            await broker.writer.append(PARTITION, value(text))
        assert await broker.logs.delete_records(PARTITION, 1) == 1
    async with one_partition(tmp_path, fs=fs) as broker:
        fs.fail("write", "derived.json.tmp", number=errno.EIO)
        assert await broker.logs.delete_records(PARTITION, 2) == 2
    async with one_partition(tmp_path) as broker:
        assert await values_from(broker, offset=2) == [b"three"]
        assert actor_of(broker).log.log_start_offset == 2
