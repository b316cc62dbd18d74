"""Indexes of stopped partitions made anew from their logs: `.index`, `.timeindex`, `.txnindex`.

Every batch is checked on the way. A segment whose log is damaged keeps what it has: positions behind the damage change when it
is repaired. What is replaced was derived, and is derived again: nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from ....protocol.errors import RequestError
from ...config import LogConfig
from ..directory.inventory import PartitionFiles, SegmentFiles
from ..disk.diskops import drive
from ..disk.filesystem import FileSystem, sync_file
from ..log.derived_files import forget_lookups
from ..log.leader_epochs import LeaderEpochs
from ..producers.producer_state import ProducerState
from ..recovery.rebuild import SegmentRebuild, scan_segment
from ..segments.segment import LogSegment


@attrs.frozen(kw_only=True)
class Reindexed:
    """One segment; `failure` says why its indexes are as they were, None: they are new."""

    segment: SegmentFiles
    offset_entries: int
    time_entries: int
    aborted: int
    failure: str | None


def reindex(
    fs: FileSystem,
    files: PartitionFiles,
    config: LogConfig,
    producers: ProducerState,
    advance: Callable[[int], None],
    *,
    end_offset: int | None = None,
) -> Iterator[Reindexed]:
    """Make the indexes of every segment anew; `advance` is told how many bytes of log are done. Raises OSError.

    `producers`: the state at the first segment's base offset. `end_offset`: the base offset of the segment behind the last of
    `files`, None when there is none. Memory: the indexes of one segment, the producers of the log.
    """
    bases = [segment.base_offset for segment in files.segments]
    forget_lookups(fs, files.path)
    for segment, segment_end in zip(files.segments, [*bases[1:], end_offset], strict=False):
        try:
            rebuild = scan(fs, segment, config, LeaderEpochs(), producers, segment_end)
            failure = _failure(rebuild)
        except RequestError as exc:
            rebuild, failure = None, exc.message
        if rebuild is not None and failure is None:
            put_in_place(fs, rebuild)
        yield Reindexed(
            segment=segment,
            offset_entries=rebuild.offset_tail.entries if rebuild is not None else 0,
            time_entries=rebuild.time_tail.entries if rebuild is not None else 0,
            aborted=len(rebuild.aborted) if rebuild is not None else 0,
            failure=failure,
        )
        advance(segment.log_bytes)
    fs.sync_directory(files.path)


def scan(
    fs: FileSystem,
    segment: SegmentFiles,
    config: LogConfig,
    epochs: LeaderEpochs,
    producers: ProducerState,
    end_offset: int | None,
) -> SegmentRebuild:
    """What the log of a segment says; nothing is changed. Raises OSError, RequestError for a marker that cannot be read."""
    log = LogSegment.at(segment.directory, segment.base_offset, config, created_ms=0)
    log.size = segment.log_bytes
    return scan_segment(fs, log, epochs, producers, end_offset=end_offset)


def put_in_place(fs: FileSystem, rebuild: SegmentRebuild) -> None:
    """Write the indexes and force them to the device; their names, the caller. Raises OSError."""
    drive(fs, rebuild.put_in_place())
    segment = rebuild.segment
    for path in (segment.offset_index.path, segment.time_index.path, segment.transaction_index.path):
        if fs.file_size(path) is not None:
            sync_file(fs, path)


def _failure(rebuild: SegmentRebuild) -> str | None:
    if not rebuild.damages:
        return None
    first = rebuild.damages[0]
    return f"the log is damaged at position {first.position}: {first.reason}"
