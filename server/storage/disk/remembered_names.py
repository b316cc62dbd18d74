"""A file system that remembers which names are in one directory, for whoever opens a log: of the files that a partition may
have most are not there, and its directory is looked through ten times.

Right as long as nobody else makes or removes files there. What is made or removed through it makes it look again.
"""

from __future__ import annotations

import errno
import os
from typing import Any, cast

import attrs

from .filesystem import READ, FileSystem


@attrs.define(eq=False)
class RememberedNames:
    """Has all methods of a file system; those that are not here are passed on."""

    _fs: FileSystem
    _directory: str
    _names: list[str] | None = None
    _lookup: frozenset[str] = frozenset()

    @property
    def fs(self) -> FileSystem:
        return cast(FileSystem, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def list_directory(self, path: str) -> list[str]:
        if path != self._directory:
            return self._fs.list_directory(path)
        if self._names is None:
            self._names = self._fs.list_directory(path)
            self._lookup = frozenset(self._names)
        return self._names.copy()

    def open(self, path: str, flags: int) -> int:
        if flags == READ:
            if self._is_missing(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        elif flags & os.O_CREAT:
            self._names = None
        return self._fs.open(path, flags)

    def file_size(self, path: str) -> int | None:
        return None if self._is_missing(path) else self._fs.file_size(path)

    def unlink(self, path: str) -> None:
        if self._is_missing(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._names = None
        self._fs.unlink(path)

    def rename(self, source: str, target: str) -> None:
        self._names = None
        self._fs.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._names = None
        self._fs.link(source, target)

    def make_directory(self, path: str) -> None:
        self._names = None
        self._fs.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._names = None
        self._fs.remove_directory(path)

    def _is_missing(self, path: str) -> bool:
        """Whether it is known that the directory has no such file."""
        if self._names is None:
            return False
        directory, _, name = path.rpartition("/")
        return directory == self._directory and name not in self._lookup
