"""The `.snapshot` files of a partition held against the log: each must say what the batches below its offset say.

A snapshot forgets producers that were silent for long, so it may lack some; what it has must be right: epoch, newest batch,
open transaction. Where that lies below the log start a snapshot may say less: a recovery passes over those batches. The same in
the `.batches` beside it, which Kafka does not write, the batches before. Where the log does not tell
the whole story (it was compacted, starts in the middle without a snapshot, or is damaged), only the file itself is checked,
which carries a CRC. So is one that lies below the first segment: a start wrote it in the middle of a segment that retention has
taken, and the next start deletes it, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..disk.filesystem import FileSystem, read_file
from ..errors import CorruptSnapshotError
from ..producers.producer_cursor import BatchMetadata, ProducerEntry
from ..producers.producer_snapshots import (
    MAX_BATCHES_BYTES,
    MAX_SNAPSHOT_BYTES,
    batches_path,
    crc_of,
    decode_snapshot,
    snapshot_path,
    with_earlier,
)
from ..producers.producer_state import ProducerState
from .findings import FaultTally, Reporter

CHECK: Final = "snapshot"
_NONE_DUE: Final = 2**63


class SnapshotCheck:
    """Snapshots that the check of the log has not come to. Owner: the partition's check."""

    def __init__(self, fs: FileSystem, directory: str, offsets: Sequence[int], reporter: Reporter) -> None:
        self._fs = fs
        self._directory = directory
        self._reporter = reporter
        self._pending = sorted(offsets, reverse=True)
        self.due = self._pending[-1] if self._pending else _NONE_DUE
        """The next snapshot's offset: `compare` is due before a batch at or behind it is taken in."""

    def starting_state(self, first_offset: int) -> tuple[ProducerState, bool]:
        """The state at the first segment's base offset, and whether it is known: from its snapshot, or that of an empty log."""
        while self._pending and self._pending[-1] < first_offset:
            self._read(self._pending.pop())
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

    def _read(self, offset: int, *, report: bool = True) -> list[ProducerEntry] | None:
        path = snapshot_path(self._directory, offset)
        try:
            data = read_file(self._fs, path, max_bytes=MAX_SNAPSHOT_BYTES)
            entries = decode_snapshot(path, data)
        except (CorruptSnapshotError, ValueError) as exc:
            if report:
                self._reporter.damage(CHECK, path, str(exc))
            return None
        if not any(entry.batches for entry in entries):
            return entries  # nobody looks beside it then
        path = batches_path(self._directory, offset)
        try:
            earlier = read_file(self._fs, path, max_bytes=MAX_BATCHES_BYTES)
            return with_earlier(path, earlier, entries, crc_of(data))
        except FileNotFoundError:
            pass
        except (CorruptSnapshotError, ValueError) as exc:
            if report:
                self._reporter.damage(CHECK, path, str(exc))
        return entries


def _difference(
    entries: Sequence[ProducerEntry], producers: ProducerState, needed: ProducerState, log_start_offset: int
) -> str | None:
    places = FaultTally()
    for entry in entries:
        known = producers.entries.get(entry.producer_id)
        if known is None:
            places.add(f"producer {entry.producer_id} is not in the log")
        elif _facts(known) != _facts(entry) and not _says_less(entry, known, log_start_offset):
            places.add(f"producer {entry.producer_id}: {_facts(entry)}, the log says {_facts(known)}")
    for producer_id, first_offset in needed.ongoing.items():
        if producer_id not in {entry.producer_id for entry in entries}:
            places.add(f"producer {producer_id} is missing, its transaction from offset {first_offset} on is open")
    return places.text


def _says_less(entry: ProducerEntry, known: ProducerEntry, log_start_offset: int) -> bool:
    """Whether an entry says of a producer what the log does, without what lies below the log start, or some of that."""
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
                places.add(f"producer {entry.producer_id}: {place} is not what the log has there")
    return places.text


def _excludes(stored: BatchMetadata, batch: BatchMetadata) -> bool:
    """Whether both cannot be. The time is not asked: over a restart the newest batch takes on that of its producer."""
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
