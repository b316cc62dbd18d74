"""Names of a directory that are remembered: as the file system would answer, with fewer questions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from triolog.server.storage.disk.filesystem import CREATE, READ, FileSystem, OsFileSystem, replace_file
from triolog.server.storage.disk.remembered_names import RememberedNames


class CountsLooks(OsFileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def list_directory(self, path: str) -> list[str]:
        self.looks += 1
        return super().list_directory(path)

    def file_size(self, path: str) -> int | None:
        self.looks += 1
        return super().file_size(path)


def make(fs: FileSystem, path: str) -> None:
    fs.close(fs.open(path, CREATE))


@pytest.fixture
def directory(tmp_path: Path) -> str:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"22")
    return str(tmp_path)


def test_it_is_looked_once_and_not_at_all_for_what_is_not_there(directory: str) -> None:
    counting = CountsLooks()
    names = RememberedNames(counting, directory)
    for _ in range(3):
        listed = names.list_directory(directory)
        assert listed == ["a", "b"]
        listed.clear()  # the caller's own
    assert counting.looks == 1
    assert names.file_size(f"{directory}/c") is None
    for refused in (lambda: names.open(f"{directory}/c", READ), lambda: names.unlink(f"{directory}/c")):
        with pytest.raises(FileNotFoundError) as found:
            refused()
        assert found.value.filename == f"{directory}/c"
    assert counting.looks == 1
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
    counting = CountsLooks()
    names = RememberedNames(counting, directory).fs
    names.list_directory(directory)
    replace_file(names, f"{directory}/c", b"", durable=False)
    names.unlink(f"{directory}/a")
    assert names.list_directory(directory) == ["b", "c"]
    assert counting.looks == 1
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
