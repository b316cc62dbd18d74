"""What a stopped server left on disk: segments, bytes and index entries of each partition."""

from __future__ import annotations

from pathlib import Path

import attrs

from ...server.storage.indexes.offset_and_time import OffsetIndex, TimeIndex


@attrs.frozen(kw_only=True)
class PartitionUsage:
    """The files of one partition. Closed indexes are trimmed: their size is their entries."""

    directory: Path
    files: int
    segments: int
    log_bytes: int
    offset_index_entries: int
    time_index_entries: int
    total_bytes: int
    first_log: Path


def partition_usage(directory: Path) -> PartitionUsage:
    """Look at the directory of a partition."""
    sizes = {path: path.stat().st_size for path in sorted(directory.iterdir()) if path.is_file()}

    def size_of(suffix: str) -> int:
        return sum(size for path, size in sizes.items() if path.suffix == suffix)

    logs = [path for path in sizes if path.suffix == ".log"]
    return PartitionUsage(
        directory=directory,
        files=len(sizes),
        segments=len(logs),
        log_bytes=size_of(".log"),
        offset_index_entries=size_of(".index") // OffsetIndex.entry_size,
        time_index_entries=size_of(".timeindex") // TimeIndex.entry_size,
        total_bytes=sum(sizes.values()),
        first_log=logs[0],
    )
