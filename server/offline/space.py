"""Disk usage of a log directory: by partition, segment and kind of file, in bytes of content and bytes on the device.

The two differ: indexes are preallocated sparse, and a file system allocates whole blocks. Sizes are read past the file-system
seam, which knows no blocks. The directory may belong to a running server; a file that is deleted meanwhile counts as nothing.

The age of a segment is that of its largest timestamp, which retention uses: the last entry of its time index, else the last
change of its log.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final

import attrs

from ...protocol.types import TopicPartition
from ..storage.directory.inventory import PartitionFiles, SegmentFiles, StoppedDirectory
from ..storage.disk.filesystem import FileSystem, opened
from ..storage.disk.paths import LOG_SUFFIX, SNAPSHOT_SUFFIXES, TIME_INDEX_SUFFIX, segment_file
from ..storage.indexes.index import TIME_ENTRY

BLOCK_BYTES: Final = 512
"""What `st_blocks` counts in (POSIX stat)."""


@attrs.frozen
class Space:
    """Bytes of content, and bytes that the device gave for them."""

    logical_bytes: int = 0
    allocated_bytes: int = 0

    def __add__(self, other: Space) -> Space:
        return Space(self.logical_bytes + other.logical_bytes, self.allocated_bytes + other.allocated_bytes)


@attrs.frozen(kw_only=True)
class SegmentSpace:
    """A segment with its indexes and its snapshot."""

    base_offset: int
    log: Space
    indexes: Space
    largest_timestamp: int
    """ms; from the log's modification time where the time index has none."""

    @property
    def all(self) -> Space:
        return self.log + self.indexes


@attrs.frozen(kw_only=True)
class PartitionSpace:
    """A partition; `others` are small files, files that were set aside or left over, and the directory."""

    topic_partition: TopicPartition
    segments: tuple[SegmentSpace, ...]
    others: Space

    @property
    def log(self) -> Space:
        return total(segment.log for segment in self.segments)

    @property
    def indexes(self) -> Space:
        return total(segment.indexes for segment in self.segments)

    @property
    def all(self) -> Space:
        return self.log + self.indexes + self.others


def total(spaces: Iterable[Space]) -> Space:
    result = Space()
    for space in spaces:
        result += space
    return result


def measure_partition(fs: FileSystem, files: PartitionFiles) -> PartitionSpace:
    """Look at every file of a partition. Raises OSError when its directory cannot be read."""
    segments = []
    rest = set(fs.list_directory(files.path))
    for segment in files.segments:
        names = [segment_file(segment.base_offset, suffix) for suffix in (*segment.sizes, *SNAPSHOT_SUFFIXES)]
        indexes = [name for name in names if not name.endswith(LOG_SUFFIX) and name in rest]
        rest.difference_update(names)
        segments.append(
            SegmentSpace(
                base_offset=segment.base_offset,
                log=space_of(segment.path(LOG_SUFFIX)),
                indexes=total(space_of(f"{files.path}/{name}") for name in indexes),
                largest_timestamp=_largest_timestamp(fs, segment),
            )
        )
    others = total(space_of(f"{files.path}/{name}") for name in rest) + space_of(files.path)
    return PartitionSpace(topic_partition=files.topic_partition, segments=tuple(segments), others=others)


def measure_rest(fs: FileSystem, directory: StoppedDirectory) -> Space:
    """Everything in the log directory beside the partitions: its own files, and partitions that are being deleted."""
    partitions = {files.path for files in directory.partitions}
    paths = (f"{directory.path}/{name}" for name in fs.list_directory(directory.path))
    return total(_tree(path) for path in paths if path not in partitions)


def space_of(path: str) -> Space:
    """Return the space of one file or directory by itself; zero if it does not exist."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return Space()
    logical_bytes = 0 if os.path.isdir(path) else status.st_size
    return Space(logical_bytes, status.st_blocks * BLOCK_BYTES)


def _tree(path: str) -> Space:
    space = space_of(path)
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, folders, names in os.walk(path):
            space += total(space_of(f"{folder}/{name}") for name in (*folders, *names))
    return space


def _largest_timestamp(fs: FileSystem, segment: SegmentFiles) -> int:
    """The last entry that is not zeros: the file of an active segment ends with some."""
    low = 0
    with contextlib.suppress(FileNotFoundError), opened(fs, segment.path(TIME_INDEX_SUFFIX)) as fd:
        entries = fs.size(fd) // TIME_ENTRY.size
        while low < entries:  # entries come first and zeros last: look for the border
            middle = (low + entries) // 2
            if any(fs.read(fd, TIME_ENTRY.size, middle * TIME_ENTRY.size)):
                low = middle + 1
            else:
                entries = middle
        if low:
            return int(TIME_ENTRY.unpack(fs.read(fd, TIME_ENTRY.size, (low - 1) * TIME_ENTRY.size))[0])
    return _modified_ms(segment.path(LOG_SUFFIX))


def _modified_ms(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return -1
