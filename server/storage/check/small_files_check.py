"""The text files of a partition and of a log directory: can they be read, are they in the form servers write, can they be true.

What cannot be seen: a change of a file that nothing else contradicts, for example of the topic id of a partition that has no
other partition and no entry in `topics.json`, or of a log start offset within the log.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from ....protocol.types import TopicPartition
from ..directory.inventory import PartitionFiles
from ..disk.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    PARTITION_METADATA_FILE,
    decode_checkpoint,
    decode_offsets,
    decode_partition_metadata,
    encode_checkpoint,
    encode_partition_metadata,
    encode_uuid,
)
from ..disk.filesystem import FileSystem, read_file
from ..errors import CheckpointError
from ..log.derived_files import FILE_NAME as DERIVED_FILE
from ..log.derived_files import decode_facts, encode_facts
from ..log.gaps import FILE_NAME as QUARANTINE_FILE
from ..log.gaps import NO_FILE, OffsetGap, decode_gaps, encode_gaps
from ..log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..log.leader_epochs import EpochEntry, LeaderEpochs
from .findings import Reporter

CHECKPOINT: Final = "checkpoint"


def check_leader_epochs(fs: FileSystem, files: PartitionFiles, reporter: Reporter) -> LeaderEpochs:
    """The epochs of a partition, none when the file says none. Raises OSError."""
    path = f"{files.path}/{LEADER_EPOCH_FILE}"
    try:
        data = read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES)
        entries = [EpochEntry(epoch, start) for epoch, start in decode_checkpoint(path, data, fields=2)]
        for before, after in pairwise(entries):
            if after.epoch <= before.epoch or after.start_offset < before.start_offset:
                raise CheckpointError(f"epoch {after.epoch} from {after.start_offset} on cannot follow {before.epoch}")
        epochs = LeaderEpochs(entries)
        expected = encode_checkpoint(f"{epoch} {start}" for epoch, start in entries)
    except FileNotFoundError:
        if files.log_bytes:
            reporter.damage(CHECKPOINT, path, "the file is missing")
        return LeaderEpochs()
    except (CheckpointError, ValueError) as exc:
        reporter.damage(CHECKPOINT, path, str(exc))
        return LeaderEpochs()
    _check_form(path, data, expected, reporter)
    return epochs


def check_epoch_ends(files: PartitionFiles, epochs: LeaderEpochs, log_end_offset: int, reporter: Reporter) -> None:
    """No epoch can start behind the log's end."""
    if epochs.entries and epochs.entries[-1].start_offset > log_end_offset:
        epoch, start = epochs.entries[-1]
        path = f"{files.path}/{LEADER_EPOCH_FILE}"
        reporter.damage(CHECKPOINT, path, f"epoch {epoch} starts at {start}, the log ends at {log_end_offset}")


def check_gaps(fs: FileSystem, files: PartitionFiles, reporter: Reporter) -> tuple[OffsetGap, ...]:
    """The documented gaps; each one, and every file that was set aside, is a remark. Raises OSError."""
    path = f"{files.path}/{QUARANTINE_FILE}"
    gaps: tuple[OffsetGap, ...] = ()
    try:
        data = read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES)
        gaps = decode_gaps(path, data)
        _check_form(path, data, encode_gaps(gaps), reporter)
    except FileNotFoundError:
        pass
    except (CheckpointError, ValueError) as exc:
        reporter.damage(CHECKPOINT, path, str(exc))
    for gap in gaps:
        text = f"offsets {gap.start_offset} to {gap.end_offset - 1} were damaged and taken out"
        reporter.remark("quarantine", path, text, first_offset=gap.start_offset, next_offset=gap.end_offset)
        if gap.file != NO_FILE and gap.file not in files.set_aside:
            reporter.damage(CHECKPOINT, path, f"names {gap.file} as the bytes of a gap, and there is no such file")
    for name in files.set_aside:
        reporter.remark("quarantine", f"{files.path}/{name}", "bytes that were set aside")
    return gaps


def check_derived(fs: FileSystem, files: PartitionFiles, log_start_offset: int, reporter: Reporter) -> None:
    """What is known of derived files; the transaction indexes are held against the log itself. Raises OSError."""
    path = f"{files.path}/{DERIVED_FILE}"
    try:
        data = read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES)
        facts = decode_facts(path, data)
    except FileNotFoundError:
        return
    except (CheckpointError, ValueError) as exc:
        reporter.damage(CHECKPOINT, path, str(exc))
        return
    _check_form(path, data, encode_facts(facts), reporter)
    if files.segments and facts.log_start_offset > max(log_start_offset, files.segments[0].base_offset):
        text = f"says that records begin at offset {facts.log_start_offset}, the checkpoint says {log_start_offset}"
        reporter.remark(CHECKPOINT, path, f"{text}; a server goes by the larger one, if the log reaches it")


def check_topic_id(fs: FileSystem, files: PartitionFiles, expected: uuid.UUID | None, reporter: Reporter) -> uuid.UUID | None:
    """The topic id of a partition, None when it cannot be told. Raises OSError."""
    path = f"{files.path}/{PARTITION_METADATA_FILE}"
    try:
        data = read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES)
        found = decode_partition_metadata(path, data)
    except FileNotFoundError:
        reporter.remark("topic id", path, "the file is missing; a server takes the topic's id from elsewhere, or makes one")
        return None
    except (CheckpointError, ValueError) as exc:
        reporter.damage("topic id", path, str(exc))
        return None
    _check_form(path, data, encode_partition_metadata(found), reporter)
    if expected is not None and found != expected:
        text = f"has topic id {encode_uuid(found)}, other files of the topic say {encode_uuid(expected)}"
        reporter.damage("topic id", path, text)
    return found


def read_offsets(fs: FileSystem, path: str, reporter: Reporter) -> Mapping[TopicPartition, int]:
    """An offset checkpoint of a log directory; none when there is no file. Raises OSError."""
    try:
        data = read_file(fs, path, max_bytes=MAX_CHECKPOINT_BYTES)
        offsets = decode_offsets(path, data)
    except FileNotFoundError:
        return {}
    except (CheckpointError, ValueError) as exc:
        reporter.damage(CHECKPOINT, path, str(exc))
        return {}
    if data:
        # In the order of the file, which is not sorted in Kafka's.
        written = encode_checkpoint(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        _check_form(path, data, written, reporter)
    return offsets


def _check_form(path: str, data: bytes, expected: bytes, reporter: Reporter) -> None:
    """Every server writes these files in one form; another one was changed by somebody else."""
    if data != expected:
        reporter.damage(CHECKPOINT, path, "can be read, but is not written as servers write it: it was changed")
