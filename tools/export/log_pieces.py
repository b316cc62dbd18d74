"""The parts of a job that reads records from segment files: packed splits, as a manifest keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ...server.storage.disk.paths import is_internal
from ..segments.segment_log import read_logs
from ..segments.segment_transactions import committed_range
from ..segments.splits import AbortedRange, LogRange, SegmentSplit, SplitLimits, pack_splits, plan_splits
from .manifest import JobError, Manifest, Piece, absolute

Splits = tuple[SegmentSplit, ...]


def _absolute(directories: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(absolute, directories))


@attrs.frozen(kw_only=True)
class LogSource:
    """The records that a job reads. Without `topics` all but the server's own; committed ones unless `committed` is off."""

    directories: tuple[str, ...] = attrs.field(converter=_absolute)
    topics: tuple[str, ...] = ()
    split_bytes: int = SplitLimits().split_bytes
    committed: bool = True
    from_offset: int | None = None
    to_offset: int | None = None
    """Of each partition; exclusive."""


def plan_pieces(source: LogSource, manifest: Manifest) -> list[Piece[Splits]]:
    """Return one piece for each task by partition and offset, from the manifest's plan if it has one. StorageError, OSError."""
    pieces = []
    for planned in manifest.planned(lambda: _plan(source)):
        splits = tuple(_split(entry) for entry in planned)
        first = splits[0]
        name = f"{first.topic}-{first.partition}-{max(first.low, first.first_offset):020}"
        pieces.append(Piece(name, sum(split.size_bytes for split in splits), splits))
    return pieces


def _plan(source: LogSource) -> list[list[dict[str, Any]]]:
    limits = SplitLimits(split_bytes=source.split_bytes)
    ranges = []
    logs = read_logs(source.directories, frozenset(source.topics) or None)
    if absent := sorted(set(source.topics) - {log.topic_partition.topic for log in logs}):
        raise JobError(f"{', '.join(source.directories)}: no partition of topic {absent[0]}")
    for log in logs:
        low = max(log.log_start_offset, source.from_offset or 0)
        high = log.end_offset if source.to_offset is None else min(log.end_offset, source.to_offset)
        if low >= high > log.log_start_offset or (source.to_offset is not None and high <= log.log_start_offset):
            continue
        if source.topics or not is_internal(log.topic_partition.topic):
            ranges.append(committed_range(log, low, high) if source.committed else LogRange(log=log, low=low, high=high))
    packed: Sequence[Splits] = pack_splits(plan_splits(ranges, limits), limits)
    return [[attrs.asdict(split) for split in splits] for splits in packed]


def _split(entry: dict[str, Any]) -> SegmentSplit:
    aborted = entry["aborted"]
    ranges = None if aborted is None else tuple(AbortedRange(**each) for each in aborted)
    return SegmentSplit(**{**entry, "aborted": ranges})
