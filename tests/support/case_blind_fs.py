"""A file system that keeps the case of names and ignores it, as macOS does by default."""

from __future__ import annotations

import os

from triolog.server.storage.disk.filesystem import OsFileSystem


class CaseBlindFileSystem(OsFileSystem):
    """Finds what is below `root` by its name in any case."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def _found(self, path: str) -> str:
        if not path.startswith(f"{self._root}/"):
            return path
        folder, name = os.path.split(path)
        folder = self._found(folder)
        there = os.listdir(folder) if os.path.isdir(folder) else []
        return f"{folder}/{next((each for each in there if each.lower() == name.lower()), name)}"

    def open(self, path: str, flags: int) -> int:
        return super().open(self._found(path), flags)

    def rename(self, source: str, target: str) -> None:
        super().rename(self._found(source), target)

    def unlink(self, path: str) -> None:
        super().unlink(self._found(path))

    def list_directory(self, path: str) -> list[str]:
        return super().list_directory(self._found(path))

    def is_directory(self, path: str) -> bool:
        return super().is_directory(self._found(path))

    def file_size(self, path: str) -> int | None:
        return super().file_size(self._found(path))

    def make_directory(self, path: str) -> None:
        super().make_directory(self._found(path))

    def remove_directory(self, path: str) -> None:
        super().remove_directory(self._found(path))
