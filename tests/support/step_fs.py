"""A file system that keeps a copy of the data directory before every step of it: what a kill, or a power cut, leaves there.

A kill leaves every byte that was written. A power cut leaves of each segment what was forced to the device; names are taken to
be there. Everything else in the directory is derived from the segments or put in place as a whole.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from triolog.protocol.types import Bytes
from triolog.server.storage.filesystem import OsFileSystem

SEGMENT = ".log"


class StepFileSystem(OsFileSystem):
    """The real file system. While `recording`, each write and each sync of a segment makes two copies of `source` before it
    is done: `killed` and `cut`, one pair in a directory of its own under `target`, in order."""

    def __init__(self, source: Path, target: Path) -> None:
        self.steps: list[Path] = []
        self._source = source
        self._target = target
        self._lock = threading.Lock()
        self._is_recording = False
        self._paths: dict[int, str] = {}
        self._synced: dict[str, int] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Copy from now on, and once more at the end."""
        self._is_recording = True
        try:
            yield
            with self._lock:
                self._step()
        finally:
            self._is_recording = False

    def _step(self) -> None:
        step = self._target / f"step-{len(self.steps)}"
        for name in ("killed", "cut"):
            shutil.copytree(self._source, step / name)
        for segment in (step / "cut").rglob(f"*{SEGMENT}"):
            synced = self._synced.get(str(self._source / segment.relative_to(step / "cut")), 0)
            with segment.open("r+b") as file:
                file.truncate(min(synced, segment.stat().st_size))
        self.steps.append(step)

    # ---- the operations ------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        with self._lock:
            if self._is_recording and self._paths[fd].endswith(SEGMENT):
                self._step()
            super().write(fd, buffers, position)

    def sync(self, fd: int) -> None:
        path = self._paths[fd]
        with self._lock:
            if self._is_recording and path.endswith(SEGMENT):
                self._step()
            super().sync(fd)
            self._synced[path] = self.size(fd)
