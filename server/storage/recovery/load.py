"""The files in a partition's directory, before anything is read in them (Kafka: LogLoader.removeTempFilesAndCollectSwapFiles,
loadSegmentFiles).

| file | what becomes of it |
|---|---|
| `<20 digits>.log` | a segment |
| `.swap`, `.cleaned` | an interrupted compaction is completed or taken back |
| `.deleted`, `.tmp` | deleted |
| `.index`, `.timeindex`, `.txnindex` without a `.log` | deleted, unless they tell that a `.log` is missing in the middle |
| another `*.log` | the partition is refused |
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import attrs

from ...config import LogConfig
from ..cleaner.swap_recovery import complete_swaps
from ..disk.checkpoints import MAX_CHECKPOINT_BYTES
from ..disk.filesystem import FileSystem, read_file
from ..disk.paths import DELETED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, TEMPORARY_SUFFIX, base_offset_of, segment_file
from ..errors import CheckpointError, StorageError
from ..indexes.file_records import whole_file
from ..log.gaps import FILE_NAME as GAPS_FILE
from ..log.gaps import OffsetGap, gap_at, read_gaps
from ..log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..log.leader_epochs import LeaderEpochs, decode_leader_epochs
from ..segments.segment import LogSegment, LogSegments

LOGGER: Final = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class LoadedFiles:
    """Segments whose indexes are not looked at yet, and what the small files remember."""

    segments: LogSegments
    epochs: LeaderEpochs
    gaps: tuple[OffsetGap, ...]
    orphans: Sequence[str]
    """Paths of indexes without a log; still there."""
    traces: Sequence[tuple[int, str]]
    """Base offset and name of the indexes without a log. (A producer snapshot tells nothing: a clean stop leaves one too.)"""

    def check_hole(self, segment: LogSegment, next_offset: int, log_start_offset: int) -> None:
        """Raises StorageError when files tell of a segment between this one, whose offsets end at `next_offset`, and the one
        behind it. Without such files missing offsets are a gap as compaction and truncation leave them. Below the log start
        offset nothing is missed: a power cut takes some of the renames back by which retention took segments out."""
        following = self.segments.higher(segment.base_offset)
        if following is None or next_offset >= following.base_offset or gap_at(self.gaps, next_offset) is not None:
            return
        if following.base_offset <= log_start_offset:
            return
        names = [name for offset, name in self.traces if next_offset <= offset < following.base_offset]
        if names:
            missing = segment_file(base_offset_of(names[0]) or 0, LOG_SUFFIX)
            raise StorageError(
                f"{segment.log.path} ends before offset {next_offset} and the next file is {following.log.path}, but "
                f"{', '.join(names)} tell of a segment between them: {missing} is missing; put it back, or delete these files "
                "to go on without its records"
            )


def load_files(fs: FileSystem, directory: str, config: LogConfig, created_ms: int) -> LoadedFiles:
    """Look at the names, delete leftovers. Raises StorageError when the files cannot be a log's, OSError."""
    complete_swaps(fs, directory)
    _finish_taking_out(fs, directory)
    names = fs.list_directory(directory)
    if any(name.endswith(DELETED_SUFFIX) for name in names):
        fs.sync_directory(directory)  # a renamed file must not get its old name back when its neighbour is gone for good
    logs = {name for name in names if name.endswith(LOG_SUFFIX)}
    orphans, traces = [], []
    for name in names:
        if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            LOGGER.info("%s/%s is left over and is deleted", directory, name)
            fs.unlink(f"{directory}/{name}")
            continue
        stem, _, suffix = name.partition(".")
        if f"{stem}{LOG_SUFFIX}" in logs or f".{suffix}" not in INDEX_SUFFIXES:
            continue
        orphans.append(f"{directory}/{name}")
        base_offset = base_offset_of(name)
        if base_offset is not None:
            traces.append((base_offset, name))
    segments = LogSegments(_segment(fs, directory, name, config, created_ms) for name in sorted(logs))
    return LoadedFiles(segments, _load_leader_epochs(fs, directory), _load_gaps(fs, directory), orphans, traces)


def _finish_taking_out(fs: FileSystem, directory: str) -> None:
    """A segment whose log is renamed to `.deleted` is out; a power cut can have left other files of it their names. They go
    before the `.deleted` does: alone they would tell of a missing log."""
    listed = fs.list_directory(directory)
    taken_out = {name.partition(".")[0] for name in listed if name.endswith(DELETED_SUFFIX) and LOG_SUFFIX + "." in name}
    if not taken_out:
        return
    names = set(listed)
    left = [
        name
        for stem in taken_out
        if stem + LOG_SUFFIX not in names
        for name in (f"{stem}{suffix}" for suffix in INDEX_SUFFIXES)
        if name in names
    ]
    for name in left:
        fs.unlink(f"{directory}/{name}")


def _segment(fs: FileSystem, directory: str, name: str, config: LogConfig, created_ms: int) -> LogSegment:
    base_offset = base_offset_of(name)
    if base_offset is None or name != segment_file(base_offset, LOG_SUFFIX):
        raise StorageError(f"{directory}/{name} is not named after a base offset of 20 digits; move it away")
    segment = LogSegment.at(directory, base_offset, config, created_ms=created_ms)
    size = fs.file_size(segment.log.path)
    if size is None or fs.is_directory(segment.log.path):
        raise StorageError(f"{segment.log.path} is no file; move it away")
    whole_file(segment.log, size)
    segment.size = size
    return segment


def _load_leader_epochs(fs: FileSystem, directory: str) -> LeaderEpochs:
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    try:
        return decode_leader_epochs(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return LeaderEpochs()
    except (CheckpointError, ValueError) as exc:
        LOGGER.warning("leader epochs are forgotten, and read from the batches: %s", str(exc))
        return LeaderEpochs()


def _load_gaps(fs: FileSystem, directory: str) -> tuple[OffsetGap, ...]:
    try:
        return read_gaps(fs, directory)
    except CheckpointError as exc:
        kept = f"{directory}/{GAPS_FILE}.corrupt"
        LOGGER.warning("gaps are forgotten, so reading steps over them; the file is kept as %s: %s", kept, str(exc))
        fs.rename(f"{directory}/{GAPS_FILE}", kept)
        return ()
