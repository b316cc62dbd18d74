"""What a crash has left of a replacement of segments (see `swap` for its steps) is finished or taken back when a log is loaded
(Kafka: LogLoader.removeTempFilesAndCollectSwapFiles). Blocks."""

from __future__ import annotations

import logging
from typing import Final

from ..disk.diskops import FileHandle, drive
from ..disk.filesystem import FileSystem
from ..disk.paths import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIXES,
    SWAP_SUFFIX,
    base_offset_of,
    segment_file,
)
from ..indexes.file_records import whole_file

LOGGER: Final = logging.getLogger(__name__)


def complete_swaps(fs: FileSystem, directory: str) -> None:
    """Finish, or take back, what a crash has left of a replacement. Blocks; run before the segments are loaded, again and again
    if it is interrupted.

    Only names of segment files and of producer snapshots are touched: `.corrupt-*` files stay. Raises OSError, and
    CorruptRecordError or StorageError when a `.swap` log cannot be read.
    """
    if not any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in fs.list_directory(directory)):
        return
    discard_cleaned(fs, directory)
    logs = _bases_with(fs, directory, LOG_SUFFIX + SWAP_SUFFIX)
    if logs:
        ends = [
            _next_offset(fs, f"{directory}/{segment_file(base_offset, LOG_SUFFIX + SWAP_SUFFIX)}", base_offset)
            for base_offset in logs
        ]
        LOGGER.warning(
            "%s: a compaction was interrupted while it replaced offsets %d to %d; it is finished",
            directory,
            min(logs),
            max(ends),
        )
        _delete_replaced(fs, directory, set(logs), min(logs), max(ends))
        fs.sync_directory(directory)
        for base_offset in logs:
            _rename_swap(fs, directory, base_offset, LOG_SUFFIX)
        fs.sync_directory(directory)
    indexes = [
        (base_offset, suffix) for suffix in INDEX_SUFFIXES for base_offset in _bases_with(fs, directory, suffix + SWAP_SUFFIX)
    ]
    for base_offset, suffix in indexes:
        _rename_swap(fs, directory, base_offset, suffix)
    if indexes:
        fs.sync_directory(directory)


def discard_cleaned(fs: FileSystem, directory: str) -> None:
    """Segments that were not complete when the crash came. Their `.swap` files go first: alone they would look complete."""
    names = [name for name in fs.list_directory(directory) if base_offset_of(name) is not None]
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    if not cleaned:
        return
    first = min(base_offset_of(name) or 0 for name in cleaned)
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX) and (base_offset_of(name) or 0) >= first]
    for group in (swaps, cleaned):
        for name in group:
            LOGGER.info("%s/%s is left over from a compaction and is deleted", directory, name)
            fs.unlink(f"{directory}/{name}")
        if group:
            fs.sync_directory(directory)


def _delete_replaced(fs: FileSystem, directory: str, swapped: set[int], start: int, stop: int) -> None:
    """Old files in the range of the new segments. Snapshots under the name of a new segment still say what lies before it."""
    for name in fs.list_directory(directory):
        base_offset = base_offset_of(name)
        if base_offset is None or not (start <= base_offset < stop or base_offset in swapped):
            continue
        suffix = name[name.index(".") :]
        if suffix in SEGMENT_SUFFIXES or (suffix in SNAPSHOT_SUFFIXES and base_offset not in swapped):
            fs.unlink(f"{directory}/{name}")


def _bases_with(fs: FileSystem, directory: str, suffix: str) -> list[int]:
    bases = (base_offset_of(name) for name in fs.list_directory(directory) if name[name.find(".") :] == suffix)
    return sorted(base_offset for base_offset in bases if base_offset is not None)


def _next_offset(fs: FileSystem, path: str, base_offset: int) -> int:
    next_offset, _ = drive(fs, whole_file(FileHandle(path), fs.file_size(path) or 0).find_end(base_offset))
    return next_offset


def _rename_swap(fs: FileSystem, directory: str, base_offset: int, suffix: str) -> None:
    final = f"{directory}/{segment_file(base_offset, suffix)}"
    fs.rename(final + SWAP_SUFFIX, final)
