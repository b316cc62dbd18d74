"""Putting cleaned segments in the place of old ones, so that a crash at any moment loses and doubles nothing (Kafka:
LocalLog.replaceSegments, LogLoader).

| step | renames | a crash before the next step leaves |
|---|---|---|
| 1 | new: `.cleaned` -> `.swap`, descending | some `.cleaned`: those and later `.swap` go, the old segments count |
| 2 | old: -> `.deleted`, ascending | all `.swap`: they count, old files in their range go |
| 3 | new: `.log.swap` -> `.log`, ascending | the same, for those that are still called `.log.swap` |
| 4 | new: the other `.swap` -> final names | a `.log` in place: the rest is renamed |

Every step is on the device before the next one. Kafka syncs the directory once, at the end, and relies on the file system to
keep the order of renames.

What a crash has left of a replacement of segments (see `swap` for its steps) is finished or taken back when a log is loaded
(Kafka: LogLoader.removeTempFilesAndCollectSwapFiles). Blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ..disk.diskops import FileHandle, FileSize, Procedure, Rename, RenameEach, SyncDirectory, drive
from ..disk.filesystem import FileSystem
from ..disk.paths import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIXES,
    SWAP_SUFFIX,
    base_offset_of,
    segment_file,
)
from ..errors import StorageError
from ..indexes.file_records import whole_file
from ..log.log import Doomed, Log
from ..producers.producer_snapshots import snapshot_paths
from ..segments.segment import LogSegment
from .job import CleanedGroup, CleanedState, CleaningJob

LOGGER: Final = logging.getLogger(__name__)


class SegmentsChangedError(StorageError):
    """The segments that a round worked on are not the log's any more: it was cut, trimmed or configured anew meanwhile."""


def replace_segments(log: Log, new: Sequence[CleanedState], old: Sequence[LogSegment]) -> Procedure[None]:
    """Put `new`, whose `.cleaned` files are complete and on the device, in the place of `old`, which are neighbours.

    Readers go on with the old files, under other names, until those are deleted; what they read while names changed is looked
    up again. Raises SegmentsChangedError, and has done nothing then, when `old` are not inactive segments of the log, or when
    the round was given up and its files are gone.
    """
    for segment in old:
        if (
            segment is log.active
            or segment.base_offset not in log.segments
            or log.segments.floor(segment.base_offset) is not segment
        ):
            raise SegmentsChangedError(f"{segment.log.path} is no longer an inactive segment of {log.topic_partition}")
    bases = [state.base_offset for state in new]
    for base_offset in bases:
        cleaned = f"{log.directory}/{segment_file(base_offset, LOG_SUFFIX)}{CLEANED_SUFFIX}"
        if (yield FileSize(cleaned)) is None:
            raise SegmentsChangedError(f"{cleaned} is gone. {log.topic_partition} stays unchanged until the next compaction")
    yield from _forget_derived(log, old)
    for base_offset in reversed(bases):
        for suffix in SEGMENT_SUFFIXES:
            name = f"{log.directory}/{segment_file(base_offset, suffix)}"
            yield from _rename_if_there(name + CLEANED_SUFFIX, name + SWAP_SUFFIX)
        yield from _sync_names(log)
    doomed = []
    for segment in old:
        doomed.append((yield from _doom(log, segment, keep_snapshot=segment.base_offset in bases)))
    yield from _sync_names(log)
    for suffixes in ((LOG_SUFFIX,), INDEX_SUFFIXES):
        for base_offset in bases:
            for suffix in suffixes:
                name = f"{log.directory}/{segment_file(base_offset, suffix)}"
                yield from _rename_if_there(name + SWAP_SUFFIX, name)
        yield from _sync_names(log)
    _switch(log, new, old)
    log.doomed += doomed
    for base_offset in bases:
        replacement = log.segments.floor(base_offset)
        assert replacement is not None
        yield from log.derived.note(replacement)
    yield from log.write_derived()


def replace_group(log: Log, job: CleaningJob, group: CleanedGroup, truncations: int) -> Procedure[int]:
    """`replace_segments` for a group of a round, if the log is still the one that the job was made for.

    `truncations` is what `log.truncations` was when the round began, or what this answered for the group before. Records that
    were cut off since may have been the reason to drop others. Raises SegmentsChangedError.
    """
    assert group.cleaned is not None
    if log.truncations != truncations or "compact" not in log.config.cleanup_policy:
        raise SegmentsChangedError(f"{log.topic_partition} was truncated, or its cleanup.policy changed, during a compaction")
    taken = set(group.base_offsets)
    old = [segment for segment in log.segments if segment.base_offset in taken]
    before = [(segment.base_offset, segment.size) for segment in job.segments if segment.base_offset in taken]
    if [(segment.base_offset, segment.size) for segment in old] != before:
        raise SegmentsChangedError(f"segments of {log.topic_partition} were removed during a compaction")
    yield from replace_segments(log, [group.cleaned], old)
    return log.truncations


def _switch(log: Log, new: Sequence[CleanedState], old: Sequence[LogSegment]) -> None:
    """From now on snapshots show the new segments. Counted as a cut: a name stands for another file than before."""
    for segment in old:
        log.segments.remove(segment)
    for state in new:
        segment = log.new_segment(state.base_offset)
        state.install(segment)
        segment.least_timestamps.take_over((each.base_offset, each.least_timestamps) for each in old)
        log.segments.add(segment)
    log.truncations += 1
    log.changed(segments=True)
    if any(segment.base_offset == log.high_watermark_segment for segment in old):
        # It stood at the end of the last old segment, where the next one begins.
        following = log.segments.floor(log.high_watermark)
        assert following is not None
        assert following.base_offset == log.high_watermark, f"{log.topic_partition} was cleaned above its high watermark"
        log.set_high_watermark(log.high_watermark, log.high_watermark, 0)
    log.check_invariant()


def _forget_derived(log: Log, old: Sequence[LogSegment]) -> Procedure[None]:
    """Forget the derived facts of the old segments: new segments may have the same names and sizes."""
    for segment in old:
        log.derived.forget(segment.base_offset)
    yield from log.write_derived()


def _doom(log: Log, segment: LogSegment, *, keep_snapshot: bool) -> Procedure[Doomed]:
    """Rename an old segment's files in one operation: until the handles know the new names, nobody can open them.

    The names are unique: a segment of this name may have been replaced a moment ago already.
    """
    suffix = f".{log.truncations}{DELETED_SUFFIX}"
    files = segment.all_files
    paths = [file.path for file in files]
    if not keep_snapshot:
        paths += snapshot_paths(log.directory, segment.base_offset)
    renamed = yield RenameEach(paths, suffix)
    for file in files:
        file.path += suffix
    due_ms = log.now_ms() + log.config.file_delete_delay_ms
    return Doomed(due_ms, files, renamed, list(segment.indexes))


def _rename_if_there(source: str, target: str) -> Procedure[bool]:
    if (yield FileSize(source)) is None:
        return False
    yield Rename(source, target)
    return True


def _sync_names(log: Log) -> Procedure[None]:
    if log.sync_metadata:
        yield SyncDirectory(log.directory)


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
            "%s: finishing an interrupted compaction that replaced offsets %d to %d",
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
            LOGGER.info("deleting %s/%s, a leftover of a compaction", directory, name)
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
