"""Compacting a topic of a stopped log directory on the spot, all of it or up to the active segment.

While it goes on the directory has no clean marker, so that whoever opens it after a crash in between looks at its logs; it
comes back when it was there before and every log was closed. What compaction replaced is deleted at the end: nobody reads it.

A round of cleaning on the spot: for tools on a stopped directory, and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from ...protocol.limits import MIB
from ...protocol.types import TopicPartition
from ..config import LogConfig
from ..storage.cleaner.clean import Spend, clean, unwatched
from ..storage.cleaner.job import CleanedGroup, CleaningResult
from ..storage.cleaner.selection import LogToClean, choose, plan_round
from ..storage.cleaner.swap import discard_cleaned, replace_group
from ..storage.directory.inventory import PartitionFiles, StoppedDirectory
from ..storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
    encode_offsets,
    maybe_read,
    read_cleaner_offsets,
    read_small,
    write_cleaner_offsets,
)
from ..storage.disk.diskops import drive
from ..storage.disk.filesystem import FileSystem, replace_file
from ..storage.log.log import Log
from ..storage.recovery.recovery import OpenLog, close_files, open_log
from ..system.clock import NowMs
from .verify import Known

DEFAULT_MAP_BYTES: Final = 128 * MIB
"""Kafka's log.cleaner.dedupe.buffer.size."""


@attrs.frozen(kw_only=True)
class Compacted:
    """The result of a compaction round on the spot."""

    chosen: LogToClean
    result: CleaningResult
    groups: tuple[CleanedGroup, ...]


def compact(
    fs: FileSystem,
    log: Log,
    checkpoint: int | None,
    *,
    map_bytes: int = DEFAULT_MAP_BYTES,
    keep_on: Spend = unwatched,
) -> Compacted | None:
    """Clean what can be cleaned of a log, due or not; None when nothing is dirty. `result.next_dirty_offset` is the checkpoint
    to keep. More rounds may follow when the map did not hold all keys: then it lies below `chosen.end_offset`.

    Raises what `clean` and `replace_group` raise; `.cleaned` files are deleted then.
    """
    now_ms = log.now_ms()
    chosen = drive(fs, choose(log, checkpoint, now_ms))
    if chosen.end_offset <= chosen.first_dirty_offset:
        return None
    job = plan_round(log, chosen, now_ms, map_bytes=map_bytes)
    groups: list[CleanedGroup] = []
    truncations = log.truncations
    work = clean(fs, job, keep_on=keep_on)
    try:
        while True:
            group = next(work)
            groups.append(group)
            if group.cleaned is not None:
                truncations = drive(fs, replace_group(log, job, group, truncations))
    except StopIteration as stop:
        result: CleaningResult = stop.value
        return Compacted(chosen=chosen, result=result, groups=tuple(groups))
    except Exception:
        work.close()
        discard_cleaned(fs, log.directory)
        raise


@attrs.frozen(kw_only=True)
class CompactedPartition:
    """The result of compacting one partition. `keyless_records` had no key and are gone, as with Kafka: no record could replace
    them."""

    topic_partition: TopicPartition
    bytes_before: int
    bytes_after: int
    rounds: int
    keys: int
    keyless_records: int


@attrs.frozen(kw_only=True)
class CompactionOptions:
    """The options of a compaction. `include_active`: the active segment is closed first, so that it is compacted too."""

    config: LogConfig
    now_ms: NowMs
    include_active: bool = False
    map_bytes: int = DEFAULT_MAP_BYTES


def compact_directory(
    fs: FileSystem,
    directory: StoppedDirectory,
    known: Callable[[TopicPartition], Known],
    how: CompactionOptions,
    advance: Callable[[int], None],
) -> Iterator[CompactedPartition]:
    """Compact every partition of `directory`; `advance` is told of every byte read or written.

    Raises OSError, StorageError, CorruptRecordError or InvalidRecordError for a damaged log: repair it first.
    """
    marker = f"{directory.path}/{CLEAN_SHUTDOWN_FILE}"
    content = read_small(fs, marker) if fs.file_size(marker) is not None else None
    if content is not None:
        fs.unlink(marker)
        fs.sync_directory(directory.path)
    for files in directory.partitions:
        yield compact_partition(fs, directory.path, files, known(files.topic_partition), how, advance)
    if content is not None:
        replace_file(fs, marker, content)


def compact_partition(
    fs: FileSystem, path: str, files: PartitionFiles, known: Known, how: CompactionOptions, advance: Callable[[int], None]
) -> CompactedPartition:
    """Compact one partition; `path` is the directory whose checkpoints are read and changed. Raises as `compact_directory`."""
    log = open_log(
        fs,
        OpenLog(
            topic_partition=files.topic_partition,
            directory=files.path,
            config=how.config,
            now_ms=how.now_ms,
            was_clean=known.was_clean,
            recovery_point=known.recovery_point or 0,
            log_start_offset=known.log_start_offset or 0,
        ),
    )
    before = log.size_in_bytes
    rounds = keys = keyless = 0
    try:
        if how.include_active and log.active.size:
            drive(fs, log.roll())
        while True:
            checkpoint = read_cleaner_offsets(fs, path).get(files.topic_partition)
            done = compact(fs, log, checkpoint, map_bytes=how.map_bytes, keep_on=advance)
            if done is None:
                break
            rounds, keys, keyless = rounds + 1, keys + done.result.keys, keyless + done.result.keyless_records
            offsets = {**read_cleaner_offsets(fs, path), files.topic_partition: done.result.next_dirty_offset}
            write_cleaner_offsets(fs, path, offsets, durable=True)
        drive(fs, log.close())
    finally:
        _let_go(fs, log)
    _keep_offsets(fs, path, log)
    return CompactedPartition(
        topic_partition=files.topic_partition,
        bytes_before=before,
        bytes_after=log.size_in_bytes,
        rounds=rounds,
        keys=keys,
        keyless_records=keyless,
    )


def _let_go(fs: FileSystem, log: Log) -> None:
    """Close what is open and delete what was replaced."""
    log.drop_maps()
    close_files(fs, log)
    for doomed in log.doomed:
        for path in doomed.paths:
            if fs.file_size(path) is not None:
                fs.unlink(path)
    log.doomed.clear()


def _keep_offsets(fs: FileSystem, path: str, log: Log) -> None:
    for name, offset in ((RECOVERY_POINT_FILE, log.recovery_point), (HIGH_WATERMARK_FILE, log.high_watermark)):
        file = f"{path}/{name}"
        offsets = maybe_read(fs, file, decode_offsets) or {}
        if offsets.get(log.topic_partition) != offset:
            replace_file(fs, file, encode_offsets({**offsets, log.topic_partition: offset}))
