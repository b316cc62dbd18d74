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
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from ....protocol.errors import CorruptRecordError
from ....protocol.limits import MIB
from ....protocol.records.batch import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from ..cleaner.checkpoint import CLEANER_OFFSET_FILE
from ..directory.directory_lock import DirectoryLock
from ..disk.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    MAX_CHECKPOINT_BYTES,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    encode_checkpoint,
    encode_offsets,
)
from ..disk.filesystem import CREATE, READ, FileSystem, link_file, read_file, replace_file
from ..disk.paths import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, segment_file
from ..log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..producers.producer_snapshots import encode_snapshot
from .export_plan import FIRST_EPOCH, ExportPlan, PartitionExport, read_offsets

COPY_BYTES: Final = 4 * MIB

_EPOCH: Final = struct.Struct(">i")
_EPOCH_POSITION: Final = LOG_OVERHEAD
_LENGTH_POSITION: Final = 8


@attrs.define
class Exported:
    """What was done."""

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


# ---- staging ---------------------------------------------------------------------------------------------------------------


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
    metadata = read_file(fs, f"{export.target}/{PARTITION_METADATA_FILE}", max_bytes=MAX_CHECKPOINT_BYTES)
    replace_file(fs, f"{export.staged}/{PARTITION_METADATA_FILE}", metadata)  # syncs the names of all files


def _copy(fs: FileSystem, source: str, target: str, *, reset_epochs: bool, on_bytes: Callable[[int], None]) -> None:
    reading = fs.open(source, READ)
    try:
        writing = fs.open(target, CREATE)
        try:
            position = 0
            while data := fs.read(reading, COPY_BYTES, position):
                fs.write(writing, [data], position)
                position += len(data)
                on_bytes(len(data))
            if reset_epochs:
                _reset_epochs(fs, writing, source, position)
            fs.sync(writing)
        finally:
            fs.close(writing)
    finally:
        fs.close(reading)


def _reset_epochs(fs: FileSystem, fd: int, path: str, size: int) -> None:
    """Give every batch the first leader epoch; the CRC does not cover it. Raises CorruptRecordError where no batch is."""
    position = 0
    while position + RECORD_BATCH_OVERHEAD <= size:
        (length,) = _EPOCH.unpack(fs.read(fd, _EPOCH.size, position + _LENGTH_POSITION))
        following = position + LOG_OVERHEAD + length
        if length < RECORD_BATCH_OVERHEAD - LOG_OVERHEAD or following > size:
            raise CorruptRecordError(
                f"{path}: the batch at position {position} says it has {length} bytes, {size - position} follow in the file; "
                f"see `triolog dump {path}`"
            )
        fs.write(fd, [_EPOCH.pack(FIRST_EPOCH)], position + _EPOCH_POSITION)
        position = following


# ---- taking the place of what is there -------------------------------------------------------------------------------------


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
