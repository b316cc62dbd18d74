"""The text files of a partition and of a log directory: can they be read, are they in the form servers write, can they be true.

What cannot be seen: a change of a file that nothing else contradicts, for example of the topic id of a partition that has no
other partition and no entry in `topics.json`, or of a log start offset within the log.

The `.snapshot` files of a partition held against the log: each must say what the batches below its offset say.

A snapshot forgets producers that were silent for long, so it may lack some; what it has must be right: epoch, newest batch,
open transaction. Where that lies below the log start a snapshot may say less: a recovery passes over those batches. The same in
the `.batches` beside it, which Kafka does not write, the batches before. Where the log does not tell
the whole story (it was compacted, starts in the middle without a snapshot, or is damaged), only the file itself is checked,
which carries a CRC. So is one that lies below the first segment: a start wrote it in the middle of a segment that retention has
taken, and the next start deletes it, as in Kafka. It reads a newer one, so an unreadable one there is a remark.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from ...protocol.types import TopicPartition
from ..storage.directory.inventory import PartitionFiles
from ..storage.disk.checkpoints import (
    PARTITION_METADATA_FILE,
    decode_checkpoint,
    decode_offsets,
    decode_partition_metadata,
    encode_checkpoint,
    encode_partition_metadata,
    encode_uuid,
    read_small,
)
from ..storage.disk.filesystem import FileSystem
from ..storage.errors import CheckpointError, CorruptSnapshotError
from ..storage.log.derived_files import FILE_NAME as DERIVED_FILE
from ..storage.log.derived_files import decode_facts, encode_facts
from ..storage.log.gaps import FILE_NAME as QUARANTINE_FILE
from ..storage.log.gaps import NO_FILE, OffsetGap, decode_gaps, encode_gaps
from ..storage.log.leader_epochs import FILE_NAME as LEADER_EPOCH_FILE
from ..storage.log.leader_epochs import EpochEntry, LeaderEpochs
from ..storage.producers.producer_cursor import BatchMetadata, ProducerEntry
from ..storage.producers.producer_snapshots import batches_path, crc_of, decode_snapshot, snapshot_path, with_earlier
from ..storage.producers.producer_state import ProducerState
from .findings import FaultTally, Observer

T = TypeVar("T")

CHECKPOINT: Final = "checkpoint"


def check_leader_epochs(fs: FileSystem, files: PartitionFiles, reporter: Observer) -> LeaderEpochs:
    """The epochs of a partition, none when the file says none. Raises OSError."""
    path = f"{files.path}/{LEADER_EPOCH_FILE}"

    def encode(entries: list[EpochEntry]) -> bytes:
        return encode_checkpoint(f"{epoch} {start}" for epoch, start in entries)

    entries = _read(fs, path, _epoch_entries, encode, reporter)
    if files.log_bytes and LEADER_EPOCH_FILE not in files.small:
        reporter.damage(CHECKPOINT, path, "the file is missing")
    return LeaderEpochs(entries)


def _epoch_entries(path: str, data: bytes) -> list[EpochEntry]:
    entries = [EpochEntry(epoch, start) for epoch, start in decode_checkpoint(path, data, fields=2)]
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise CheckpointError(f"epoch {after.epoch} from {after.start_offset} on cannot follow {before.epoch}")
    return entries


def check_epoch_ends(files: PartitionFiles, epochs: LeaderEpochs, log_end_offset: int, reporter: Observer) -> None:
    """No epoch can start behind the log's end."""
    if epochs.entries and epochs.entries[-1].start_offset > log_end_offset:
        epoch, start = epochs.entries[-1]
        path = f"{files.path}/{LEADER_EPOCH_FILE}"
        reporter.damage(CHECKPOINT, path, f"epoch {epoch} starts at {start}, the log ends at {log_end_offset}")


def check_gaps(fs: FileSystem, files: PartitionFiles, reporter: Observer) -> tuple[OffsetGap, ...]:
    """The documented gaps; each one, and every file that was set aside, is a remark. Raises OSError."""
    path = f"{files.path}/{QUARANTINE_FILE}"
    gaps = _read(fs, path, decode_gaps, encode_gaps, reporter) or ()
    for gap in gaps:
        text = f"offsets {gap.start_offset} to {gap.end_offset - 1} were damaged and removed"
        reporter.remark("quarantine", path, text, first_offset=gap.start_offset, next_offset=gap.end_offset)
        if gap.file != NO_FILE and gap.file not in files.set_aside:
            reporter.damage(CHECKPOINT, path, f"names {gap.file} as the bytes of a gap, but that file does not exist")
    for name in files.set_aside:
        reporter.remark("quarantine", f"{files.path}/{name}", "bytes that were set aside")
    return gaps


def check_derived(fs: FileSystem, files: PartitionFiles, log_start_offset: int, reporter: Observer) -> None:
    """Check the derived files, except the transaction indexes: they are checked against the log itself. Raises OSError."""
    path = f"{files.path}/{DERIVED_FILE}"
    facts = _read(fs, path, decode_facts, encode_facts, reporter)
    if facts is not None and files.segments and facts.log_start_offset > max(log_start_offset, files.segments[0].base_offset):
        text = f"records the log start offset {facts.log_start_offset}, the checkpoint records {log_start_offset}"
        reporter.remark(CHECKPOINT, path, f"{text}. A server uses the larger one, if the log reaches it")


def check_topic_id(fs: FileSystem, files: PartitionFiles, expected: uuid.UUID | None, reporter: Observer) -> uuid.UUID | None:
    """The topic id of a partition, None when it cannot be told. Raises OSError."""
    path = f"{files.path}/{PARTITION_METADATA_FILE}"
    found = _read(fs, path, decode_partition_metadata, encode_partition_metadata, reporter, check="topic id")
    if PARTITION_METADATA_FILE not in files.small:
        reporter.remark("topic id", path, "the file is missing. A server takes the topic's id from elsewhere, or creates one")
    if expected is not None and found is not None and found != expected:
        text = f"has topic id {encode_uuid(found)}, other files of the topic have {encode_uuid(expected)}"
        reporter.damage("topic id", path, text)
    return found


def read_offsets(fs: FileSystem, path: str, reporter: Observer) -> Mapping[TopicPartition, int]:
    """An offset checkpoint of a log directory; none when there is no file. Raises OSError."""

    def encode(offsets: Mapping[TopicPartition, int]) -> bytes:  # in the order of the file, which is not sorted in Kafka's
        return encode_checkpoint(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())

    return {} if fs.file_size(path) == 0 else _read(fs, path, decode_offsets, encode, reporter) or {}


def _read(
    fs: FileSystem,
    path: str,
    decode: Callable[[str, bytes], T],
    encode: Callable[[T], bytes],
    reporter: Observer,
    *,
    check: str = CHECKPOINT,
) -> T | None:
    """Return the content of a file; None for none, and for damage, which is reported. Another form than the one in which every
    server writes these files is reported, too: another program has changed it."""
    try:
        data = read_small(fs, path)
        found = decode(path, data)
    except FileNotFoundError:
        return None
    except (CheckpointError, ValueError) as exc:
        reporter.damage(check, path, str(exc))
        return None
    if data != encode(found):
        reporter.damage(CHECKPOINT, path, "can be read, but is not written as servers write it: it was changed")
    return found


CHECK: Final = "snapshot"
_NONE_DUE: Final = 2**63


class SnapshotCheck:
    """Snapshots that the check of the log has not come to. Owner: the partition's check."""

    def __init__(self, fs: FileSystem, directory: str, offsets: Sequence[int], reporter: Observer) -> None:
        self._fs = fs
        self._directory = directory
        self._reporter = reporter
        self._pending = sorted(offsets, reverse=True)
        self.due = self._pending[-1] if self._pending else _NONE_DUE
        """The next snapshot's offset: `compare` is due before a batch at or behind it is taken in."""

    def starting_state(self, first_offset: int) -> tuple[ProducerState, bool]:
        """The state at the first segment's base offset, and whether it is known: from its snapshot, or that of an empty log."""
        is_newest_below = bool(self._pending) and self._pending[0] < first_offset
        while self._pending and self._pending[-1] < first_offset:
            self._read(self._pending.pop(), is_read=is_newest_below)
        self.due = self._pending[-1] if self._pending else _NONE_DUE
        if first_offset not in self._pending:
            return ProducerState(first_offset), first_offset == 0
        entries = self._read(first_offset, report=False)
        if entries is None:
            return ProducerState(first_offset), False
        return ProducerState(first_offset, {entry.producer_id: entry for entry in entries}), True

    def compare(
        self, next_offset: int, producers: ProducerState, needed: ProducerState, log_start_offset: int, *, is_complete: bool
    ) -> None:
        """Look at every snapshot up to `next_offset`, whose batches `producers` reflects, and `needed` those from the log start
        on."""
        while self._pending and self._pending[-1] <= next_offset:
            offset = self._pending.pop()
            entries = self._read(offset)
            if entries is not None and is_complete:
                difference = _difference(entries, producers, needed, log_start_offset)
                self._reporter.damage(CHECK, snapshot_path(self._directory, offset), difference)
                strange = _strange_batches(entries, producers)
                self._reporter.damage(CHECK, batches_path(self._directory, offset), strange)
        self.due = self._pending[-1] if self._pending else _NONE_DUE

    def finish(self, log_end_offset: int) -> None:
        """The log has ended: what is left lies behind it."""
        for offset in reversed(self._pending):
            path = snapshot_path(self._directory, offset)
            self._reporter.damage(CHECK, path, f"is of an offset that the log does not have: it ends at {log_end_offset}")

    def _read(self, offset: int, *, report: bool = True, is_read: bool = True) -> list[ProducerEntry] | None:
        """Return the entries; None for damage, which is reported. `is_read`: a start may read the file."""
        path = snapshot_path(self._directory, offset)
        try:
            data = read_small(self._fs, path)
            entries = decode_snapshot(path, data)
        except (CorruptSnapshotError, ValueError) as exc:
            if report:
                self._report(path, exc, is_read=is_read)
            return None
        if not any(entry.batches for entry in entries):
            return entries  # nobody looks beside it then
        path = batches_path(self._directory, offset)
        try:
            earlier = read_small(self._fs, path)
            return with_earlier(path, earlier, entries, crc_of(data))
        except FileNotFoundError:
            pass
        except (CorruptSnapshotError, ValueError) as exc:
            if report:
                self._report(path, exc, is_read=is_read)
        return entries

    def _report(self, path: str, error: Exception, *, is_read: bool) -> None:
        if is_read:
            self._reporter.damage(CHECK, path, str(error))
        else:
            self._reporter.remark(CHECK, path, f"{error}. It is below the first segment: the next start removes it")


def _difference(
    entries: Sequence[ProducerEntry], producers: ProducerState, needed: ProducerState, log_start_offset: int
) -> str | None:
    places = FaultTally()
    for entry in entries:
        known = producers.entries.get(entry.producer_id)
        if known is None:
            places.add(f"producer {entry.producer_id} is not in the log")
        elif _facts(known) != _facts(entry) and not _says_less(entry, known, log_start_offset):
            places.add(f"producer {entry.producer_id}: {_facts(entry)}, the log has {_facts(known)}")
    for producer_id, first_offset in needed.ongoing.items():
        if producer_id not in {entry.producer_id for entry in entries}:
            places.add(f"producer {producer_id} is missing, its transaction from offset {first_offset} on is open")
    return places.text


def _says_less(entry: ProducerEntry, known: ProducerEntry, log_start_offset: int) -> bool:
    """Return whether an entry agrees with the log about a producer, where it may lack some or all facts from below the log
    start."""
    newest, first = known.batches[-1] if known.batches else None, known.current_txn_first_offset
    if not entry.batches and newest is not None and newest.last_offset < log_start_offset:
        known = known._replace(batches=())
    found = entry.current_txn_first_offset
    if first is not None and first < log_start_offset and (found is None or found > first):
        known = known._replace(current_txn_first_offset=found)
    if log_start_offset and entry.coordinator_epoch < known.coordinator_epoch:
        known = known._replace(coordinator_epoch=entry.coordinator_epoch)  # its last marker is below the log start, too
    return _facts(known) == _facts(entry)


def _strange_batches(entries: Sequence[ProducerEntry], producers: ProducerState) -> str | None:
    """Batches before the newest where the log has others. One that the log does not have may have been compacted."""
    places = FaultTally()
    for entry in entries:
        known = producers.entries.get(entry.producer_id)
        for batch in entry.batches[:-1]:
            if known is not None and any(_excludes(other, batch) for other in known.batches):
                place = f"sequence {batch.last_sequence} at offset {batch.last_offset}"
                places.add(f"producer {entry.producer_id}: {place} does not match the log")
    return places.text


def _excludes(stored: BatchMetadata, batch: BatchMetadata) -> bool:
    """Return whether the two batches exclude each other. Times do not count: over a restart the newest batch takes the
    timestamp of its producer."""
    overlaps = stored.first_offset <= batch.last_offset and batch.first_offset <= stored.last_offset
    is_another = stored._replace(timestamp=batch.timestamp) != batch
    return is_another and (overlaps or stored.last_sequence == batch.last_sequence)


def _facts(entry: ProducerEntry) -> str:
    transaction = "no transaction" if entry.current_txn_first_offset is None else f"open from {entry.current_txn_first_offset}"
    newest = "no batch"
    if entry.batches:
        batch = entry.batches[-1]
        newest = f"sequence {batch.last_sequence} at offset {batch.last_offset}, {batch.offset_delta + 1} records"
    coordinator = f"coordinator epoch {entry.coordinator_epoch}"
    return f"epoch {entry.epoch}, {newest}, timestamp {entry.last_timestamp}, {coordinator}, {transaction}"
