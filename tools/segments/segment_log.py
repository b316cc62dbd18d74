"""Partitions as they lie in log directories at one moment: segments, where the log starts, and where it ends.

Names and sizes come from `server.storage.directory.inventory`, so a directory of triolog, of Apache Kafka, and one partition's
directory alone are all read. Nothing is locked and nothing written. What a running broker does meanwhile is tolerated:
appends are not looked at, a torn tail ends the log, a segment that was deleted, cut or compacted since is an error that says
so. A compaction that is just being swapped in is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from ...protocol.errors import TriologError
from ...protocol.limits import INT64_MAX
from ...protocol.types import TopicPartition
from ...server.storage.directory.inventory import PartitionFiles, StoppedDirectory, read_directory
from ...server.storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    read_small,
)
from ...server.storage.disk.paths import LOG_SUFFIX, SWAP_SUFFIX
from ...server.storage.errors import LogDirectoryError
from .segment_bytes import FILES, SegmentBytes
from .segment_damage import DamageCounts, ReadMode, SegmentPart, walk_headers
from .segment_index import OffsetIndex, read_offset_tail

SEARCHED_ENTRIES: Final = 8
"""Index entries that are tried for one position before the index is given up there."""


class LogInUseError(TriologError):
    """The files are being changed in a way that a reader without the broker cannot see through."""


@attrs.frozen(kw_only=True)
class SegmentFile:
    """A `.log` file. Its offsets are in [base_offset, end_offset)."""

    base_offset: int
    end_offset: int
    """The next segment's base offset, INT64_MAX for the last one."""
    path: str
    size_bytes: int
    is_leased: bool = False
    """Whether nothing can put another file in its place."""

    @property
    def is_last(self) -> bool:
        return self.end_offset == INT64_MAX

    @property
    def part(self) -> SegmentPart:
        """All of it."""
        return SegmentPart(path=self.path, end_byte=self.size_bytes, end_offset=self.end_offset, is_tail=self.is_last)


@attrs.frozen(kw_only=True)
class PartitionLog:
    """The segments of a partition, ascending. An uncommitted reader sees [log_start_offset, end_offset)."""

    topic_partition: TopicPartition
    segments: tuple[SegmentFile, ...]
    log_start_offset: int
    end_offset: int
    trusted_offset: int = INT64_MAX
    """Below it the indexes of closed segments are complete: the broker has synced them, or stopped in order."""
    snapshot_offsets: tuple[int, ...] = ()
    """Of the producer snapshots in `directory`, ascending."""
    directory: str = ""
    last_stable_offset: int | None = None
    """What the broker said it is; None when the files have to tell."""

    def segments_within(self, low: int, high: int) -> list[SegmentFile]:
        """Those that can hold offsets of [low, high)."""
        return [each for each in self.segments if each.end_offset > low and each.base_offset < high]


def read_logs(paths: Sequence[str], topics: frozenset[str] | None = None) -> list[PartitionLog]:
    """The partitions of `topics` (None: all) in some log directories, ascending.

    Raises LogDirectoryError for a partition that is there twice, CheckpointError, LogInUseError, OSError.
    """
    logs: dict[TopicPartition, PartitionLog] = {}
    for path in paths:
        found = read_directory(FILES, path)
        starts = _offsets_in(found, LOG_START_FILE)
        points = _offsets_in(found, RECOVERY_POINT_FILE)
        is_clean = FILES.file_size(f"{found.path}/{CLEAN_SHUTDOWN_FILE}") is not None
        for files in found.partitions:
            topic_partition = files.topic_partition
            if topics is not None and topic_partition.topic not in topics:
                continue
            if topic_partition in logs:
                raise LogDirectoryError(
                    f"{topic_partition} is in {logs[topic_partition].directory} and in {files.path}. Read one of them"
                )
            trusted = INT64_MAX if is_clean else points.get(topic_partition, 0)
            logs[topic_partition] = _log_of(files, starts.get(topic_partition, 0), trusted)
    return [logs[topic_partition] for topic_partition in sorted(logs)]


def _log_of(files: PartitionFiles, log_start_offset: int, trusted_offset: int) -> PartitionLog:
    swaps = [name for name in files.leftovers if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    if swaps:
        raise LogInUseError(
            f"{files.path}/{swaps[0]}: a compaction is just being swapped in. Read again, or with "
            "snapshot=server. If the broker is stopped, start it once"
        )
    bases = [each.base_offset for each in files.segments]
    segments = tuple(
        SegmentFile(
            base_offset=each.base_offset,
            end_offset=end_offset,
            path=each.path(LOG_SUFFIX),
            size_bytes=each.log_bytes,
        )
        for each, end_offset in zip(files.segments, [*bases[1:], INT64_MAX], strict=False)
    )
    log_start_offset = max(log_start_offset, bases[0] if bases else 0)
    return PartitionLog(
        topic_partition=files.topic_partition,
        segments=segments,
        log_start_offset=log_start_offset,
        end_offset=max(log_start_offset, find_end_offset(segments[-1])) if segments else log_start_offset,
        trusted_offset=trusted_offset,
        snapshot_offsets=files.snapshots,
        directory=files.path,
    )


def find_end_offset(segment: SegmentFile) -> int:
    """Behind the last whole batch of a segment, its base offset when there is none: the headers behind the last index entry."""
    end_offset = segment.base_offset
    if not segment.size_bytes:
        return end_offset
    index = read_offset_tail(segment.path, segment.base_offset, segment.size_bytes)
    with SegmentBytes(segment.path, segment.size_bytes) as file:
        position, next_offset = position_at_or_below(file, segment, index, int(index.offsets[-1]) if len(index) else -1)
        for header, _ in walk_headers(file, segment.part, position, next_offset, DamageCounts(ReadMode.DROPMALFORMED)):
            end_offset = header.next_offset
    return end_offset


def position_at_or_below(file: SegmentBytes, segment: SegmentFile, index: OffsetIndex, offset: int) -> tuple[int, int]:
    """A position where a batch starts, with no batch before it that reaches `offset`; and that batch's base offset.

    The greatest index entry that a look at the log confirms, else the start of the file.
    """
    slot = index.slot_at_or_below(offset)
    for position in index.positions[max(0, slot + 1 - SEARCHED_ENTRIES) : slot + 1][::-1].tolist():
        base_offset = file.base_offset_at(position)
        if base_offset is not None and segment.base_offset <= base_offset <= offset:
            return position, base_offset
    return 0, segment.base_offset


def _offsets_in(directory: StoppedDirectory, name: str) -> dict[TopicPartition, int]:
    path = f"{directory.path}/{name}"
    try:
        return decode_offsets(path, read_small(FILES, path))
    except FileNotFoundError:
        return {}
