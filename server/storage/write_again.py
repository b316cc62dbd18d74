"""Writing bytes again that are in the page cache, and of which nobody can say whether the device has them. Blocks.

Linux marks pages clean that it could not write, reports that once to each open descriptor, and lets the next sync succeed
(`mm/filemap.c`, `lib/errseq.c`; ext4, XFS and btrfs alike). So after a sync that failed, and after an unclean stop, whose
process may have seen one, a sync alone proves nothing. Pages that are written again are dirty again: the next sync is about
them. The kernel may have dropped a clean page meanwhile, and reading gives what the device had before; so each batch's CRC is
looked at in the very bytes that are written.

Nothing below the recovery point is written again: a sync that succeeded has vouched for it, and flash wears.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from ...protocol.errors import CorruptRecordError
from ...protocol.limits import MIB
from ...protocol.records.batch import MAGIC, RECORD_BATCH_OVERHEAD, check_batch, parse_header
from ...protocol.types import Bytes
from .errors import CorruptIndexError, LostWriteError
from .filesystem import WRITE, FileSystem

PIECE_BYTES: Final = MIB
"""Read and written at a time; a larger batch is one piece."""
ATTEMPTS: Final = 2
"""The first sync may report what failed before the start and nobody was told of."""


def write_batches_again(fs: FileSystem, fd: int, path: str, start: int, end: int, from_offset: int) -> None:
    """Write the batches of [start, end) again that reach `from_offset`. Raises LostWriteError when one of them is not what was
    written, OSError."""
    position, wanted = start, PIECE_BYTES
    while position < end:
        size = min(wanted, end - position)
        piece = memoryview(fs.read(fd, size, position))
        if len(piece) < size:
            raise _lost(path, f"it ends at {position + len(piece)}, before {end}")
        try:
            first, stop, wanted = _whole_batches(piece, from_offset)
        except CorruptRecordError as exc:
            raise _lost(path, f"from position {position} on: {exc}") from exc
        if not stop and (wanted <= size or wanted > end - position):
            raise _lost(path, f"no batch from position {position} ends before {end}")
        if first < stop:
            fs.write(fd, [piece[first:stop]], position + first)
        position += stop


def _whole_batches(piece: memoryview, from_offset: int) -> tuple[int, int, int]:
    """Of the batches at the start of `piece`: where the first one starts that reaches the offset, where the last one ends, and
    how much to read next. Raises CorruptRecordError."""
    first, at = -1, 0
    while at + RECORD_BATCH_OVERHEAD <= len(piece):
        header = parse_header(piece, at)
        size = header.size_bytes
        if header.magic != MAGIC or size < RECORD_BATCH_OVERHEAD:
            raise CorruptRecordError(f"magic {header.magic} and batch length {header.batch_length} at position {at} of it")
        if at + size > len(piece):
            if not at:
                return 0, 0, size
            break
        if header.last_offset >= from_offset:
            check_batch(piece[at : at + size], header)
            first = at if first < 0 else first
        at += size
    return at if first < 0 else first, at, PIECE_BYTES


def write_index_again(fs: FileSystem, fd: int, path: str, size: int, check: Callable[[Bytes], None]) -> None:
    """Write the first `size` bytes of an index again. `check` raises CorruptIndexError when they are not its entries, which is
    a LostWriteError here. Raises OSError."""
    content = fs.read(fd, size, 0)
    try:
        check(content)
    except CorruptIndexError as exc:
        raise _lost(path, str(exc)) from exc
    if content:
        fs.write(fd, [content], 0)


def write_file_again(fs: FileSystem, path: str) -> None:
    """Write a file that nobody keeps open again, in its place. Raises OSError."""
    fd = fs.open(path, WRITE)
    try:
        size = fs.size(fd)
        for position in range(0, size, PIECE_BYTES):
            fs.write(fd, [fs.read(fd, min(PIECE_BYTES, size - position), position)], position)
    finally:
        fs.close(fd)


def force_batches(fs: FileSystem, path: str, start: int, end: int, from_offset: int) -> None:
    """`write_batches_again`, and force the file to the device. It stays as old as it is: retention may go by that."""
    modified_ms = fs.modified_ms(path)
    fd = fs.open(path, WRITE)
    try:
        for attempt in range(1, ATTEMPTS + 1):
            write_batches_again(fs, fd, path, start, end, from_offset)
            fs.set_modified_ms(path, modified_ms)
            try:
                fs.sync(fd)
            except OSError:
                if attempt == ATTEMPTS:
                    raise
            else:
                return
    finally:
        fs.close(fd)


def _lost(path: str, why: str) -> LostWriteError:
    return LostWriteError(errno.EIO, f"what the device did not take is lost, the file reads differently: {why}", path)
