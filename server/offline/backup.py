"""A consistent copy of a log directory while a server works in it: hard links for what never changes, a copy of the rest.

| file | in the copy |
|---|---|
| files of a sealed segment, `.snapshot`, `.batches`, bytes and records set aside | hard links: never written |
| `.log` of the active segment | its whole batches up to where it ended when the backup began |
| indexes of the active segment | not there: whoever opens the copy rebuilds them |
| `leader-epoch-checkpoint`, `partition.metadata`, `quarantine-checkpoint`, `derived.json` | copies |
| `producer-id-block` | ids that the original never gives out: both may be served, and clients move between them |
| offset checkpoints | written to match: recovery point = base offset of the last segment, high watermark = log end |
| other plain files of the directory | copies; not `.lock` and `.owner`, not the clean marker, and not what is being made |

First every partition's segments and sizes are noted, which takes milliseconds, internal topics before the others: so no
committed offset in the copy lies behind its log. Whatever was acknowledged before `plan_backup` is called was written, and is
in the copy. Then files are linked and copied; a partition whose files went meanwhile (retention, compaction) is noted again.

The copy shares the blocks of sealed segments with the original: both may be served, a tool that writes into a sealed segment
in place would change both. Where links cannot be made (another file system, or `links=False`) everything is copied.
Inode numbers and times are asked of the system past the file-system seam, which does not know them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from ...protocol.types import TopicPartition
from ..storage.directory.inventory import PartitionFiles, read_directory, read_partition
from ..storage.directory.state_files import SECURITY_FILE
from ..storage.directory.topics_file import CREATIONS_FILE, TOPICS_FILE, Topic, decode_topics, encode_topics
from ..storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOCK_FILE,
    LOG_START_FILE,
    OWNER_FILE,
    PREVIOUS_SUFFIX,
    PRODUCER_ID_BLOCK_FILE,
    RECOVERY_POINT_FILE,
    block_apart,
    decode_offsets,
    decode_producer_id_block,
    encode_offsets,
    read_small,
    write_producer_id_block,
)
from ..storage.disk.filesystem import CREATE, FileSystem, link_file, opened, pieces, replace_file, sync_file, write_pieces
from ..storage.disk.paths import (
    ASIDE_MARK,
    BATCHES_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    is_internal,
    segment_file,
)
from ..storage.errors import CheckpointError, LogDirectoryError, StorageError
from ..storage.recovery.salvage import GoodBatch, scan_batches

MAX_ATTEMPTS: Final = 20
"""At copying one partition: each fails only if retention or compaction took a file in between."""
_WRITTEN_ANEW: Final = frozenset({RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, TOPICS_FILE})
_LEFT_OUT: Final = frozenset({LOCK_FILE, OWNER_FILE, CLEAN_SHUTDOWN_FILE, CREATIONS_FILE})
_LEFT_OUT_SUFFIXES: Final = (TEMPORARY_SUFFIX, PREVIOUS_SUFFIX)


class _ChangedError(Exception):
    """Files of a partition went or were replaced since they were noted."""


@attrs.frozen(kw_only=True)
class PartitionPlan:
    """The files of a partition when they were noted. `links`: names with their inode numbers."""

    topic_partition: TopicPartition
    source: str
    links: Mapping[str, int]
    copies: tuple[str, ...]
    active: int | None
    """Base offset of the last segment."""
    active_inode: int
    active_bytes: int


@attrs.frozen(kw_only=True)
class BackupPlan:
    """The content of a directory when the backup began."""

    source: str
    partitions: tuple[PartitionPlan, ...]
    small: Mapping[str, bytes]
    """Content of the plain files in the log directory."""


@attrs.frozen(kw_only=True)
class PartitionBackup:
    """The backup of one partition."""

    topic_partition: TopicPartition
    log_end_offset: int
    active_base_offset: int
    linked_files: int
    linked_bytes: int
    copied_bytes: int


def plan_backup(fs: FileSystem, source: str, wait: Callable[[], None]) -> BackupPlan:
    """Note what is there. `wait` is called between two looks at a partition that is being compacted.

    Raises OSError, LogDirectoryError when nothing there is a log's.
    """
    small = dict(_small_files(fs, source))
    found = read_directory(fs, source)
    if not found.is_whole:
        raise LogDirectoryError(f"{source} is one partition. Back up its log directory instead")
    newer = _made_since(fs, source, small)
    partitions = []
    for files in sorted(found.partitions, key=lambda files: (not is_internal(files.topic_partition.topic), files.path)):
        plan = None if newer(files.topic_partition) else _noted(fs, files.path, wait)
        if plan is not None:
            partitions.append(plan)
    # Last, because it may only name too many: ids in the logs must not be given out again.
    small |= {name: data for name, data in _small_files(fs, source) if name == PRODUCER_ID_BLOCK_FILE}
    return BackupPlan(source=source, partitions=tuple(partitions), small=small)


def make_backup(
    fs: FileSystem,
    plan: BackupPlan,
    target: str,
    wait: Callable[[], None],
    *,
    links: bool = True,
    done: Callable[[PartitionBackup], None] = lambda partition: None,
) -> list[PartitionBackup]:
    """Put the copy into `target`, which is empty or not there; `done` is called behind each partition. All of it is on the
    device when this returns.

    Raises OSError, LogDirectoryError for a target that cannot be.
    """
    _check_target(plan.source, target)
    fs.make_directory(target)
    backups = []
    for partition in plan.partitions:
        backup = _back_up(fs, partition, target, wait, links=links)
        if backup is not None:
            backups.append(backup)
            done(backup)
    _write_small_files(fs, plan, target, backups)
    _back_up_aside(fs, plan.source, target, links=links)
    fs.sync_directory(target)
    fs.sync_directory(os.path.dirname(os.path.abspath(target)))
    return backups


def _small_files(fs: FileSystem, source: str) -> Iterator[tuple[str, bytes]]:
    for name in fs.list_directory(source):
        path = f"{source}/{name}"
        if name in _LEFT_OUT or name.endswith(_LEFT_OUT_SUFFIXES) or ASIDE_MARK in name or not os.path.isfile(path):
            continue
        with contextlib.suppress(FileNotFoundError):
            yield name, read_small(fs, path)


def _made_since(fs: FileSystem, source: str, small: Mapping[str, bytes]) -> Callable[[TopicPartition], bool]:
    """Return a check whether a partition was created after `small` was read. The copy would have it without the configuration
    of its topic, and with the checkpoints of a deleted topic of that name."""
    if TOPICS_FILE not in small:
        return lambda topic_partition: False
    path = f"{source}/{TOPICS_FILE}"
    now, then = (
        {topic.name: topic for topic in decode_topics(path, data)[1]} for data in (read_small(fs, path), small[TOPICS_FILE])
    )

    def is_newer(each: TopicPartition) -> bool:
        before, after = then.get(each.topic), now.get(each.topic)
        if after is None or each.partition >= after.partitions:
            return False
        return before is None or before.topic_id != after.topic_id or each.partition >= before.partitions

    return is_newer


def _noted(fs: FileSystem, path: str, wait: Callable[[], None]) -> PartitionPlan | None:
    """None for a partition that is gone."""
    for _ in range(MAX_ATTEMPTS):
        try:
            files = read_partition(fs, path)
            if not any(name.endswith(SWAP_SUFFIX) for name in files.leftovers):
                return _plan_partition(files)
        except FileNotFoundError:
            if not fs.is_directory(path):
                return None
        wait()
    raise StorageError(f"{path} changes continuously: compaction replaces its files. Try again later")


def _plan_partition(files: PartitionFiles) -> PartitionPlan:
    active = files.segments[-1] if files.segments else None
    links: dict[str, int] = {}
    for segment in files.segments[:-1]:
        for suffix in segment.sizes:
            links[segment_file(segment.base_offset, suffix)] = os.stat(segment.path(suffix)).st_ino
    named = [(offset, BATCHES_SUFFIX) for offset in files.batches] + [(offset, SNAPSHOT_SUFFIX) for offset in files.snapshots]
    for offset, suffix in named:
        if active is not None and offset <= active.base_offset:
            name = segment_file(offset, suffix)
            links[name] = os.stat(f"{files.path}/{name}").st_ino
    links |= {name: os.stat(f"{files.path}/{name}").st_ino for name in files.set_aside}
    status = None if active is None else os.stat(active.path(LOG_SUFFIX))
    return PartitionPlan(
        topic_partition=files.topic_partition,
        source=files.path,
        links=links,
        copies=files.small,
        active=None if active is None else active.base_offset,
        active_inode=0 if status is None else status.st_ino,
        active_bytes=0 if status is None else status.st_size,
    )


def _back_up(
    fs: FileSystem, plan: PartitionPlan, target: str, wait: Callable[[], None], *, links: bool
) -> PartitionBackup | None:
    """None for a partition that is gone."""
    directory = f"{target}/{plan.topic_partition}"
    for _ in range(MAX_ATTEMPTS):
        fs.make_directory(directory)
        try:
            return _copy_partition(fs, plan, directory, links=links)
        except (FileNotFoundError, _ChangedError):
            shutil.rmtree(directory)
        wait()
        noted = _noted(fs, plan.source, wait)
        if noted is None:
            return None
        plan = noted
    raise StorageError(f"{plan.source} changes continuously: its files disappear during the copy. Try again later")


def _copy_partition(fs: FileSystem, plan: PartitionPlan, directory: str, *, links: bool) -> PartitionBackup:
    linked_files = linked_bytes = copied_bytes = 0
    for name, inode in plan.links.items():
        source, path = f"{plan.source}/{name}", f"{directory}/{name}"
        if links and link_file(fs, source, path):
            linked_files += 1
            linked_bytes += os.stat(path).st_size
            if os.stat(path).st_ino != inode:
                raise _ChangedError
            _sync_link(fs, path, source)
        else:
            copied_bytes += _copy_file(fs, source, path, inode)
    for name in plan.copies:
        copied_bytes += _copy_file(fs, f"{plan.source}/{name}", f"{directory}/{name}")
    log_end_offset = 0
    if plan.active is not None:
        stop, log_end_offset = _copy_active(fs, plan, directory)
        copied_bytes += stop
    fs.sync_directory(directory)
    return PartitionBackup(
        topic_partition=plan.topic_partition,
        log_end_offset=log_end_offset,
        active_base_offset=plan.active or 0,
        linked_files=linked_files,
        linked_bytes=linked_bytes,
        copied_bytes=copied_bytes,
    )


def _back_up_aside(fs: FileSystem, source: str, target: str, *, links: bool) -> None:
    """Copy or link the files with records of topics that a mirror has replaced. They are as large as logs."""
    for name in fs.list_directory(source):
        path = f"{source}/{name}"
        if ASIDE_MARK in name and not name.endswith(TEMPORARY_SUFFIX) and os.path.isfile(path):
            with contextlib.suppress(FileNotFoundError):
                if links and link_file(fs, path, f"{target}/{name}"):
                    _sync_link(fs, f"{target}/{name}", path)
                else:
                    _copy_file(fs, path, f"{target}/{name}")


def _sync_link(fs: FileSystem, path: str, source: str) -> None:
    """Force a file to the device that the server has too: of a failure the kernel may tell nobody else. Raises OSError."""
    try:
        sync_file(fs, path)
    except OSError as exc:
        advice = "The server on it may not notice: kill it (no clean shutdown), check the device and start it again"
        raise OSError(exc.errno, f"{exc.strerror}. {advice}", source) from exc


def _copy_active(fs: FileSystem, plan: PartitionPlan, directory: str) -> tuple[int, int]:
    """Copy whole batches; answers the bytes and the offset behind them. A torn batch at the end was not acknowledged."""
    assert plan.active is not None
    name = segment_file(plan.active, LOG_SUFFIX)
    source, path = f"{plan.source}/{name}", f"{directory}/{name}"
    stop, next_offset = 0, plan.active
    for item in scan_batches(fs, source, end=plan.active_bytes, base_offset=plan.active, torn_from=0):
        if isinstance(item, GoodBatch) or item.stamp is not None:
            # A damage in between is copied as it is: the copy is no repair.
            stop = item.position + (item.header.size_bytes if isinstance(item, GoodBatch) else item.size)
            next_offset = item.header.next_offset if isinstance(item, GoodBatch) else item.next_offset
    _copy_file(fs, source, path, plan.active_inode, size=stop)
    return stop, next_offset


def _copy_file(fs: FileSystem, source: str, path: str, inode: int | None = None, *, size: int | None = None) -> int:
    """Copy a file, or its first bytes, with its modification time; answers how many bytes that were."""
    with opened(fs, source) as fd:
        status = os.fstat(fd)
        if inode is not None and status.st_ino != inode:
            raise _ChangedError
        copied = write_pieces(fs, path, CREATE | os.O_EXCL, pieces(fs, fd, 0, status.st_size if size is None else size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return copied


def _write_small_files(fs: FileSystem, plan: BackupPlan, target: str, backups: Sequence[PartitionBackup]) -> None:
    for name, data in plan.small.items():
        if name not in _WRITTEN_ANEW:
            replace_file(fs, f"{target}/{name}", data, private=name == SECURITY_FILE)
    starts = decode_offsets(LOG_START_FILE, plan.small.get(LOG_START_FILE, b""))
    if TOPICS_FILE in plan.small:
        generation, topics = _topics(fs, plan)
        replace_file(fs, f"{target}/{TOPICS_FILE}", encode_topics(generation, topics))
        names = {topic.name for topic in topics}
        starts = {partition: offset for partition, offset in starts.items() if partition.topic in names}
    _write_producer_ids(fs, plan, target)
    ends = {backup.topic_partition: backup.log_end_offset for backup in backups}
    points = {backup.topic_partition: backup.active_base_offset for backup in backups}
    kept = {partition: min(offset, ends[partition]) for partition, offset in starts.items() if partition in ends}
    for name, offsets in ((RECOVERY_POINT_FILE, points), (HIGH_WATERMARK_FILE, ends), (LOG_START_FILE, kept)):
        replace_file(fs, f"{target}/{name}", encode_offsets(offsets))


def _write_producer_ids(fs: FileSystem, plan: BackupPlan, target: str) -> None:
    """A file that cannot be read is copied as it is: whoever opens the copy has to know."""
    data = plan.small.get(PRODUCER_ID_BLOCK_FILE)
    with contextlib.suppress(CheckpointError):
        first = 0 if data is None else decode_producer_id_block(f"{plan.source}/{PRODUCER_ID_BLOCK_FILE}", data).first_free
        write_producer_id_block(fs, target, block_apart(first), durable=True)


def _topics(fs: FileSystem, plan: BackupPlan) -> tuple[int, list[Topic]]:
    """Generation and topics, without those that were deleted since: their partitions are gone, and would come back empty."""
    path = f"{plan.source}/{TOPICS_FILE}"
    generation, topics = decode_topics(path, plan.small[TOPICS_FILE])
    _, later = decode_topics(path, read_small(fs, path))
    ids = {topic.topic_id for topic in later}
    return generation, [topic for topic in topics if topic.topic_id in ids]


def _check_target(source: str, target: str) -> None:
    source, target = os.path.realpath(source), os.path.realpath(target)
    if f"{target}/".startswith(f"{source}/"):
        raise LogDirectoryError(
            f"{target} is inside {source}, where a server would take it for a partition. Choose another one"
        )
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise LogDirectoryError(f"{target} exists and is not an empty directory. Choose another one")
