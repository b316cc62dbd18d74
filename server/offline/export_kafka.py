"""Laying the partitions of a stopped log directory into the log directory of a formatted, stopped Apache Kafka.

Kafka keeps topics, their ids and their configuration in its metadata log, so topics are created there first, with Kafka's own
tools; each partition then has a directory with `partition.metadata`, which is kept, and an empty log, which is replaced:

1. every partition is staged in `<topic>-<partition>.export`: `.log` files as hard links or copies, the other files as copies,
   and behind them an empty segment for what Kafka appends, so that nobody ever writes to a file with two names;
2. the checkpoints of the log directory take over our offsets;
3. each staged directory takes the place of the empty one.

Kafka refuses to start while a `.export` directory is there, so it never serves a part of the data. An export that was cut off
goes on where it was when it is run again; nothing in the source is changed.

What does not go to another cluster as it is:

- *Producer ids.* A new cluster gives them out from 0 again. With our state of producer 0, Kafka would take the first batch of
  its own producer 0 for a repetition and acknowledge it without storing it. So the only snapshot of producer state is the one
  at the end, with nothing but the producers whose transactions are still open; the empty segment keeps Kafka from ever
  reading the rest back from the log.
- *Leader epochs*, which start at 0 again: batches with higher ones (of a log that an older Kafka wrote) are copied with epoch
  0, which lies before the bytes that the CRC covers. Otherwise a consumer that has read epoch 7 takes the new cluster's epoch 2
  for a truncated log.

What an export to Apache Kafka has to do, found without changing anything: see `export_kafka`.

A partition is to be staged while Kafka's directory has an empty log; it is only to be renamed when Kafka's directory is gone,
or has lost its `partition.metadata`, and the staged one is there with the sizes of the source; it is done when the logs in
Kafka's directory have the names and sizes that an export gives them. Everything else that has records is not ours, and refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from ...protocol.errors import CorruptRecordError
from ...protocol.records.batch import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, BatchHeader
from ...protocol.types import NO_PARTITION_LEADER_EPOCH, TopicPartition
from ..storage.directory.catalogue import StoredTopics
from ..storage.directory.log_directory import DirectoryLock
from ..storage.directory.topics_file import TOPICS_FILE
from ..storage.disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    decode_meta_properties,
    decode_offsets,
    encode_checkpoint,
    encode_offsets,
    maybe_read,
    read_small,
)
from ..storage.disk.diskops import FileHandle, drive
from ..storage.disk.filesystem import CREATE, FileSystem, link_file, opened, pieces, replace_file
from ..storage.disk.paths import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    segment_file,
)
from ..storage.errors import LogDirectoryError
from ..storage.indexes.file_records import whole_file
from ..storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..storage.log.leader_epochs import decode_leader_epochs
from ..storage.producers.producer_cursor import ProducerEntry
from ..storage.producers.producer_snapshots import decode_snapshot, encode_snapshot

_EPOCH: Final = struct.Struct(">i")
_EPOCH_POSITION: Final = LOG_OVERHEAD
_LENGTH_POSITION: Final = 8


@attrs.define
class Exported:
    """Counters of the files that an export has linked and copied."""

    linked_files: int = 0
    linked_bytes: int = 0
    copied_files: int = 0
    copied_bytes: int = 0


@contextmanager
def locked(directory: str) -> Iterator[None]:
    """Keep servers, ours and Kafka's, out of a directory. Raises LogDirectoryError naming who is in it."""
    lock = DirectoryLock.acquire(directory)
    try:
        yield
    finally:
        lock.release()


def execute_export(fs: FileSystem, plan: ExportPlan, *, link: bool, on_bytes: Callable[[int], None]) -> Exported:
    """Do what the plan says. `on_bytes` hears of each piece that is in place. Raises OSError or CorruptRecordError; what was
    done until then is taken up by the next run."""
    exported = Exported()
    for export in plan.to_stage:
        _stage(fs, export, exported, link=link, on_bytes=on_bytes)
    _take_over_offsets(fs, plan)
    fs.sync_directory(plan.target)
    for export in plan.partitions:
        _empty_directory(fs, export.target)
        fs.rename(export.staged, export.target)
    fs.sync_directory(plan.target)
    return exported


def _stage(fs: FileSystem, export: PartitionExport, exported: Exported, *, link: bool, on_bytes: Callable[[int], None]) -> None:
    """Make the partition's directory as Kafka is to find it, under a name that it refuses."""
    fs.make_directory(export.staged)
    _empty_directory(fs, export.staged)
    for name, size in export.sizes.items():
        source, target = f"{export.source}/{name}", f"{export.staged}/{name}"
        if link and export.can_be_linked(name) and link_file(fs, source, target):
            exported.linked_files += 1
            exported.linked_bytes += size
            on_bytes(size)
            continue
        reset = export.has_foreign_epochs and name.endswith(LOG_SUFFIX)
        _copy(fs, source, target, reset_epochs=reset, on_bytes=on_bytes)
        exported.copied_files += 1
        exported.copied_bytes += size
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        _make_empty(fs, f"{export.staged}/{segment_file(export.end_offset, suffix)}")
    snapshot = f"{export.staged}/{segment_file(export.end_offset, SNAPSHOT_SUFFIX)}"
    replace_file(fs, snapshot, encode_snapshot(export.open_transactions))
    epochs = encode_checkpoint([f"{FIRST_EPOCH} {export.log_start_offset}"])
    replace_file(fs, f"{export.staged}/{LEADER_EPOCH_FILE}", epochs)
    metadata = read_small(fs, f"{export.target}/{PARTITION_METADATA_FILE}")
    replace_file(fs, f"{export.staged}/{PARTITION_METADATA_FILE}", metadata)  # syncs the names of all files


def _copy(fs: FileSystem, source: str, target: str, *, reset_epochs: bool, on_bytes: Callable[[int], None]) -> None:
    with opened(fs, source) as reading, opened(fs, target, CREATE) as writing:
        position = 0
        for data in pieces(fs, reading, 0, fs.size(reading)):
            fs.write(writing, [data], position)
            position += len(data)
            on_bytes(len(data))
        if reset_epochs:
            _reset_epochs(fs, writing, source, position)
        fs.sync(writing)


def _reset_epochs(fs: FileSystem, fd: int, path: str, size: int) -> None:
    """Give every batch the first leader epoch; the CRC does not cover it. Raises CorruptRecordError where no batch is."""
    position = 0
    while position + RECORD_BATCH_OVERHEAD <= size:
        (length,) = _EPOCH.unpack(fs.read(fd, _EPOCH.size, position + _LENGTH_POSITION))
        following = position + LOG_OVERHEAD + length
        if length < RECORD_BATCH_OVERHEAD - LOG_OVERHEAD or following > size:
            raise CorruptRecordError(
                f"{path}: the batch at position {position} should have {length} bytes, {size - position} follow in "
                f"the file. See `triolog dump {path}`"
            )
        fs.write(fd, [_EPOCH.pack(FIRST_EPOCH)], position + _EPOCH_POSITION)
        position = following


def _take_over_offsets(fs: FileSystem, plan: ExportPlan) -> None:
    """Put our partitions' offsets into each checkpoint, beside those that are there of others."""
    ends = {export.topic_partition: export.end_offset for export in plan.partitions}
    ours = {
        RECOVERY_POINT_FILE: ends,
        HIGH_WATERMARK_FILE: ends,
        LOG_START_FILE: {tp: offset for tp, offset in read_offsets(fs, plan.source, LOG_START_FILE).items() if tp in ends},
        CLEANER_OFFSET_FILE: {
            tp: offset for tp, offset in read_offsets(fs, plan.source, CLEANER_OFFSET_FILE).items() if tp in ends
        },
    }
    for name, offsets in ours.items():
        there = read_offsets(fs, plan.target, name)
        merged = {tp: offset for tp, offset in there.items() if tp not in ends} | offsets
        if merged != there:
            replace_file(fs, f"{plan.target}/{name}", encode_offsets(merged))


def _empty_directory(fs: FileSystem, path: str) -> None:
    """Delete the files in a directory, if it is there. A rename takes the place of an empty one."""
    if fs.is_directory(path):
        for name in fs.list_directory(path):
            fs.unlink(f"{path}/{name}")


def _make_empty(fs: FileSystem, path: str) -> None:
    """An empty file; one that is there stays as it is."""
    fs.close(fs.open(path, CREATE))


STAGED_SUFFIX: Final = ".export"
FIRST_EPOCH: Final = 0
MAX_NAMES: Final = 5
"""How many partitions a message names."""


@attrs.frozen(kw_only=True)
class PartitionExport:
    """The export of one partition: its source, its target, and the files to transfer."""

    topic_partition: TopicPartition
    source: str
    target: str
    sizes: dict[str, int]
    """Size of each file of a segment, by name."""
    log_start_offset: int
    end_offset: int
    """The log end offset, where the segment begins that Kafka appends to."""
    open_transactions: tuple[ProducerEntry, ...]
    has_foreign_epochs: bool

    @property
    def staged(self) -> str:
        return self.target + STAGED_SUFFIX

    @property
    def log_sizes(self) -> dict[str, int]:
        """Size of each `.log` that Kafka will find."""
        there = {name: size for name, size in self.sizes.items() if name.endswith(LOG_SUFFIX)}
        return {segment_file(self.end_offset, LOG_SUFFIX): 0} | there

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())

    def can_be_linked(self, name: str) -> bool:
        """Only a log that is never written again: we go on in the last one, when the source is served again."""
        last = max(each for each in self.sizes if each.endswith(LOG_SUFFIX))
        return name.endswith(LOG_SUFFIX) and name != last and not self.has_foreign_epochs


@attrs.frozen(kw_only=True)
class ExportPlan:
    """The remaining work of an export. Topics without a partition in the source stay as Kafka created them."""

    source: str
    target: str
    to_stage: tuple[PartitionExport, ...]
    to_rename: tuple[PartitionExport, ...]
    """Staged by a run that was cut off while it emptied Kafka's directory."""
    done: tuple[PartitionExport, ...]
    """There already, put by an earlier run."""

    @property
    def total_bytes(self) -> int:
        return sum(each.total_bytes for each in self.to_stage)

    @property
    def partitions(self) -> tuple[PartitionExport, ...]:
        return self.to_stage + self.to_rename


def check_source(fs: FileSystem, source: str) -> None:
    """Raises LogDirectoryError unless the directory was stopped in order."""
    if fs.file_size(f"{source}/{CLEAN_SHUTDOWN_FILE}") is None:
        raise LogDirectoryError(
            f"{source} has no clean shutdown ({CLEAN_SHUTDOWN_FILE} is missing). Run `triolog serve --data-dir "
            f"{source}`, stop it with SIGTERM, then export"
        )


def check_target(fs: FileSystem, target: str) -> None:
    """Raises LogDirectoryError unless the directory was formatted by Kafka."""
    fields = maybe_read(fs, f"{target}/{META_PROPERTIES_FILE}", decode_meta_properties) or {}
    if fields.get("version") != "1" or fs.file_size(f"{target}/{TOPICS_FILE}") is not None:
        raise LogDirectoryError(
            f"{target} is not a log directory that Kafka formatted ({META_PROPERTIES_FILE} of version 1, no "
            f"{TOPICS_FILE}). Run Kafka's `kafka-storage.sh format`, and use one of its log.dirs"
        )


def plan_export(fs: FileSystem, source: str, target: str) -> ExportPlan:
    """Look at every partition on both sides; nothing is changed.

    Raises LogDirectoryError when a topic was not created in Kafka, has another number of partitions there, or has records;
    CheckpointError, CorruptRecordError and CorruptSnapshotError when the source is damaged.
    """
    stored = StoredTopics.read(fs, source)
    starts = read_offsets(fs, source, LOG_START_FILE)
    _check_partition_counts(fs, stored, target)
    groups: dict[str, list[PartitionExport]] = {"missing": [], "stage": [], "rename": [], "done": [], "foreign": []}
    for topic_partition, path in stored.partitions.items():
        export = _partition_export(fs, target, topic_partition, path, starts.get(topic_partition, 0))
        groups[_state(fs, export)].append(export)
    if groups["missing"]:
        raise LogDirectoryError(
            f"{_names([each.target for each in groups['missing']])} does not exist. Create the topics in Kafka "
            "with the commands that `--print-commands` shows, stop Kafka, then export. With several log.dirs, "
            "export into the one that has the partition"
        )
    if groups["foreign"]:
        raise LogDirectoryError(
            f"{_names([each.target for each in groups['foreign']])} holds records from elsewhere, and the export "
            "overwrites none. Delete the topic in Kafka and create it again, or choose another Kafka"
        )
    return ExportPlan(
        source=source,
        target=target,
        to_stage=tuple(groups["stage"]),
        to_rename=tuple(groups["rename"]),
        done=tuple(groups["done"]),
    )


def read_offsets(fs: FileSystem, directory: str, name: str) -> dict[TopicPartition, int]:
    """A checkpoint of a log directory; no file, no offsets. Raises CheckpointError."""
    return maybe_read(fs, f"{directory}/{name}", decode_offsets) or {}


def _check_partition_counts(fs: FileSystem, stored: StoredTopics, target: str) -> None:
    """A topic with more partitions than here would find its keys elsewhere. Raises LogDirectoryError."""
    beyond = [f"{target}/{TopicPartition(topic.name, topic.partitions)}" for topic in stored.topics]
    if surplus := [path for path in beyond if fs.is_directory(path)]:
        raise LogDirectoryError(
            f"{_names(surplus)} should not exist: the topic has fewer partitions here. Delete it in Kafka and "
            "create it with the command that `--print-commands` shows"
        )


def _partition_export(
    fs: FileSystem, target: str, topic_partition: TopicPartition, path: str, checkpointed_start: int
) -> PartitionExport:
    sizes = _segment_files(fs, path)
    logs = sorted(name for name in sizes if name.endswith(LOG_SUFFIX))
    if not logs:
        raise LogDirectoryError(f"{path} has no {LOG_SUFFIX} file: {topic_partition} cannot be exported. Move it away")
    log_start_offset = max(checkpointed_start, base_offset_of(logs[0]) or 0)
    next_offset, epoch = _read_end(fs, path, logs[-1], sizes[logs[-1]])
    for name in reversed(logs[:-1]):
        if epoch < FIRST_EPOCH and sizes[name]:
            _, epoch = _read_end(fs, path, name, sizes[name])
    end_offset = max(next_offset, log_start_offset)
    end_offset, producers = _producers_at_end(fs, path, end_offset, is_empty=end_offset == log_start_offset)
    return PartitionExport(
        topic_partition=topic_partition,
        source=path,
        target=f"{target}/{topic_partition}",
        sizes=sizes,
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        open_transactions=tuple(entry for entry in producers if entry.current_txn_first_offset is not None),
        has_foreign_epochs=max(epoch, _latest_epoch(fs, path)) > FIRST_EPOCH,
    )


def _read_end(fs: FileSystem, path: str, name: str, size: int) -> tuple[int, int]:
    """(offset behind the last batch of a segment, largest leader epoch of its batches); without one its base offset and -1.

    Raises CorruptRecordError."""
    next_offset, epoch = base_offset_of(name) or 0, NO_PARTITION_LEADER_EPOCH

    def see(header: BatchHeader, _: int) -> None:
        nonlocal next_offset, epoch
        next_offset, epoch = header.next_offset, max(epoch, header.partition_leader_epoch)

    stop = drive(fs, whole_file(FileHandle(f"{path}/{name}"), size).visit_headers(see))
    if stop != size:
        raise CorruptRecordError(
            f"{path}/{name}: {size - stop} bytes after position {stop} are not a whole batch. Start and stop "
            "`triolog serve` on the directory, which removes them, then export"
        )
    return next_offset, epoch


def _producers_at_end(fs: FileSystem, path: str, end_offset: int, *, is_empty: bool) -> tuple[int, list[ProducerEntry]]:
    """(log end offset, producers there) of the newest snapshot: a clean stop writes one at the end of every log that has
    records. The end can lie behind the last batch, where the log was cut back in the middle of one."""
    offsets = [base_offset_of(name) for name in fs.list_directory(path) if name.endswith(SNAPSHOT_SUFFIX)]
    newest = max((offset for offset in offsets if offset is not None), default=-1)
    if newest < end_offset:
        if is_empty:
            return end_offset, []
        raise LogDirectoryError(
            f"{path} has no {SNAPSHOT_SUFFIX} file at its end (offset {end_offset}, the newest is at {newest}), "
            "so its open transactions are unknown. Start and stop `triolog serve` on the directory, then export"
        )
    file = f"{path}/{segment_file(newest, SNAPSHOT_SUFFIX)}"
    return newest, decode_snapshot(file, read_small(fs, file))


def _segment_files(fs: FileSystem, path: str) -> dict[str, int]:
    """Size by name of what belongs to segments. Files on their way out, side files of damage and our own are left behind."""
    return {
        name: fs.file_size(f"{path}/{name}") or 0
        for name in fs.list_directory(path)
        if base_offset_of(name) is not None and name[20:] in SEGMENT_SUFFIXES
    }


def _latest_epoch(fs: FileSystem, path: str) -> int:
    epochs = maybe_read(fs, f"{path}/{LEADER_EPOCH_FILE}", decode_leader_epochs)
    return FIRST_EPOCH if epochs is None else epochs.latest_epoch or FIRST_EPOCH


def _state(fs: FileSystem, export: PartitionExport) -> str:
    """Return the progress of an earlier run with this partition."""
    if fs.file_size(f"{export.target}/{PARTITION_METADATA_FILE}") is None:
        if fs.file_size(f"{export.staged}/{PARTITION_METADATA_FILE}") is None:
            return "missing"
        return "rename" if _log_sizes(fs, export.staged) == export.log_sizes else "foreign"
    there = _log_sizes(fs, export.target)
    if there == export.log_sizes:
        return "done"
    return "stage" if not any(there.values()) else "foreign"


def _log_sizes(fs: FileSystem, path: str) -> dict[str, int]:
    return {name: size for name, size in _segment_files(fs, path).items() if name.endswith(LOG_SUFFIX)}


def _names(paths: list[str]) -> str:
    more = len(paths) - MAX_NAMES
    return ", ".join(paths[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
