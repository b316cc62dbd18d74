"""The real file system, and what was done to it: bytes read of each file, syncs in their order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from triolog.server.storage.disk.filesystem import OsFileSystem


class WatchedFileSystem(OsFileSystem):
    """Files go by their names; a synced directory is noted by its path with a slash behind it."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.read_bytes = Counter[str]()
        self.synced: list[str] = []

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self.names[fd] = Path(path).name
        return fd

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        self.read_bytes[self.names[fd]] += len(data)
        return data

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.synced.append(self.names[fd])

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.synced.append(f"{path}/")
