"""A file system that counts syncs, and refuses those of some files."""

from __future__ import annotations

import errno
from pathlib import Path

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
