"""A file system for tests: it fails as disk faults ask, stands still while it is copied, and dies in the middle as a process
does that is killed.

What a killed process leaves is what the kernel has: every byte that was written, synced or not. A `torn` fault takes bytes from
the end of what was not, as a power cut may.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

from ...protocol.types import Bytes
from ..config import DataPermissions
from ..fake.faults.faults import DiskFaults
from ..storage.disk.filesystem import OsFileSystem

SEGMENT: Final = ".log"


class FaultyFileSystem(OsFileSystem):
    """The real file system, as long as nothing is asked of `faults` and `crash` is not called. Shared by worker threads."""

    def __init__(
        self, faults: DiskFaults, *, in_memory: bool = False, permissions: DataPermissions = DataPermissions.OWNER
    ) -> None:
        super().__init__(permissions)
        self._faults = faults
        self._in_memory = in_memory
        self._paths: dict[int, str] = {}
        self._unsynced: dict[str, int] = {}
        """From which position on a file may be lost."""
        self._is_dead = False

    def crash(self) -> None:
        """Discard every later write, as SIGKILL would."""
        self._is_dead = True
        self._faults.wake()

    def tear(self) -> list[str]:
        """Take what `torn` faults ask for from files, once their owner is gone. Answers the files."""
        torn = []
        for path, start in sorted(self._unsynced.items()):
            size = self.file_size(path) or 0
            lost = self._faults.torn_bytes(path, max(0, size - start))
            if lost:
                os.truncate(path, size - lost)
                torn.append(path)
        return torn

    def _ask(self, operation: str, path: str) -> None:
        """Raises OSError when a fault wants it so. A delay is waited out here, in a worker thread, as on a slow device; a crash
        ends it."""
        if self._faults.is_active and not self._is_dead and (fault := self._faults.check(operation, path)) is not None:
            self._faults.wait_out(fault, lambda: self._is_dead)

    @property
    def writes_at_once(self) -> bool:
        """Not where a fault may let one take long."""
        return not self._faults.is_active

    @property
    def is_instant(self) -> bool:
        """In memory, and once it is dead: a crash of a hundred logs would wait for a thousand threads that do nothing."""
        return self._is_dead or (self._in_memory and not self._faults.is_active)

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    def open(self, path: str, flags: int) -> int:
        if self._is_dead and flags & (os.O_CREAT | os.O_RDWR):
            fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        else:
            fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def read(self, fd: int, size: int, position: int) -> bytes:
        self._ask("read", self._paths[fd])
        return super().read(fd, size, position)

    def read_cached(self, fd: int, size: int, position: int) -> Bytes | None:
        if self._faults.is_active:
            return None  # read it in a thread, where it may fail or take long
        return super().read_cached(fd, size, position)

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        path = self._paths[fd]
        self._ask("write", path)
        if self._is_dead:
            if path.endswith(SEGMENT):
                raise OSError(errno.EIO, "the broker has crashed", path)
            return
        self._unsynced.setdefault(path, position)
        super().write(fd, buffers, position)

    def truncate(self, fd: int, size: int) -> None:
        if not self._is_dead:
            super().truncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        self._ask("write", self._paths[fd])
        if not self._is_dead:
            super().allocate(fd, size)

    def sync(self, fd: int) -> None:
        path = self._paths[fd]
        self._ask("sync", path)
        if not self._is_dead:
            self._unsynced.pop(path, None)
            super().sync(fd)

    def rename(self, source: str, target: str) -> None:
        if self._is_dead:
            return
        super().rename(source, target)
        if source in self._unsynced:
            self._unsynced[target] = self._unsynced.pop(source)

    def link(self, source: str, target: str) -> None:
        if not self._is_dead:
            super().link(source, target)

    def unlink(self, path: str) -> None:
        if not self._is_dead:
            super().unlink(path)
            self._unsynced.pop(path, None)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        if not self._is_dead:
            super().set_modified_ms(path, modified_ms)

    def make_directory(self, path: str) -> None:
        if not self._is_dead:
            super().make_directory(path)

    def remove_directory(self, path: str) -> None:
        if not self._is_dead:
            super().remove_directory(path)

    def sync_directory(self, path: str) -> None:
        if not self._is_dead:
            super().sync_directory(path)
