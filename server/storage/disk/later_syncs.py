"""A file system whose syncs are done later, many together.

For whoever makes, opens or closes many logs before anybody is told that one of them is on the device. What stands for a file
is its path: nothing stays open. A file that takes the place of another one is forced to the device before it does, so that a
power cut leaves the old content or the new one, as `replace_file` promises.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

import attrs

from ....protocol.types import Bytes
from .filesystem import FileSystem, sync_file


@attrs.define(eq=False, repr=False)
class LaterSyncs:
    """Used by one thread at a time. Has all methods of a file system; those that are not here are passed on."""

    _fs: FileSystem
    is_written_back: bool = False
    """Whether nothing was dirty when this began: what was not changed here need not be written before it is forgotten."""
    _files: dict[str, None] = attrs.field(factory=dict)
    _directories: dict[str, None] = attrs.field(factory=dict)
    _paths: dict[int, str] = attrs.field(factory=dict)
    """Of what is open."""
    _changed: set[str] = attrs.field(factory=set)
    read: Callable[[int, int, int], bytes] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.read = self._fs.read  # without a look at this class: there is one for each log of a start

    @property
    def fs(self) -> FileSystem:
        return cast(FileSystem, self)

    def __len__(self) -> int:
        """How many syncs are due."""
        return len(self._files) + len(self._directories)

    def sync_now(self) -> None:
        """Do what is due, files before names. Blocks; raises OSError."""
        for path in self._files:
            sync_file(self._fs, path)
        for path in self._directories:
            self._fs.sync_directory(path)

    # ---- FileSystem --------------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

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
