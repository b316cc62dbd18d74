"""Second names for the segments of a partition, so that they outlive retention and compaction for the time of a lease.

    <log directory>/.lease/<lease>/<topic>-<partition>/<base offset>.log .index .timeindex .txnindex

Hard links: segments are renamed and unlinked, never written in place, and the active one only grows; what counts of it is said
beside it. The links are made in the turn of the log's owner, when nobody changes names. They are of no use after the server has
stopped, and are removed when it starts.
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from ....protocol.types import TopicPartition
from ..directory.partition_directory import delete_directory
from ..disk.diskops import Procedure
from ..disk.filesystem import FileSystem
from ..disk.path_ops import LinkEach
from ..disk.paths import LEASE_DIRECTORY, LOG_SUFFIX, SEGMENT_SUFFIXES, segment_file
from ..log.log import Log


class LeasedFile(NamedTuple):
    """A segment's `.log`, and how much of it lies below the high watermark."""

    base_offset: int
    name: str
    size_bytes: int


@attrs.frozen(kw_only=True)
class LeasedPartition:
    """A partition's files at one moment."""

    topic_partition: TopicPartition
    directory: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    segments: tuple[LeasedFile, ...]


def lease_directory(directory: str, lease_id: str) -> str:
    """Where the links of a lease lie in a log directory."""
    return f"{directory}/{LEASE_DIRECTORY}/{lease_id}"


def lease_partition(log: Log, directory: str) -> Procedure[LeasedPartition | OSError]:
    """Link every segment that has something readable into `directory/<partition>`. An OSError is answered, not raised: the log
    is as it was."""
    snapshot = log.snapshot()
    target = f"{directory}/{log.topic_partition}"
    segments = []
    for slot in range(len(snapshot)):
        base_offset, size = snapshot.segment(slot).base_offset, snapshot.readable_end(slot)
        if size:
            segments.append(LeasedFile(base_offset, segment_file(base_offset, LOG_SUFFIX), size))
    names = [segment_file(each.base_offset, suffix) for each in segments for suffix in SEGMENT_SUFFIXES]
    try:
        yield LinkEach(log.directory, target, tuple(names))
    except OSError as exc:
        return exc
    return LeasedPartition(
        topic_partition=log.topic_partition,
        directory=target,
        log_start_offset=snapshot.log_start_offset,
        high_watermark=snapshot.high_watermark,
        last_stable_offset=snapshot.last_stable_offset,
        segments=tuple(segments),
    )


def delete_lease(fs: FileSystem, directory: str) -> None:
    """Delete the links of one lease, or of all. Raises OSError."""
    delete_directory(fs, directory)
