"""Disk operations on files and directories by their names (see `diskops` for those on open files, and for who runs them)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ..errors import FileTooLargeError, SyncFailedError
from .filesystem import CREATE, FileSystem, read_file, replace_file, sync_file
from .write_again import write_file_again

_NOT_OPENED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOENT})
"""What no fsync fails with."""


class FileSize(NamedTuple):
    """Answers the size of a file, None when there is none."""

    path: str

    def run(self, fs: FileSystem) -> int | None:
        return fs.file_size(self.path)


class ReadFile(NamedTuple):
    """Answers the bytes of a whole small file, None when there is none; EFBIG when it is larger than `max_bytes`."""

    path: str
    max_bytes: int

    def run(self, fs: FileSystem) -> bytes | None:
        try:
            return read_file(fs, self.path, max_bytes=self.max_bytes)
        except FileNotFoundError:
            return None
        except FileTooLargeError as exc:
            raise OSError(errno.EFBIG, str(exc), self.path) from exc


class ListDirectory(NamedTuple):
    """Answers the names in a directory."""

    path: str

    def run(self, fs: FileSystem) -> list[str]:
        return fs.list_directory(self.path)


class ModifiedMs(NamedTuple):
    """Answers when the file's content last changed, in ms since the epoch."""

    path: str

    def run(self, fs: FileSystem) -> int:
        return fs.modified_ms(self.path)


class SyncFile(NamedTuple):
    """Forces a file that nobody keeps open to the device; one that is gone is fine. Raises what `Sync` raises, after writing
    the file again, so that the next sync covers it; a checksum in it tells readers whether its content is right."""

    path: str

    def run(self, fs: FileSystem) -> None:
        try:
            sync_file(fs, self.path)
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno in _NOT_OPENED:
                raise
            write_file_again(fs, self.path)
            raise SyncFailedError(exc.errno, exc.strerror, exc.filename or self.path) from exc


class CreateFile(NamedTuple):
    """Makes a new, empty file (a leftover of that name is emptied) and answers its descriptor."""

    path: str
    allocate_bytes: int = 0

    def run(self, fs: FileSystem) -> int:
        fd = fs.open(self.path, CREATE | os.O_TRUNC)
        try:
            if self.allocate_bytes:
                fs.allocate(fd, self.allocate_bytes)
        except BaseException:
            fs.close(fd)
            raise
        return fd


class WriteFile(NamedTuple):
    """Puts a whole small file in place through a temporary one (see filesystem.replace_file)."""

    path: str
    data: bytes
    durable: bool = True

    def run(self, fs: FileSystem) -> None:
        replace_file(fs, self.path, self.data, durable=self.durable)


class WriteFiles(NamedTuple):
    """Puts small files in place one after the other, as `WriteFile` does. `make` builds their bytes where the operation runs,
    because that may take longer than writing them; it works on values that nobody changes."""

    make: Callable[[], Sequence[tuple[str, bytes]]]
    durable: bool = True

    def run(self, fs: FileSystem) -> None:
        for path, data in self.make():
            replace_file(fs, path, data, durable=self.durable)


class Rename(NamedTuple):
    source: str
    target: str

    def run(self, fs: FileSystem) -> None:
        fs.rename(self.source, self.target)


class RenameEach(NamedTuple):
    """Renames the files that are there by putting `suffix` behind their names, in order, and answers the new names."""

    paths: Sequence[str]
    suffix: str

    def run(self, fs: FileSystem) -> list[str]:
        renamed = []
        for path in self.paths:
            try:
                fs.rename(path, path + self.suffix)
            except FileNotFoundError:
                continue
            renamed.append(path + self.suffix)
        return renamed


class LinkEach(NamedTuple):
    """Gives the files `names` of `source` second names in `target`, which is made; those that are not there are passed over.

    A `.log` (the first of its names) that is not there is an error.
    """

    source: str
    target: str
    names: Sequence[str]

    def run(self, fs: FileSystem) -> None:
        fs.make_directory(self.target)
        for name in self.names:
            try:
                fs.link(f"{self.source}/{name}", f"{self.target}/{name}")
            except FileNotFoundError:
                if name.endswith(".log"):
                    raise


class Unlink(NamedTuple):
    """Deletes a file; one that is not there is fine."""

    path: str

    def run(self, fs: FileSystem) -> None:
        try:
            fs.unlink(self.path)
        except FileNotFoundError:
            return


class SyncDirectory(NamedTuple):
    """Forces the names in a directory to the device. Raises SyncFailedError, and another OSError when it cannot be opened."""

    path: str

    def run(self, fs: FileSystem) -> None:
        try:
            fs.sync_directory(self.path)
        except OSError as exc:
            if exc.errno in _NOT_OPENED:
                raise
            raise sync_failed(exc) from exc


def sync_failed(exc: OSError) -> SyncFailedError:
    """The error of a sync that the system refused."""
    return SyncFailedError(exc.errno, exc.strerror, exc.filename)
