"""A file system that remembers which names are in one directory, for whoever opens a log: of the files that a partition may
have most are not there, and its directory is looked through ten times.

Right as long as nobody else makes or removes files there. What is made or removed through it is noted; where that failed, or
was done to a directory, it looks again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .filesystem import READ, FileSystem

T = TypeVar("T")


class RememberedNames:
    """Has all methods of a file system; those that are not here are passed on, the frequent ones without a look at this class:
    a start makes one of these for each partition, and calls it a hundred times."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._names: set[str] | None = None
        self.read, self.write, self.close, self.size = fs.read, fs.write, fs.close, fs.size

    @property
    def fs(self) -> FileSystem:
        return cast(FileSystem, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def list_directory(self, path: str) -> list[str]:
        if path != self._directory:
            return self._fs.list_directory(path)
        if self._names is None:
            listed = self._fs.list_directory(path)
            self._names = set(listed)
            return listed
        return sorted(self._names)

    def open(self, path: str, flags: int) -> int:
        if flags == READ:
            self._check_there(path)
        elif flags & os.O_CREAT:
            return self._noted(self._fs.open, path, flags, made=path)
        return self._fs.open(path, flags)

    def file_size(self, path: str) -> int | None:
        return None if self._is_missing(path) else self._fs.file_size(path)

    def unlink(self, path: str) -> None:
        self._check_there(path)
        self._noted(self._fs.unlink, path, gone=path)

    def rename(self, source: str, target: str) -> None:
        self._noted(self._fs.rename, source, target, made=target, gone=source)

    def link(self, source: str, target: str) -> None:
        self._noted(self._fs.link, source, target, made=target)

    def make_directory(self, path: str) -> None:
        self._names = None
        self._fs.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._names = None
        self._fs.remove_directory(path)

    def look_again(self) -> None:
        """Remember nothing for now."""
        self._names = None

    def _noted(self, function: Callable[..., T], *args: Any, made: str = "", gone: str = "") -> T:
        """What a function answers that makes one name and removes another. One that fails leaves nothing known."""
        names, self._names = self._names, None
        answer = function(*args)
        if names is not None:
            for path, note in ((gone, names.discard), (made, names.add)):
                directory, _, name = path.rpartition("/")
                if directory == self._directory:
                    note(name)
            self._names = names
        return answer

    def _is_missing(self, path: str) -> bool:
        """Whether it is known that the directory has no such file."""
        if self._names is None:
            return False
        directory, _, name = path.rpartition("/")
        return name not in self._names and directory == self._directory

    def _check_there(self, path: str) -> None:
        if self._is_missing(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
