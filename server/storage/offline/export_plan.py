"""What an export to Apache Kafka has to do, found without changing anything: see `export_kafka`.

A partition is to be staged while Kafka's directory has an empty log; it is only to be renamed when Kafka's directory is gone,
or has lost its `partition.metadata`, and the staged one is there with the sizes of the source; it is done when the logs in
Kafka's directory have the names and sizes that an export gives them. Everything else that has records is not ours, and refused.
"""

from __future__ import annotations

from typing import Final

import attrs

from ....protocol.errors import CorruptRecordError
from ....protocol.records.batch import BatchHeader
from ....protocol.types import NO_PARTITION_LEADER_EPOCH, TopicPartition
from ..directory.stored_topics import StoredTopics
from ..directory.topics_file import TOPICS_FILE
from ..disk.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_FILE,
    MAX_CHECKPOINT_BYTES,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    decode_meta_properties,
    decode_offsets,
)
from ..disk.diskops import FileHandle, drive
from ..disk.filesystem import FileSystem, read_file
from ..disk.paths import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, base_offset_of, segment_file
from ..errors import LogDirectoryError
from ..indexes.file_records import whole_file
from ..log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..log.leader_epochs import decode_leader_epochs
from ..producers.producer_cursor import ProducerEntry
from ..producers.producer_snapshots import MAX_SNAPSHOT_BYTES, decode_snapshot

STAGED_SUFFIX: Final = ".export"
FIRST_EPOCH: Final = 0
MAX_NAMES: Final = 5
"""How many partitions a message names."""


@attrs.frozen(kw_only=True)
class PartitionExport:
    """One partition: where it is, where it goes, what of it goes there."""

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
    """What is still to be done. Topics without a partition in the source stay as Kafka made them."""

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
            f"{source} was not stopped in order ({CLEAN_SHUTDOWN_FILE} is missing): "
            f"run `triolog serve --data-dir {source}`, stop it with SIGTERM, then export"
        )


def check_target(fs: FileSystem, target: str) -> None:
    """Raises LogDirectoryError unless the directory was formatted by Kafka."""
    path = f"{target}/{META_PROPERTIES_FILE}"
    try:
        fields = decode_meta_properties(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        fields = {}
    if fields.get("version") != "1" or fs.file_size(f"{target}/{TOPICS_FILE}") is not None:
        raise LogDirectoryError(
            f"{target} is no log directory that Kafka formatted ({META_PROPERTIES_FILE} of version 1, no {TOPICS_FILE}): "
            "run Kafka's `kafka-storage.sh format`, and give one of its log.dirs"
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
            f"{_names([each.target for each in groups['missing']])} is not there: create the topics in Kafka with the commands "
            "that `--print-commands` shows, stop Kafka, then export; of several log.dirs, into the one that has the partition"
        )
    if groups["foreign"]:
        raise LogDirectoryError(
            f"{_names([each.target for each in groups['foreign']])} holds records that are not ours, and none is overwritten: "
            "delete the topic in Kafka and create it again, or choose another Kafka"
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
    path = f"{directory}/{name}"
    try:
        return decode_offsets(path, read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return {}


def _check_partition_counts(fs: FileSystem, stored: StoredTopics, target: str) -> None:
    """A topic with more partitions than here would find its keys elsewhere. Raises LogDirectoryError."""
    beyond = [f"{target}/{TopicPartition(topic.name, topic.partitions)}" for topic in stored.topics]
    if surplus := [path for path in beyond if fs.is_directory(path)]:
        raise LogDirectoryError(
            f"{_names(surplus)} should not be there: the topic has fewer partitions here; "
            "delete it in Kafka and create it with the command that `--print-commands` shows"
        )


def _partition_export(
    fs: FileSystem, target: str, topic_partition: TopicPartition, path: str, checkpointed_start: int
) -> PartitionExport:
    sizes = _segment_files(fs, path)
    logs = sorted(name for name in sizes if name.endswith(LOG_SUFFIX))
    if not logs:
        raise LogDirectoryError(f"{path} has no {LOG_SUFFIX} file: {topic_partition} cannot be exported; move it away")
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
            f"{path}/{name}: {size - stop} bytes behind position {stop} are no whole batch; "
            "start and stop `triolog serve` on the directory, which takes them away, then export"
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
            f"{path} has no {SNAPSHOT_SUFFIX} file at its end (offset {end_offset}; the newest is at {newest}), so which "
            "transactions are open is not known: start and stop `triolog serve` on the directory, then export"
        )
    file = f"{path}/{segment_file(newest, SNAPSHOT_SUFFIX)}"
    return newest, decode_snapshot(file, read_file(fs, file, max_bytes=MAX_SNAPSHOT_BYTES))


def _segment_files(fs: FileSystem, path: str) -> dict[str, int]:
    """Size by name of what belongs to segments. Files on their way out, side files of damage and our own are left behind."""
    return {
        name: fs.file_size(f"{path}/{name}") or 0
        for name in fs.list_directory(path)
        if base_offset_of(name) is not None and name[20:] in SEGMENT_SUFFIXES
    }


def _latest_epoch(fs: FileSystem, path: str) -> int:
    file = f"{path}/{LEADER_EPOCH_FILE}"
    try:
        epochs = decode_leader_epochs(file, read_file(fs, file, max_bytes=MAX_CHECKPOINT_BYTES))
    except FileNotFoundError:
        return FIRST_EPOCH
    return epochs.latest_epoch or FIRST_EPOCH


def _state(fs: FileSystem, export: PartitionExport) -> str:
    """How far an earlier run came with this partition."""
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
