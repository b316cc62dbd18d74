"""Partitions of a topic are forced to the device together; what one directory does not take another one does."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from triolog.server.storage.errors import LogDirectoryError, LogOfflineError

from tests.support.brokers import running_broker
from tests.support.sync_counting_fs import SyncCountingFileSystem, made_directories


async def test_a_hundred_partitions_take_as_many_syncs_as_one(tmp_path: Path) -> None:
    fs = SyncCountingFileSystem()
    async with running_broker(*made_directories(fs, tmp_path, 1), fs=fs) as broker:
        taken = []
        for name, count in (("one", 1), ("many", 100)):
            before = fs.syncs
            await broker.topics.create(name, count)
            taken.append(fs.syncs - before)
    assert taken[0] == taken[1] < 10


async def test_where_not_all_can_be_synced_at_once_each_file_is(tmp_path: Path) -> None:
    fs = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)
    async with running_broker(path, fs=fs) as broker:
        fs.fail_next("sync_all", errno.EIO)
        before = fs.syncs
        await broker.topics.create("many", 50)
        assert fs.syncs - before > 100
        for number in range(50):
            assert fs.durable_content(f"{path}/many-{number}/partition.metadata") is not None
            assert fs.durable_content(f"{path}/many-{number}/00000000000000000000.log") == b""


async def test_a_partition_that_one_directory_cannot_sync_is_made_in_another_one(tmp_path: Path) -> None:
    fs = SyncCountingFileSystem()
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


async def test_a_topic_that_no_directory_can_sync_is_not_made_and_leaves_nothing(tmp_path: Path) -> None:
    fs = SyncCountingFileSystem()
    (path,) = made_directories(fs, tmp_path, 1)
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
async def test_a_topic_whose_directory_fails_at_any_sync_is_whole_or_absent(tmp_path: Path, skipped: int) -> None:
    """Simulated seed 90541: topics.json named it, and its files were taken back."""
    fs = SyncCountingFileSystem()
    paths = made_directories(fs, tmp_path, 1)
    async with running_broker(*paths, fs=fs) as broker:
        fs.fail_next("sync_directory", errno.EIO, skip=skipped)
        with contextlib.suppress(LogOfflineError, LogDirectoryError):
            await broker.topics.create("many", 2)
        fs.forget_failures()
    async with running_broker(*paths, fs=fs) as broker:
        names = list(broker.topics.names())
        assert [each.error for name in names for each in broker.topics.describe(name).partitions] == [None, None] * len(names)
        if not names:
            await broker.topics.create("many", 2)
