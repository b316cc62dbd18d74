"""File systems between a log and the device: one that remembers the names of a directory, and one that syncs later."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from triolog.server.storage.disk.filesystem import CREATE, READ, WRITE, FileSystem, OsFileSystem, replace_file
from triolog.server.storage.disk.filesystem_layers import LaterSyncs, RememberedNames

from tests.support.call_counting_fs import CallCountingFileSystem
from tests.support.crash_fs import CrashFileSystem


def looks(fs: CallCountingFileSystem) -> int:
    return fs.calls["list_directory"] + fs.calls["file_size"]


def make(fs: FileSystem, path: str) -> None:
    fs.close(fs.open(path, CREATE))


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"22")
    return str(tmp_path)


def test_it_is_looked_once_and_not_at_all_for_what_is_not_there(directory: str) -> None:
    counting = CallCountingFileSystem()
    names = RememberedNames(counting, directory)
    for _ in range(3):
        listed = names.list_directory(directory)
        assert listed == ["a", "b"]
        listed.clear()  # the caller's own
    assert looks(counting) == 1
    assert names.file_size(f"{directory}/c") is None
    for refused in (lambda: names.open(f"{directory}/c", READ), lambda: names.unlink(f"{directory}/c")):
        with pytest.raises(FileNotFoundError) as found:
            refused()
        assert found.value.filename == f"{directory}/c"
    assert looks(counting) == 1
    assert names.file_size(f"{directory}/b") == 2


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda fs, path: make(fs, f"{path}/c"), ["a", "b", "c"]),
        (lambda fs, path: fs.unlink(f"{path}/a"), ["b"]),
        (lambda fs, path: fs.rename(f"{path}/a", f"{path}/z"), ["b", "z"]),
        (lambda fs, path: fs.link(f"{path}/a", f"{path}/z"), ["a", "b", "z"]),
        (lambda fs, path: fs.make_directory(f"{path}/z"), ["a", "b", "z"]),
        (lambda fs, path: replace_file(fs, f"{path}/z", b""), ["a", "b", "z"]),
    ],
)
def test_what_is_changed_through_it_is_seen(
    directory: str, change: Callable[[FileSystem, str], object], after: list[str]
) -> None:
    names = RememberedNames(OsFileSystem(), directory).fs
    names.list_directory(directory)
    change(names, directory)
    assert names.list_directory(directory) == after == sorted(os.listdir(directory))
    assert [name for name in ("a", "b", "c", "z") if names.file_size(f"{directory}/{name}") is not None] == after


def test_of_its_own_changes_it_knows_without_a_look_and_behind_one_that_failed_it_looks_again(directory: str) -> None:
    counting = CallCountingFileSystem()
    names = RememberedNames(counting, directory).fs
    names.list_directory(directory)
    replace_file(names, f"{directory}/c", b"", durable=False)
    names.unlink(f"{directory}/a")
    assert names.list_directory(directory) == ["b", "c"]
    assert looks(counting) == 1
    os.mkdir(f"{directory}/sub")
    with pytest.raises(IsADirectoryError):
        names.rename(f"{directory}/b", f"{directory}/sub")
    assert names.list_directory(directory) == ["b", "c", "sub"]


def test_a_file_that_goes_elsewhere_is_gone_and_one_from_elsewhere_is_there(directory: str) -> None:
    os.mkdir(f"{directory}/sub")
    names = RememberedNames(OsFileSystem(), directory).fs
    names.list_directory(directory)
    names.rename(f"{directory}/a", f"{directory}/sub/x")
    assert names.list_directory(directory) == ["b", "sub"]
    names.rename(f"{directory}/sub/x", f"{directory}/y")
    assert names.list_directory(directory) == ["b", "sub", "y"]


def test_other_directories_are_not_remembered(directory: str) -> None:
    other = f"{directory}/sub"
    os.mkdir(other)
    names = RememberedNames(OsFileSystem(), directory)
    names.list_directory(directory)
    assert names.list_directory(other) == []
    make(OsFileSystem(), f"{other}/x")
    assert names.list_directory(other) == ["x"]
    assert names.file_size(f"{other}/x") == 0


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
    later.settle()
    assert [fs.durable_content(path) for path in ("/d/a", "/d/b")] == [b"two", b"three"]
    assert fs.open_descriptors == 0


def test_a_new_file_that_is_put_in_place_is_synced_under_its_new_name(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    replace_file(later.fs, "/d/a", b"new")
    assert fs.durable_content("/d/a") is None
    later.settle()
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
    later.settle()
    assert fs.durable_content("/d/a") == b"one"


def test_what_is_deleted_again_is_not_due_and_an_error_of_a_sync_comes_when_it_is_done(fs: CrashFileSystem) -> None:
    later = LaterSyncs(fs)
    fd = later.open("/d/a", CREATE)
    later.sync(fd)
    later.close(fd)
    later.unlink("/d/a")
    assert len(later) == 0
    later.settle()
    put(later, "/d/a", b"one")
    fs.fail_next("sync", 5)
    with pytest.raises(OSError, match="sync"):
        later.settle()


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
