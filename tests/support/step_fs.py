"""A file system that keeps a copy of the data directory before every step of it: what a kill, or a power cut, leaves there.

A kill leaves every byte that was written. A power cut leaves of each segment what was forced to the device; names are taken to
be there. Everything else in the directory is derived from the segments or put in place as a whole.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from triolog.protocol.types import Bytes
from triolog.server.storage.disk.filesystem import OsFileSystem
from triolog.server.storage.disk.paths import STAGE_DIRECTORY

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


class EveryStepFileSystem(StepFileSystem):
    """The same for every operation that changes anything, with what is staged: of it a power cut leaves what was forced to the
    device, names included."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__(source, target)
        self._unsynced_names: dict[str, set[str]] = {}

    def _step(self) -> None:
        super()._step()
        cut = self.steps[-1] / "cut"
        for file in (cut / STAGE_DIRECTORY).rglob("*"):
            if file.is_file():
                synced = self._synced.get(str(self._source / file.relative_to(cut)), 0)
                with file.open("r+b") as stream:
                    stream.truncate(min(synced, file.stat().st_size))
        for directory, names in self._unsynced_names.items():
            for name in names if STAGE_DIRECTORY in directory else ():
                path = cut / Path(directory, name).relative_to(self._source)
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)

    def take_for_synced(self) -> None:
        """What is in the directory now outlives a power cut."""
        self._synced |= {str(file): file.stat().st_size for file in self._source.rglob("*") if file.is_file()}

    def _before(self) -> None:
        if self._is_recording:
            self._step()

    def open(self, path: str, flags: int) -> int:
        with self._lock:
            if flags & os.O_CREAT and not Path(path).exists():
                self._before()
                self._unsynced_names.setdefault(str(Path(path).parent), set()).add(Path(path).name)
            return super().open(path, flags)

    def write(self, fd: int, buffers: Sequence[Bytes], position: int) -> None:
        with self._lock:
            self._before()
            OsFileSystem.write(self, fd, buffers, position)

    def sync(self, fd: int) -> None:
        with self._lock:
            self._before()
            OsFileSystem.sync(self, fd)
            self._synced[self._paths[fd]] = self.size(fd)

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            self._before()
            super().truncate(fd, size)

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._before()
            super().rename(source, target)
            self._synced[target] = self._synced.pop(source, 0)

    def unlink(self, path: str) -> None:
        with self._lock:
            self._before()
            super().unlink(path)
            self._synced.pop(path, None)

    def make_directory(self, path: str) -> None:
        with self._lock:
            self._before()
            super().make_directory(path)

    def remove_directory(self, path: str) -> None:
        with self._lock:
            self._before()
            super().remove_directory(path)

    def sync_directory(self, path: str) -> None:
        with self._lock:
            self._before()
            super().sync_directory(path)
            self._unsynced_names.pop(path, None)


def distinct(directories: Sequence[Path]) -> list[Path]:
    """Without those whose segments and staged files are those of the one before."""
    found: list[Path] = []
    last: object = None
    for directory in directories:
        files = [file for file in directory.rglob("*") if file.suffix == SEGMENT or STAGE_DIRECTORY in file.parts]
        content = {file.relative_to(directory): file.read_bytes() for file in files if file.is_file()}
        if content != last:
            found.append(directory)
        last = content
    return found
