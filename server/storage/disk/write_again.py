"""Writing bytes again that are in the page cache, and of which nobody can say whether the device has them. Blocks.

Linux marks pages clean that it could not write, reports that once to each open descriptor, and lets the next sync succeed
(`mm/filemap.c`, `lib/errseq.c`; ext4, XFS and btrfs alike). So after a sync that failed, and after an unclean stop, whose
process may have seen one, a sync alone proves nothing. What is written again is dirty again: the next sync is about it.

Three steps. The bytes are *read*, with the CRC of each batch: the kernel may have dropped a clean page, and reads what the
device had before. The kernel is asked to *forget* the pages: ext4 knows where each was to go and would write it there again,
but leave the extent marked as unwritten, which reads as zeros from the next mount on (seen with Linux 6.18). Then they are
*written*, into pages that are new and dirty.

Nothing below the recovery point is written again: a sync that succeeded has vouched for it, and flash wears. But what shares
pages with bytes that the device refused may have gone with them: its CRCs are checked, and where it reads differently once it
was forgotten, it is written after all.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import MIB
from ....protocol.records.batch import MAGIC, RECORD_BATCH_OVERHEAD, check_batch, crc32c, parse_header
from ....protocol.types import Bytes
from ..errors import CorruptIndexError, LostWriteError
from .filesystem import CREATE, PIECE_BYTES, WRITE, FileSystem, opened, read_at
from .paths import TEMPORARY_SUFFIX

WINDOW_BYTES: Final = 16 * MIB
"""Held in memory from reading to writing, and one batch more."""
FOLIO_BYTES: Final = 4 * MIB
"""The kernel forgets whole folios, of up to 2 MiB on most machines: what may share one with the next window is held and written
once more with it."""
SHARED_BYTES: Final = 64 * 1024
"""The largest page or block that bytes may share with those before them."""
ATTEMPTS: Final = 2
"""The first sync may report what failed before the start and nobody was told of."""


def write_batches_again(
    fs: FileSystem,
    fd: int,
    path: str,
    start: int,
    end: int,
    from_offset: int,
    *,
    window_bytes: int = WINDOW_BYTES,
    folio_bytes: int = FOLIO_BYTES,
) -> None:
    """Write the batches of [start, end) again that reach `from_offset`; what lies behind `end` is not kept. Raises
    LostWriteError when one of them, or of those before that may share a page with them, is not what was written, OSError."""
    checked, position = _find(fs, fd, path, start, end, from_offset)
    held, forget_from, shared_from = b"", max(0, position - folio_bytes), max(0, position - SHARED_BYTES)
    piece_bytes = max(RECORD_BATCH_OVERHEAD, min(PIECE_BYTES, window_bytes))
    while checked < position:
        checked += len(_read_batches(fs, fd, path, checked, position, piece_bytes))
    shared = _read(fs, fd, path, shared_from, position - shared_from)
    while True:
        window, stop = [held], position
        while stop < end and stop - position < window_bytes:
            window.append(_read_batches(fs, fd, path, stop, end, piece_bytes))
            stop += len(window[-1])
        fs.forget(fd, forget_from, stop if stop < end else None)
        if shared and fs.read(fd, len(shared), shared_from) != shared:
            fs.write(fd, [shared], shared_from)
        shared = b""
        content = b"".join(window)
        if content:
            fs.write(fd, [content], stop - len(content))
        if stop >= end:
            return
        held = content[-folio_bytes:]
        position, forget_from = stop, stop - len(held)


def _find(fs: FileSystem, fd: int, path: str, start: int, end: int, from_offset: int) -> tuple[int, int]:
    """(where the first batch starts that may share a page with the next position, where the first batch starts that reaches the
    offset), both in [start, end)."""
    position, near = start, deque([start])
    while position + RECORD_BATCH_OVERHEAD <= end:
        header = parse_header(_read(fs, fd, path, position, RECORD_BATCH_OVERHEAD))
        if header.last_offset >= from_offset or header.magic != MAGIC or header.size_bytes < RECORD_BATCH_OVERHEAD:
            break
        position += header.size_bytes
        near.append(position)
        while near[1] <= position - SHARED_BYTES:
            near.popleft()
    return min(near[0], end), min(position, end)


def _read_batches(fs: FileSystem, fd: int, path: str, position: int, end: int, piece_bytes: int) -> bytes:
    """Whole batches from a position on, of which each carries its CRC: about a piece, one at least."""
    wanted = min(piece_bytes, end - position)
    piece = _read(fs, fd, path, position, wanted)
    try:
        stop, size = _whole_batches(memoryview(piece))
        if not stop and wanted < size <= end - position:
            piece = _read(fs, fd, path, position, size)
            stop, _ = _whole_batches(memoryview(piece))
    except CorruptRecordError as exc:
        raise _lost(path, f"from position {position} on: {exc}") from exc
    if not stop:
        raise _lost(path, f"no batch from position {position} ends before {end}")
    return piece[:stop]


def _whole_batches(piece: memoryview) -> tuple[int, int]:
    """Return the end of the last whole batch and the size of the batch after it. Raises CorruptRecordError."""
    at = size = 0
    while at + RECORD_BATCH_OVERHEAD <= len(piece):
        header = parse_header(piece, at)
        size = header.size_bytes
        if header.magic != MAGIC or size < RECORD_BATCH_OVERHEAD:
            raise CorruptRecordError(f"magic {header.magic} and batch length {header.batch_length} {at} bytes after it")
        if at + size > len(piece):
            break
        check_batch(piece[at : at + size], header)
        at += size
    return at, size


def _read(fs: FileSystem, fd: int, path: str, position: int, size: int) -> bytes:
    data = fs.read(fd, size, position)
    if len(data) < size:
        raise _lost(path, f"it ends at {position + len(data)}, before {position + size}")
    return data


def write_index_again(fs: FileSystem, fd: int, path: str, size: int, check: Callable[[Bytes], None]) -> None:
    """Write the first `size` bytes of an index again. `check` raises CorruptIndexError when they are not its entries, which is
    a LostWriteError here. Raises OSError."""
    content = fs.read(fd, size, 0)
    try:
        check(content)
    except CorruptIndexError as exc:
        raise _lost(path, str(exc)) from exc
    fs.forget(fd, 0)
    if content:
        fs.write(fd, [content], 0)


def write_file_again(fs: FileSystem, path: str) -> tuple[int, int]:
    """Put a new file with the same bytes in the place of one that nobody keeps open; answers their number and CRC-32C. Neither
    file nor name is synced. Raises OSError."""
    size, crc = 0, 0
    with opened(fs, path + TEMPORARY_SUFFIX, CREATE | os.O_TRUNC) as fd:
        while piece := read_at(fs, path, size, PIECE_BYTES):
            fs.write(fd, [piece], size)
            size, crc = size + len(piece), crc32c(piece, crc)
    fs.rename(path + TEMPORARY_SUFFIX, path)
    return size, crc


def force_batches(fs: FileSystem, path: str, start: int, end: int, from_offset: int) -> None:
    """`write_batches_again`, and force the file to the device. Its modification time stays, because retention may go by it.
    Nobody else has the file open."""
    modified_ms = fs.modified_ms(path)
    with opened(fs, path, WRITE) as fd:
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


def _lost(path: str, why: str) -> LostWriteError:
    return LostWriteError(errno.EIO, f"bytes that the device did not accept are lost, the file reads differently: {why}", path)
