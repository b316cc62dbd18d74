"""Checks a segment in one pass over its log: batches, records, indexes, leader epochs, producers and aborted transactions.

| check | says |
|---|---|
| batch | framing, CRC and offsets (`salvage.scan_batches`) |
| gap | offsets that no batch holds |
| records | lengths, counts and offset deltas of all records agree (compacted batches may have gaps) |
| timestamps | the header's largest timestamp is that of its records |
| leader epoch | a batch has the epoch that `leader-epoch-checkpoint` gives its offset |
| index, time index, transaction index | see `index_check` |
| snapshot | see `small_files_check` |

No CRC covers base offset and leader epoch of a batch: only continuity and the checkpoint protect them.
"""

from __future__ import annotations

from typing import Final

import attrs

from ...protocol.errors import RequestError
from ...protocol.limits import INT64_MAX, MIB
from ...protocol.records.batch import BatchHeader
from ...protocol.records.walk import walk_records
from ...protocol.types import NO_PARTITION_LEADER_EPOCH
from ..storage.directory.inventory import SegmentFiles
from ..storage.disk.filesystem import FileSystem
from ..storage.disk.paths import LOG_SUFFIX
from ..storage.indexes.transaction_index import AbortedTxn
from ..storage.log.leader_epochs import LeaderEpochs
from ..storage.producers.producer_cursor import ProducerEntry
from ..storage.producers.producer_state import ProducerState
from ..storage.recovery.salvage import Damage, GoodBatch, is_zeros, scan_batches
from .findings import FaultTally, Observer
from .index_check import AbortedInLog, IndexCheck, check_transaction_index, open_indexes
from .small_files_check import SnapshotCheck
from .stored_records import restored

_ADVANCE_BYTES: Final = 4 * MIB


@attrs.frozen
class Gap:
    """Offsets that no batch holds, found before `position` of a file."""

    file: str
    position: int
    first_offset: int
    next_offset: int


@attrs.define(eq=False, repr=False, kw_only=True)
class LogState:
    """The state of a partition's log up to the position of the check. Owner: the partition's check."""

    producers: ProducerState
    snapshots: SnapshotCheck
    epochs: LeaderEpochs
    log_start_offset: int
    next_offset: int
    """Behind the last batch; the first segment's base offset before there is one."""
    walk: bool
    has_all_producers: bool
    """Whether `producers` has seen every batch since a state that is known."""
    is_compacted: bool
    batches: int = 0
    records: int = 0
    gaps: list[Gap] = attrs.field(factory=list)
    needed: ProducerState = attrs.field(init=False)
    """What a recovery of today knows at least: it passes over batches below the log start. What an earlier one knew lies
    between this and `producers`."""

    def __attrs_post_init__(self) -> None:
        entries: dict[int, ProducerEntry] = {}
        if self.next_offset > self.log_start_offset:
            entries = {
                entry.producer_id: _without_old(entry, self.log_start_offset) for entry in self.producers.entries.values()
            }
        is_same = self.next_offset >= self.log_start_offset and entries == self.producers.entries
        self.needed = self.producers if is_same else ProducerState(self.next_offset, entries)
        self.needed.log_start_offset = 0 if is_same else self.log_start_offset


def _without_old(entry: ProducerEntry, log_start_offset: int) -> ProducerEntry:
    """Without a transaction that began before the log start: whether anything of it is left is not known here."""
    first = entry.current_txn_first_offset
    return entry if first is None or first >= log_start_offset else entry._replace(current_txn_first_offset=None)


@attrs.define(eq=False, repr=False)
class SegmentCheck:
    """A pass over one segment. `end_offset`: base offset of the next segment, None for the last one. `was_closed`: whether the
    files were closed cleanly, because another segment follows or because the server stopped cleanly. `torn_from`: see
    `scan_batches`."""

    _fs: FileSystem
    _segment: SegmentFiles
    _state: LogState
    _end_offset: int | None = attrs.field(kw_only=True)
    _was_closed: bool = attrs.field(kw_only=True)
    _torn_from: int = INT64_MAX
    _aborted: list[AbortedTxn] = attrs.field(factory=list)
    _needed: set[tuple[int, int]] = attrs.field(factory=set)
    """Producer and marker's offset of those that readers need."""
    _records: FaultTally = attrs.field(factory=FaultTally)
    _timestamps: FaultTally = attrs.field(factory=FaultTally)
    _epochs: FaultTally = attrs.field(factory=FaultTally)
    _is_damaged: bool = False
    """Whether something of the log cannot be read at all."""
    _wrong_epoch_position: int = -1
    """Of the first batch with a wrong leader epoch."""
    _log: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._log = self._segment.path(LOG_SUFFIX)

    def run(self, reporter: Observer) -> None:
        """Report everything there is to find in this segment. Raises OSError."""
        state = self._state
        if self._segment.base_offset > state.next_offset:
            self._add_gap(0, self._segment.base_offset)
        with open_indexes(self._fs, self._segment) as indexes:
            self._scan(indexes, reporter)
            indexes.report(reporter, self._segment, was_closed=self._was_closed, log_is_damaged=self._is_damaged)
        is_told = state.has_all_producers and not state.is_compacted
        told = AbortedInLog(self._aborted, self._needed, state.log_start_offset) if is_told else None
        check_transaction_index(self._fs, self._segment, told, reporter, was_closed=self._was_closed)
        reporter.damage("records", self._log, self._records.text)
        where = {"position": self._wrong_epoch_position, "count": self._epochs.count}
        reporter.damage("leader epoch", self._log, self._epochs.text, **where)
        reporter.remark("timestamps", self._log, self._timestamps.text)

    def _scan(self, indexes: IndexCheck, reporter: Observer) -> None:
        state, snapshots = self._state, self._state.snapshots
        base_offset = self._segment.base_offset
        reported, records = 0, state.records
        scan = scan_batches(
            self._fs, self._log, base_offset=base_offset, end_offset=self._end_offset, torn_from=self._torn_from
        )
        for item in scan:
            if isinstance(item, Damage):
                whole = self._take_damage(item, reporter)
                if whole is None:
                    continue
                item = whole
            header, position, batch = item
            if header.base_offset != state.next_offset:
                self._add_gap(position, header.base_offset)
            if header.base_offset >= snapshots.due:
                self._compare_snapshots(header.base_offset)
            indexes.visit(header, position)
            self._take(header, position, batch)
            if position - reported >= _ADVANCE_BYTES:
                reporter.advance(position - reported, state.records - records)
                reported, records = position, state.records
        reporter.advance(self._segment.log_bytes - reported, state.records - records)

    def _take(self, header: BatchHeader, position: int, batch: memoryview) -> None:
        state = self._state
        if state.epochs.epoch_for_offset(header.base_offset) != header.partition_leader_epoch:
            self._take_wrong_epoch(header, position)
        if state.walk:
            self._walk(header, position, batch)
        if header.records_count <= header.last_offset_delta:
            state.is_compacted = True
        if header.producer_id >= 0:
            self._replay(header, batch)
        state.next_offset = header.next_offset
        state.batches += 1
        state.records += header.records_count

    def _walk(self, header: BatchHeader, position: int, batch: memoryview) -> None:
        try:
            walk = walk_records(batch, header, allow_gaps=True)
        except RequestError as exc:
            self._records.add(f"position {position}: {exc.message}")
            return
        if walk.max_timestamp != header.max_timestamp and walk.records_count:
            found = f"the header has {header.max_timestamp}, the largest of the records is {walk.max_timestamp}"
            self._timestamps.add(f"position {position}: {found}")

    def _replay(self, header: BatchHeader, batch: memoryview) -> None:
        state, control = self._state, batch if header.is_control else b""
        try:
            aborted = state.producers.replay(header, control)
            needed = aborted if state.needed is state.producers else state.needed.replay(header, control)
        except RequestError:
            state.has_all_producers = False  # what is wrong with its record, the walk says
            return
        if aborted is not None:
            self._aborted.append(aborted)
        if needed is not None:
            self._needed.add((needed.producer_id, needed.last_offset))

    def _compare_snapshots(self, offset: int) -> None:
        state = self._state
        is_complete = state.has_all_producers and not state.is_compacted
        state.snapshots.compare(offset, state.producers, state.needed, state.log_start_offset, is_complete=is_complete)

    def _take_wrong_epoch(self, header: BatchHeader, position: int) -> None:
        """Epochs below the log start are forgotten, so a batch that spans the log start is judged by its last offset."""
        epochs, offset = self._state.epochs, header.base_offset
        if offset < self._state.log_start_offset:
            offset = header.last_offset
            if offset < self._state.log_start_offset or epochs.epoch_for_offset(offset) == header.partition_leader_epoch:
                return
        expected = epochs.epoch_for_offset(offset)
        if expected is None and header.partition_leader_epoch == NO_PARTITION_LEADER_EPOCH:
            return  # written before there were epochs
        if not self._epochs.count:
            self._wrong_epoch_position = position
        said = "has no entry for its offset" if expected is None else f"says {expected}"
        found = f"the batch at offset {header.base_offset} has leader epoch {header.partition_leader_epoch}"
        self._epochs.add(f"position {position}: {found}, leader-epoch-checkpoint {said}")

    def _add_gap(self, position: int, next_offset: int) -> None:
        """Behind a gap nobody can say what producers have done, unless a cleaner made it."""
        state = self._state
        if next_offset > state.next_offset:
            state.gaps.append(Gap(self._log, position, state.next_offset, next_offset))
            state.has_all_producers = False
            state.next_offset = next_offset

    def _take_damage(self, damage: Damage, reporter: Observer) -> GoodBatch | None:
        """Report it. Answers the batch where only its stamp is damaged: it goes on being checked as it should be."""
        state = self._state
        if not self._was_closed and self._is_zero_tail(damage):
            text = f"{damage.size} zeros up to the end of the file: preallocated, or not written before a power cut"
            reporter.remark("preallocated", self._log, text, position=damage.position, size=damage.size)
            return None
        reporter.damage(
            "batch",
            self._log,
            damage.reason,
            position=damage.position,
            size=damage.size,
            first_offset=damage.first_offset,
            next_offset=damage.next_offset,
        )
        if damage.stamp is not None:
            return restored(self._fs, self._log, damage.position, damage.size, damage.stamp)
        self._is_damaged = True
        state.has_all_producers = False
        state.next_offset = max(state.next_offset, damage.next_offset)
        return None

    def _is_zero_tail(self, damage: Damage) -> bool:
        end = self._segment.log_bytes
        return damage.position + damage.size >= end and is_zeros(self._fs, self._log, damage.position, end)
