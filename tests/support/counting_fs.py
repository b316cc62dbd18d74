"""File systems that count syncs and refuse some, or count calls; and the inodes that this process syncs."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from triolog.server.storage.disk.filesystem import FileSystem, OsFileSystem

from tests.support.crash_fs import CrashFileSystem


class SyncCountingFileSystem(CrashFileSystem):
    """Counts syncs, and refuses those of files whose paths hold a text."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.refuses = ""
        self._paths: dict[int, str] = {}

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.refuses and self.refuses in self._paths[fd]:
            raise OSError(errno.EIO, "refused", self._paths[fd])
        super().sync(fd)

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        super().sync_directory(path)


def made_directories(fs: CrashFileSystem, tmp_path: Path, count: int) -> list[Path]:
    """Log directories, in the file system and, for their locks, on the machine's."""
    paths = [tmp_path / f"data-{number}" for number in range(count)]
    for path in paths:
        path.mkdir()
        fs.make_directory(str(path))
    return paths


CALLS: Final = frozenset(name for name, member in vars(FileSystem).items() if callable(member) and not name.startswith("_"))


class CallCountingFileSystem(OsFileSystem):
    """Counts calls by name, and new files as `made`. What a call does by way of others counts, too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()

    def __getattribute__(self, name: str) -> Any:
        member = super().__getattribute__(name)
        return partial(self._call, name, member) if name in CALLS else member

    def _call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        self.calls[name] += 1
        if name == "open" and str(args[0]).endswith(".tmp"):
            self.calls["made"] += 1
        return function(*args)


def synced_inodes(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Their inodes, as they are synced from now on."""
    synced: set[int] = set()
    sync = os.fsync

    def fsync(fd: int) -> None:
        synced.add(os.fstat(fd).st_ino)
        sync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "fdatasync", fsync)
    return synced
