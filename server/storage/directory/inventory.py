"""Lists the files of a stopped log directory, by name and size; offline tools start from this list. It opens no log.

| in a partition's directory | is |
|---|---|
| `<20 digits>.log` `.index` `.timeindex` `.txnindex` | files of a segment |
| `<20 digits>.snapshot` `.batches` | producers at that offset |
| `<file>.corrupt-<position>`, `<file>.corrupt` | bytes that recovery or repair set aside |
| `<20 digits>.log.aside-<offset>` | records that a mirror set aside |
| `... .deleted` `.cleaned` `.swap` `.tmp` | left over by something that was cut off |
| `leader-epoch-checkpoint` `partition.metadata` `quarantine-checkpoint` `derived.json` | small files |
| anything else | foreign |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ....protocol.types import TopicPartition
from ..disk.checkpoints import PARTITION_METADATA_FILE
from ..disk.filesystem import FileSystem
from ..disk.paths import (
    BATCHES_SUFFIX,
    CLEANED_SUFFIX,
    CLUSTER_METADATA_TOPIC,
    DELETED_SUFFIX,
    IGNORED_DIRECTORIES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    base_offset_of,
    is_marked,
    parse_partition_directory,
    segment_file,
)
from ..errors import LogDirectoryError
from ..log.derived_files import FILE_NAME as DERIVED_FILE
from ..log.gaps import FILE_NAME as QUARANTINE_FILE
from ..log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from .topics_file import left_over

_SMALL_FILES: Final = frozenset({LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, QUARANTINE_FILE, DERIVED_FILE})
_LEFTOVER_SUFFIXES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
_SET_ASIDE: Final = re.compile(r".+(?:\.corrupt(?:-\d+(?:\.\d+)?)?|\.aside-\d+(?:\.\d+)?)")


@attrs.frozen
class SegmentFiles:
    """The files of one base offset, of which the `.log` is there; sizes in bytes by suffix."""

    directory: str
    base_offset: int
    sizes: Mapping[str, int]

    @property
    def log_bytes(self) -> int:
        return self.sizes[LOG_SUFFIX]

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{segment_file(self.base_offset, suffix)}"


@attrs.frozen(kw_only=True)
class PartitionFiles:
    """A partition's directory at one moment. Names are without the directory, ascending."""

    topic_partition: TopicPartition
    path: str
    segments: tuple[SegmentFiles, ...]
    snapshots: tuple[int, ...]
    batches: tuple[int, ...]
    """Offsets of the files beside snapshots."""
    orphans: tuple[str, ...]
    """Indexes without their log."""
    set_aside: tuple[str, ...]
    leftovers: tuple[str, ...]
    foreign: tuple[str, ...]
    """Names that no part of a log has, directories among them."""
    small: tuple[str, ...]

    @property
    def log_bytes(self) -> int:
        return sum(segment.log_bytes for segment in self.segments)

    def with_ends(self, end_offset: int | None = None) -> Iterator[tuple[SegmentFiles, int | None]]:
        """Yield each segment with the base offset of the next one; the last one with `end_offset`."""
        ends = [segment.base_offset for segment in self.segments[1:]]
        yield from zip(self.segments, [*ends, end_offset], strict=False)


@attrs.frozen(kw_only=True)
class StoppedDirectory:
    """A log directory with the partitions that were asked for."""

    path: str
    partitions: tuple[PartitionFiles, ...]
    marked: tuple[str, ...] = ()
    """Names of directories of partitions that are being deleted, are stray or future replicas."""
    foreign: tuple[str, ...] = ()
    """Names of directories that are no partition's."""
    left_over: tuple[str, ...] = ()
    """Names of directories of partitions whose creation was cut off; the next start removes them."""
    is_whole: bool = True
    """False when one partition or some topics were asked for."""


def read_partition(fs: FileSystem, path: str) -> PartitionFiles:
    """Sort the names in a partition's directory. Raises LogDirectoryError when its name is no partition's, OSError."""
    topic_partition = parse_partition_directory(path.rstrip("/").rpartition("/")[2])
    names = fs.list_directory(path)
    bases = {name[: -len(LOG_SUFFIX)] for name in names if name.endswith(LOG_SUFFIX) and base_offset_of(name) is not None}
    sizes: dict[str, dict[str, int]] = {stem: {} for stem in sorted(bases)}
    sorted_names: dict[str, list[str]] = {"orphans": [], "set_aside": [], "leftovers": [], "foreign": [], "small": []}
    snapshots, batches = [], []
    for name in names:
        stem, suffix = name[:20], name[20:]
        base_offset = base_offset_of(name)
        if suffix in SEGMENT_SUFFIXES and stem in sizes:
            sizes[stem][suffix] = fs.file_size(f"{path}/{name}") or 0
        elif base_offset is not None and suffix == SNAPSHOT_SUFFIX:
            snapshots.append(base_offset)
        elif base_offset is not None and suffix == BATCHES_SUFFIX:
            batches.append(base_offset)
        elif base_offset is not None and suffix in SEGMENT_SUFFIXES:
            sorted_names["orphans"].append(name)
        else:
            sorted_names[_kind_of(name)].append(name)
    return PartitionFiles(
        topic_partition=topic_partition,
        path=path,
        segments=tuple(SegmentFiles(path, int(stem), each) for stem, each in sizes.items()),
        snapshots=tuple(snapshots),
        batches=tuple(batches),
        **{kind: tuple(found) for kind, found in sorted_names.items()},
    )


def read_directory(fs: FileSystem, path: str, *, topics: frozenset[str] | None = None) -> StoppedDirectory:
    """A log directory, or the one partition that `path` names; of `topics` only, when they are given.

    Raises LogDirectoryError when nothing there is a log's, OSError when it cannot be read.
    """
    path = path.rstrip("/") or "/"
    names = fs.list_directory(path)
    if any(name.endswith(LOG_SUFFIX) and not fs.is_directory(f"{path}/{name}") for name in names):
        return StoppedDirectory(path=path.rpartition("/")[0], partitions=(read_partition(fs, path),), is_whole=False)
    partitions, marked, foreign = [], [], []
    for name in names:
        if name in IGNORED_DIRECTORIES or not fs.is_directory(f"{path}/{name}"):
            continue
        try:
            topic_partition = parse_partition_directory(name)
        except LogDirectoryError:
            foreign.append(name)
            continue
        if is_marked(name):
            marked.append(name)
        elif topic_partition.topic != CLUSTER_METADATA_TOPIC and (topics is None or topic_partition.topic in topics):
            partitions.append(read_partition(fs, f"{path}/{name}"))
    left = left_over(fs, path, {each.topic_partition: each.path for each in partitions})
    partitions = [each for each in partitions if each.topic_partition not in left]
    missing = sorted((topics or frozenset()) - {each.topic_partition.topic for each in partitions})
    if missing:
        raise LogDirectoryError(f"{path} has no partition of topic {missing[0]!r}")
    return StoppedDirectory(
        path=path,
        partitions=tuple(sorted(partitions, key=lambda each: each.topic_partition)),
        marked=tuple(marked),
        foreign=tuple(foreign),
        left_over=tuple(str(each) for each in sorted(left)),
        is_whole=topics is None,
    )


def _kind_of(name: str) -> str:
    if name in _SMALL_FILES:
        return "small"
    if _SET_ASIDE.fullmatch(name):
        return "set_aside"
    return "leftovers" if name.endswith(_LEFTOVER_SUFFIXES) else "foreign"
