"""A `.log` file open for reading: batch headers at positions, and batches.

Positions are bytes in the file. Nothing behind `end` (the size that was seen when the read was planned) is looked at, so a
broker may go on appending.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from ...protocol.errors import CorruptRecordError
from ...protocol.limits import KIB
from ...protocol.records.batch import RECORD_BATCH_OVERHEAD, BatchHeader, check_batch, parse_header
from ...server.storage.disk.filesystem import READ, OsFileSystem
from ...server.storage.recovery.salvage import is_possible

FILES: Final = OsFileSystem()

_WINDOW_BYTES: Final = 4 * KIB
_SMALL_BATCH_BYTES: Final = KIB
"""Of batches below this several headers come with one read of a window; of larger ones the header alone is read."""


class SegmentBytes:
    """Owner: one planner or reader, which closes it. Raises OSError, FileNotFoundError when the segment was deleted."""

    __slots__ = ("_fd", "_window", "_window_start", "end", "path")

    def __init__(self, path: str, end: int) -> None:
        self.path = path
        self.end = end
        self._fd = FILES.open(path, READ)
        self._window = b""
        self._window_start = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def size(self) -> int:
        """Of the whole file, now."""
        return FILES.size(self._fd)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at `end`, or where the file was cut since."""
        return FILES.read(self._fd, min(size, self.end - position), position)

    def header_at(self, position: int, *, window: int = RECORD_BATCH_OVERHEAD) -> BatchHeader | None:
        """The header of the batch that starts there; None when none can: the magic, a length that leads out of the file."""
        if position < 0 or position + RECORD_BATCH_OVERHEAD > self.end:
            return None
        start = position - self._window_start
        if start < 0 or start + RECORD_BATCH_OVERHEAD > len(self._window):
            self._window, self._window_start, start = self.read(position, window), position, 0
            if len(self._window) < RECORD_BATCH_OVERHEAD:
                return None
        header = parse_header(self._window, start)
        return header if is_possible(header) and position + header.size_bytes <= self.end else None

    def base_offset_at(self, position: int) -> int | None:
        """The base offset of the batch that starts there, None unless a whole one with a right CRC does: an index may lie."""
        header = self.header_at(position)
        if header is None:
            return None
        try:
            check_batch(self.batch_at(position, header), header)
        except CorruptRecordError:
            return None
        return header.base_offset

    def batch_at(self, position: int, header: BatchHeader) -> memoryview:
        """The bytes of a batch whose header was found there."""
        return memoryview(self.read(position, header.size_bytes))

    def headers(self, position: int) -> Iterator[tuple[BatchHeader, int]]:
        """The headers from a batch's start on, with their positions, up to `end` or to the first position where none can be."""
        window = RECORD_BATCH_OVERHEAD
        while (header := self.header_at(position, window=window)) is not None:
            yield header, position
            position += header.size_bytes
            window = _WINDOW_BYTES if header.size_bytes < _SMALL_BATCH_BYTES else RECORD_BATCH_OVERHEAD
