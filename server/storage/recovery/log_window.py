"""The bytes of a `.log` that is scanned: a window of 1 MiB, or of one batch that is larger and whole."""

from __future__ import annotations

from typing import Final

from ....protocol.limits import MIB
from ....protocol.records.batch import RECORD_BATCH_OVERHEAD
from ....protocol.records.crc32c import crc32c
from ..disk.filesystem import FileSystem

READ_BYTES: Final = MIB
CRC_COVERS_FROM: Final = 21
"""In a batch: what lies before is not covered."""


class LogWindow:
    """What was read of the bytes before `end`. Owner: one scan."""

    __slots__ = ("_fd", "_fs", "end", "start", "view")

    def __init__(self, fs: FileSystem, fd: int, end: int) -> None:
        self._fs = fs
        self._fd = fd
        self.end = end
        self.view = memoryview(b"")
        self.start = 0
        """Where in the file the view starts."""

    def read(self, position: int, size: int) -> memoryview:
        """`size` bytes that exist; of the view when they are in it."""
        at = position - self.start
        if at < 0 or at + size > len(self.view):
            return memoryview(self._fs.read(self._fd, size, position))
        return self.view[at : at + size]

    def reach(self, position: int, size: int) -> None:
        """Let the view hold these bytes, as far as there are so many."""
        at = position - self.start
        if at < 0 or at + min(size, self.end - position) > len(self.view):
            self.move(position, size)

    def move(self, position: int, size: int) -> None:
        """Let the view start at a position and hold `size` bytes or more, as far as there are so many."""
        size = min(max(size, READ_BYTES), self.end - position)
        self.view = memoryview(self._fs.read(self._fd, size, position))
        self.start = position

    def crc(self, position: int, size: int) -> int:
        """CRC of what it covers in a batch; read in pieces, for a length may be damaged."""
        crc, at, stop = 0, position + CRC_COVERS_FROM, position + size
        while at < stop:
            piece = self.read(at, min(READ_BYTES, stop - at))
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc

    def carries_crc(self, position: int, size: int, crc: int) -> bool:
        """Whether there are so many bytes, enough for a batch, and they have that CRC."""
        if not RECORD_BATCH_OVERHEAD <= size <= self.end - position:
            return False
        return self.crc(position, size) == crc
