"""Syncs that are done later: nothing is on the device before, all of it afterwards, and what is replaced is never lost."""

from __future__ import annotations

import os
import random

import pytest
from triolog.server.storage.disk.filesystem import CREATE, WRITE, replace_file
from triolog.server.storage.disk.later_syncs import LaterSyncs

from tests.support.crash_fs import CrashFileSystem


@pytest.fixture
def fs() -> CrashFileSystem:
    fs = CrashFileSystem()
    fs.make_directory("/d")
    fs.sync_directory("/")
    return fs


def put(fs: LaterSyncs, path: str, data: bytes) -> None:
    fd = fs.open(path, CREATE | os.O_TRUNC)
    fs.write(fd, [data], 0)
    fs.sync(fd)
    fs.close(fd)
    fs.sync_directory("/d")


def test_what_is_due_is_on_the_device_once_it_is_done_and_counted_once(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    put(later, "/d/a", b"one")
    put(later, "/d/a", b"two")
    put(later, "/d/b", b"three")
    assert len(later) == 3  # two files and their directory
    assert fs.durable_content("/d/a") is None
    later.sync_now()
    assert [fs.durable_content(path) for path in ("/d/a", "/d/b")] == [b"two", b"three"]
    assert fs.open_descriptors == 0


def test_a_new_file_that_is_put_in_place_is_synced_under_its_new_name(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    replace_file(later.fs, "/d/a", b"new")
    assert fs.durable_content("/d/a") is None
    later.sync_now()
    assert fs.durable_content("/d/a") == b"new"


def test_a_file_that_is_replaced_is_the_old_or_the_new_one_after_a_power_cut(fs: CrashFileSystem) -> None:
    replace_file(fs, "/d/a", b"old")
    replace_file(LaterSyncs(fs).fs, "/d/a", b"new")
    found = set()
    for seed in range(50):
        after = fs.copy().crash(random.Random(seed))
        found.add(after.content("/d/a"))
    assert found == {b"old", b"new"}


def test_a_file_that_is_not_open_can_be_noted_if_it_is_there(fs: CrashFileSystem) -> None:
    replace_file(fs, "/d/a", b"one", durable=False)
    later = LaterSyncs(fs)
    later.note("/d/a")
    later.note("/d/a")
    with pytest.raises(FileNotFoundError, match="/d/b"):
        later.note("/d/b")
    later.sync_directory("/d")
    assert len(later) == 2
    later.sync_now()
    assert fs.durable_content("/d/a") == b"one"


def test_what_is_deleted_again_is_not_due_and_an_error_of_a_sync_comes_when_it_is_done(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    fd = later.open("/d/a", CREATE)
    later.sync(fd)
    later.close(fd)
    later.unlink("/d/a")
    assert len(later) == 0
    later.sync_now()
    put(later, "/d/a", b"one")
    fs.fail_next("sync", 5)
    with pytest.raises(OSError, match="sync"):
        later.sync_now()


class Forgets(CrashFileSystem):
    """Notes which way pages are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten: list[str] = []

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        self.forgotten.append("written back before")
        super().forget(fd, start, stop)

    def forget_clean(self, fd: int, start: int, stop: int | None = None) -> None:
        self.forgotten.append("clean")


def test_only_what_is_known_to_be_clean_is_forgotten_without_writing_it_back() -> None:
    fs = Forgets()
    for later in (LaterSyncs(fs), LaterSyncs(fs, is_written_back=True)):
        fd = later.open("/a", CREATE)
        later.forget(fd, 0)
        later.write(fd, [b"x"], 0)
        later.forget(fd, 0)
        later.close(fd)
        fd = later.open("/a", WRITE)
        later.truncate(fd, 0)
        later.close(fd)
    assert fs.forgotten == ["written back before", "written back before", "clean", "written back before"]
