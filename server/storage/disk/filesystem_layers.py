"""A file system that remembers which names are in one directory, for whoever opens a log: of the files that a partition may
have most are not there, and its directory is looked through ten times.

Right as long as nobody else makes or removes files there. What is made or removed through it is noted; where that failed, or
was done to a directory, it looks again.

A file system whose syncs are done later, many together.

For whoever makes, opens or closes many logs before anybody is told that one of them is on the device. What stands for a file
is its path: nothing stays open. A file that takes the place of another one is forced to the device before it does, so that a
power cut leaves the old content or the new one, as `replace_file` promises.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from ....protocol.types import Bytes
from .filesystem import READ, FileSystem, sync_file

T = TypeVar("T")


class Layer:
    """Has all methods of the file system below; those that a subclass does not have are passed on. `frequent` ones are passed
    on without a look at the class: a start makes some of these for each partition, and calls them a hundred times."""

    frequent: ClassVar[Sequence[str]] = ()

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        for name in self.frequent:
            setattr(self, name, getattr(fs, name))

    @property
    def fs(self) -> FileSystem:
        return cast(FileSystem, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)


class RememberedNames(Layer):
    """See the module. Owner: whoever opens the log."""

    frequent = ("read", "write", "close", "size")

    def __init__(self, fs: FileSystem, directory: str) -> None:
        super().__init__(fs)
        self._directory = directory
        self._names: set[str] | None = None

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
        """Return the result of a function that creates one name and removes another, and note both. If the function fails, no
        name is known any more."""
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
        """Return whether the directory is known not to have the file."""
        if self._names is None:
            return False
        directory, _, name = path.rpartition("/")
        return name not in self._names and directory == self._directory

    def _check_there(self, path: str) -> None:
        if self._is_missing(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class LaterSyncs(Layer):
    """See the module. Used by one thread at a time."""

    frequent = ("read",)

    def __init__(self, fs: FileSystem, *, is_written_back: bool = False) -> None:
        super().__init__(fs)
        self.is_written_back = is_written_back
        """Whether nothing was dirty when this began: what was not changed here need not be written before it is forgotten."""
        self._files: dict[str, None] = {}
        self._directories: dict[str, None] = {}
        self._paths: dict[int, str] = {}
        """Of what is open."""
        self._changed: set[str] = set()

    def __len__(self) -> int:
        """Return the number of due syncs."""
        return len(self._files) + len(self._directories)

    def settle(self) -> None:
        """Do what is due, files before names. Blocks; raises OSError."""
        for path in self._files:
            sync_file(self._fs, path)
        for path in self._directories:
            self._fs.sync_directory(path)

    def open(self, path: str, flags: int) -> int:
        fd = self._fs.open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        del self._paths[fd]
        self._fs.close(fd)

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        self._changed.add(self._paths[fd])
        self._fs.write(fd, buffers, position)

    def truncate(self, fd: int, size: int) -> None:
        self._changed.add(self._paths[fd])
        self._fs.truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._files[self._paths[fd]] = None

    def note(self, path: str) -> None:
        """Have a file synced later that is not open. Raises FileNotFoundError."""
        if path not in self._files:
            if self._fs.file_size(path) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._files[path] = None

    def sync_directory(self, path: str) -> None:
        self._directories[path] = None

    def forget(self, fd: int, start: int, stop: int | None = None) -> None:
        if self.is_written_back and self._paths[fd] not in self._changed:
            self._fs.forget_clean(fd, start, stop)
        else:
            self._fs.forget(fd, start, stop)

    def rename(self, source: str, target: str) -> None:
        if source in self._files:
            del self._files[source]
            if self._fs.file_size(target) is None:
                self._files[target] = None
            else:
                sync_file(self._fs, source)
        self._fs.rename(source, target)

    def unlink(self, path: str) -> None:
        self._files.pop(path, None)
        self._fs.unlink(path)
