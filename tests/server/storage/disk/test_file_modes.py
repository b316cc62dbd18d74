"""Files and directories are for whom they are said to be, whatever the umask; what is there keeps its mode."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from triolog.server.config import DataPermissions
from triolog.server.storage.disk.filesystem import CREATE, OsFileSystem, replace_file

from tests.support.brokers import PARTITION, TOPIC, one_partition, value

MODES: Final = {DataPermissions.OWNER: (0o600, 0o700), DataPermissions.GROUP: (0o640, 0o750)}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def make(fs: OsFileSystem, folder: Path) -> tuple[int, int, int]:
    """Modes of a file, and of the directory that is made for it with the one above."""
    fs.make_directory(str(folder / "a" / "b"))
    fs.close(fs.open(str(folder / "a" / "b" / "file"), CREATE))
    replace_file(fs, str(folder / "a" / "b" / "replaced"), b"x")
    assert mode(folder / "a" / "b" / "replaced") == mode(folder / "a" / "b" / "file")
    return mode(folder / "a" / "b" / "file"), mode(folder / "a" / "b"), mode(folder / "a")


@pytest.mark.parametrize(
    ("permissions", "mask", "modes"),
    [
        *((permissions, mask, modes) for permissions, modes in MODES.items() for mask in (0, 0o022, 0o077, 0o277)),
        (DataPermissions.UMASK, 0, (0o666, 0o777)),
        (DataPermissions.UMASK, 0o027, (0o640, 0o750)),
    ],
)
def test_what_is_made_is_for_whom_it_is_said_to_be_whatever_the_umask(
    tmp_path: Path, permissions: DataPermissions, mask: int, modes: tuple[int, int]
) -> None:
    """But where the umask is to decide, and there not of what is private."""
    with umask(mask):
        assert make(OsFileSystem(permissions), tmp_path) == (*modes, modes[1])
        replace_file(OsFileSystem(permissions), str(tmp_path / "secret"), b"x", private=True)
    assert mode(tmp_path / "secret") == 0o600


def test_without_anything_said_it_is_for_the_owner_alone(tmp_path: Path) -> None:
    with umask(0):
        assert make(OsFileSystem(), tmp_path) == (0o600, 0o700, 0o700)


def test_what_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    for path, chosen in ((tmp_path / "a", 0o755), (tmp_path / "a" / "b", 0o751), (tmp_path / "a" / "b" / "file", 0o644)):
        path.chmod(chosen)
    fs = OsFileSystem()
    fs.make_directory(str(tmp_path / "a" / "b"))
    fs.close(fs.open(str(tmp_path / "a" / "b" / "file"), CREATE | os.O_TRUNC))
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b"), mode(tmp_path / "a" / "b" / "file")) == (0o755, 0o751, 0o644)


def test_errors_are_those_of_the_system(tmp_path: Path) -> None:
    fs = OsFileSystem()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        fs.open(str(tmp_path / "file"), CREATE | os.O_EXCL)
    with pytest.raises(FileExistsError):
        fs.make_directory(str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError):
        fs.make_directory(str(tmp_path / "file" / "below"))
    with pytest.raises(FileNotFoundError):
        fs.open(str(tmp_path / "none" / "file"), CREATE)


def test_a_mount_that_knows_no_modes_gives_what_it_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchmod", refuse)
    monkeypatch.setattr(os, "chmod", refuse)
    with umask(0o077):
        assert make(OsFileSystem(DataPermissions.GROUP), tmp_path) == (0o600, 0o700, 0o700)


@pytest.mark.parametrize("permissions", [*MODES, None])
async def test_all_that_a_broker_makes_has_these_modes(tmp_path: Path, permissions: DataPermissions | None) -> None:
    file_mode, directory_mode = MODES[permissions or DataPermissions.OWNER]
    settings = {} if permissions is None else {"data_permissions": permissions}
    with umask(0):
        async with one_partition(tmp_path / "new" / "data", topic={"segment.bytes": "200"}, **settings) as broker:
            for _ in range(5):
                await broker.writer.append(PARTITION, value("x" * 50))
            await broker.writer.append(PARTITION, value("x"), acks=1)
    paths = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {path.suffix for path in paths} >= {".log", ".index", ".timeindex", ".snapshot", ".json"}
    wrong = {
        str(path): oct(mode(path))
        for path in paths
        if mode(path) != (directory_mode if path.is_dir() else 0o600 if path.name == ".lock" else file_mode)
    }
    assert not wrong
    assert any(path.name == f"{TOPIC}-0" for path in paths)
