"""What a log knows of its producers: epochs, sequences, open transactions (KIP-98; Kafka: ProducerStateManager,
ProducerAppendInfo, ProducerStateEntry).

An entry is a value; appends work on a `ProducerCursor` that lays new entries over the old ones, so that a plan can be thrown
away. A batch is a duplicate when one of its producer's last five batches has its epoch, first and last sequence; it is accepted
when it follows the last one; sequences run from 0 to 2^31 - 1 and start again at 0. A producer that the log does not know may
start anywhere. The file format is in `producer_snapshots`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ...protocol.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    RequestError,
    TransactionCoordinatorFencedError,
)
from ...protocol.limits import INT32_MAX
from ...protocol.records.batch import BatchHeader, decrement_sequence, increment_sequence
from ...protocol.records.control import ControlRecordType, control_record_type, coordinator_epoch
from ...protocol.records.record import iter_records
from ...protocol.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Bytes, TopicPartition
from .transaction_index import AbortedTxn

CACHED_BATCHES: Final = 5
"""Kafka's producers have at most five requests in flight to a partition's leader."""
NO_COORDINATOR_EPOCH: Final = -1


class AppendOrigin(enum.Enum):
    """Who appends: a client, whose sequences are checked, or a coordinator of ours, whose batches carry none."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


class BatchMetadata(NamedTuple):
    """What is remembered of a batch, to know it again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """One producer. `batches` ascend, the newest is last; `current_txn_first_offset` is None outside of a transaction."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    current_txn_first_offset: int | None = None
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """Last offset of the newest batch, -1 when none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None


class EndTxnMarker(NamedTuple):
    """What the one record of a transaction marker says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_abort: bool
    timestamp: int


class CompletedTxn(NamedTuple):
    """A transaction that a marker at `last_offset` has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


def parse_end_txn_marker(header: BatchHeader, batch: Bytes) -> EndTxnMarker | None:
    """The marker in a control batch, None for another kind of control batch or an empty one. InvalidRecordError."""
    if not header.is_control or not header.records_count:
        return None
    record = next(iter(iter_records(batch, header)))
    kind = control_record_type(record.key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    return EndTxnMarker(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch(record.value),
        kind is ControlRecordType.ABORT,
        record.timestamp,
    )


BatchPair = tuple[BatchMetadata, BatchMetadata]


class ProducerState:
    """All producers of a log. Owner: the log.

    `end_offset` (Kafka: lastMapOffset) is the offset up to which batches are reflected, exclusive; `snapshot_offset` (Kafka:
    lastSnapOffset) that of the newest snapshot file, -1 for none.
    """

    __slots__ = (
        "_ongoing",
        "_unreplicated",
        "_unsynced",
        "end_offset",
        "entries",
        "first_unstable_offset",
        "log_start_offset",
        "snapshot_offset",
    )

    def __init__(self, end_offset: int = 0, entries: dict[int, ProducerEntry] | None = None) -> None:
        self.entries: dict[int, ProducerEntry] = {} if entries is None else entries
        self.end_offset = end_offset
        self.snapshot_offset = -1
        self.log_start_offset = 0
        """Stored batches that end before it are passed over: of those any may be missing already."""
        self._ongoing = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in self.entries.values()
            if entry.current_txn_first_offset is not None
        }
        self._unreplicated: list[CompletedTxn] = []
        self._unsynced: list[CompletedTxn] = []
        self.first_unstable_offset: int | None = None
        """First offset of the earliest transaction that is open, or whose marker is not below the high watermark yet."""
        self._find_first_unstable()

    @property
    def is_snapshot_due(self) -> bool:
        return self.end_offset > self.snapshot_offset

    @property
    def ongoing(self) -> dict[int, int]:
        """First offset of each open transaction by producer id."""
        return dict(self._ongoing)

    def cursor(self) -> ProducerCursor:
        return ProducerCursor(self)

    def commit(self, cursor: ProducerCursor, end_offset: int) -> None:
        """Take over what was appended."""
        self.end_offset = end_offset
        if not cursor.changed:
            return
        self.entries.update(cursor.changed)
        self._unreplicated += cursor.completed
        self._unsynced += cursor.completed
        if cursor.touches_transactions:
            for entry in cursor.changed.values():
                if entry.current_txn_first_offset is None:
                    self._ongoing.pop(entry.producer_id, None)
                else:
                    self._ongoing[entry.producer_id] = entry.current_txn_first_offset
            self._find_first_unstable()

    def replay(self, header: BatchHeader, batch: Bytes) -> AbortedTxn | None:
        """Take a stored batch in, as recovery and followers do: nothing is refused.

        `batch` needs to hold the records of control batches only. Answers the entry for the transaction index when the batch
        is the ABORT marker of an open transaction.
        """
        aborted = None
        if header.producer_id >= 0 and header.next_offset > self.log_start_offset:
            cursor = self.cursor()
            if header.is_control:
                marker = parse_end_txn_marker(header, batch)
                if marker is not None:
                    aborted = cursor.end(marker, header.last_offset)
            else:
                cursor.add(header, header.base_offset)
            self.commit(cursor, header.next_offset)
        self.end_offset = header.next_offset
        return aborted

    def on_high_watermark(self, offset: int) -> None:
        """Transactions whose marker lies below the high watermark are decided for every reader."""
        if self._unreplicated:
            self._unreplicated = [txn for txn in self._unreplicated if txn.last_offset >= offset]
            self._find_first_unstable()

    def on_recovery_point(self, offset: int) -> None:
        """Transactions whose marker lies below the recovery point stay decided whatever happens."""
        if self._unsynced:
            self._unsynced = [txn for txn in self._unsynced if txn.last_offset >= offset]

    def take_over_unsynced(self, before: ProducerState) -> None:
        """Of a log that was cut back, `before` that: a snapshot tells nothing of markers that are not on the device yet."""
        self._unsynced += [txn for txn in before._unsynced if txn.last_offset < self.end_offset]

    @property
    def first_unsynced_offset(self) -> int | None:
        """First offset of the earliest transaction whose marker is not on the device: a power cut could open it again."""
        return min((txn.first_offset for txn in self._unsynced), default=None)

    def on_log_start(self, offset: int) -> None:
        """Records below `offset` are gone; their producers are remembered."""
        self.on_high_watermark(offset)
        self.end_offset = max(self.end_offset, offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that are silent for `expiration_ms` and have no open transaction; answers how many."""
        gone = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self.entries[producer_id]
        return len(gone)

    def has_late_transaction(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether the oldest open transaction's producer is silent for longer than `timeout_ms`."""
        if not self._ongoing:
            return False
        oldest = self.entries[min(self._ongoing, key=self._ongoing.__getitem__)]
        return oldest.last_timestamp > 0 and now_ms - oldest.last_timestamp > timeout_ms

    def _find_first_unstable(self) -> None:
        firsts = [*self._ongoing.values(), *(txn.first_offset for txn in self._unreplicated)]
        self.first_unstable_offset = min(firsts, default=None)


class ProducerCursor:
    """Entries that appends would change, laid over a state that stays as it is until `ProducerState.commit`."""

    __slots__ = ("_state", "changed", "completed", "touches_transactions")

    def __init__(self, state: ProducerState) -> None:
        self._state = state
        self.changed: dict[int, ProducerEntry] = {}
        self.completed: list[CompletedTxn] = []
        self.touches_transactions = False

    def entry(self, producer_id: int) -> ProducerEntry | None:
        found = self.changed.get(producer_id)
        return self._state.entries.get(producer_id) if found is None else found

    def admit(self, topic_partition: TopicPartition, headers: Sequence[BatchHeader]) -> BatchPair | None:
        """What a client's append of these batches, of one producer, comes to: None when they may be stored, the first and the
        last of the stored batches when they are there already.

        The last one is evidence enough: it was accepted because it followed the others. Snapshots and compaction leave of a
        producer's batches only the newest for certain, so after a restart it may be all that is known of an append.

        Raises InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError.
        """
        header = headers[0]
        entry = self.entry(header.producer_id)
        if entry is not None:
            first = entry.find_duplicate(header)
            if first is not None:
                last = first if len(headers) == 1 else entry.find_duplicate(headers[-1])
                if last is not None:
                    return first, last
            elif len(headers) > 1 and (last := entry.find_duplicate(headers[-1])) is not None:
                _check_consecutive(topic_partition, headers)
                return _first_before(headers, last), last
            _check_epoch(topic_partition, entry, header)
            _check_sequence(topic_partition, entry, header)
        if len(headers) > 1:
            _check_consecutive(topic_partition, headers)
        return None

    def check_epoch(self, topic_partition: TopicPartition, header: BatchHeader) -> None:
        """What is asked of a coordinator's batch, which carries no sequence. Raises InvalidProducerEpochError,
        InvalidTxnStateError."""
        entry = self.entry(header.producer_id)
        if entry is not None:
            _check_epoch(topic_partition, entry, header)

    def check_room(self, topic_partition: TopicPartition, producer_id: int, most: int) -> None:
        """Raises RequestError (POLICY_VIOLATION) when a producer that is not known yet would be more than `most`.

        Markers are not asked: a transaction can always be ended.
        """
        known, changed = self._state.entries, self.changed
        if len(known) + len(changed) < most or producer_id in known or producer_id in changed:
            return
        count = len(known) + sum(each not in known for each in changed)
        if count >= most:
            raise RequestError(
                f"{topic_partition}: producer {producer_id} is new and {count} are remembered, as many as "
                f"max_producers_per_partition={most} allows; keep producers instead of making new ones, or wait until older "
                "ones are forgotten (producer_id_expiration_ms)",
                ErrorCode.POLICY_VIOLATION,
            )

    def add(self, header: BatchHeader, base_offset: int, append_time: int | None = None) -> None:
        """Take in a data batch that is stored at `base_offset`."""
        old = self.entry(header.producer_id) or ProducerEntry(header.producer_id)
        timestamp = header.max_timestamp if append_time is None else append_time
        batches = old.batches if old.epoch == header.producer_epoch else ()
        delta = header.last_offset_delta
        batches = (*batches[1 - CACHED_BATCHES :], BatchMetadata(header.last_sequence, base_offset + delta, delta, timestamp))
        first_offset = old.current_txn_first_offset
        if header.is_transactional and first_offset is None:
            first_offset = base_offset
            self.touches_transactions = True
        self.changed[header.producer_id] = ProducerEntry(
            header.producer_id, header.producer_epoch, old.coordinator_epoch, timestamp, first_offset, batches
        )

    def check_marker(self, topic_partition: TopicPartition, marker: EndTxnMarker) -> None:
        """Raises InvalidProducerEpochError or TransactionCoordinatorFencedError."""
        entry = self.entry(marker.producer_id)
        if entry is None:
            return
        if marker.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"{topic_partition}: the marker for producer {marker.producer_id} has epoch {marker.producer_epoch}, the log "
                f"knows {entry.epoch}"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"{topic_partition}: the marker for producer {marker.producer_id} comes from coordinator epoch "
                f"{marker.coordinator_epoch}, the log knows {entry.coordinator_epoch}"
            )

    def check_open(self, topic_partition: TopicPartition, producer_id: int, first_offset: int) -> None:
        """Raises InvalidTxnStateError unless the producer's transaction that starts at `first_offset` is open."""
        entry = self.entry(producer_id)
        found = None if entry is None else entry.current_txn_first_offset
        if found != first_offset:
            raise InvalidTxnStateError(
                f"{topic_partition}: the transaction of producer {producer_id} that starts at offset {first_offset} has ended; "
                + ("none is open" if found is None else f"the one that is open starts at {found}")
            )

    def end(self, marker: EndTxnMarker, offset: int) -> AbortedTxn | None:
        """Take in a marker that is stored at `offset`; the entry for the transaction index if it aborts something."""
        old = self.entry(marker.producer_id) or ProducerEntry(marker.producer_id)
        aborted = None
        if old.current_txn_first_offset is not None:
            completed = CompletedTxn(marker.producer_id, old.current_txn_first_offset, offset, marker.is_abort)
            self.completed.append(completed)
            if marker.is_abort:
                aborted = AbortedTxn(
                    marker.producer_id, completed.first_offset, offset, self.last_stable_offset_after(completed)
                )
        self.touches_transactions = True
        self.changed[marker.producer_id] = ProducerEntry(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.timestamp,
            None,
            old.batches if old.epoch == marker.producer_epoch else (),
        )
        return aborted

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """First offset of the earliest open transaction of another producer, else the one behind the marker."""
        ongoing = self._state._ongoing
        firsts = [first for producer_id, first in ongoing.items() if producer_id not in self.changed]
        firsts += [
            entry.current_txn_first_offset for entry in self.changed.values() if entry.current_txn_first_offset is not None
        ]
        own = completed.first_offset
        others = [first for first in firsts if first != own]
        return min(others, default=completed.last_offset + 1)


def _first_before(headers: Sequence[BatchHeader], last: BatchMetadata) -> BatchMetadata:
    """The first of the batches that were appended together and end with `last`."""
    first = headers[0]
    first_offset = last.first_offset - sum(header.last_offset_delta + 1 for header in headers[:-1])
    delta = first.last_offset_delta
    return BatchMetadata(first.last_sequence, first_offset + delta, delta, last.timestamp)


def _check_epoch(topic_partition: TopicPartition, entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpochError(
            f"{topic_partition}: producer {header.producer_id} sent epoch {header.producer_epoch}, the log knows "
            f"{entry.epoch}: a newer instance has taken over"
        )
    if entry.current_txn_first_offset is not None and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{topic_partition}: producer {header.producer_id} has a transaction open since offset "
            f"{entry.current_txn_first_offset}; a batch outside of it cannot come between"
        )


def _check_consecutive(topic_partition: TopicPartition, headers: Sequence[BatchHeader]) -> None:
    for before, header in pairwise(headers):
        if header.base_sequence != increment_sequence(before.last_sequence, 1):
            raise OutOfOrderSequenceError(
                f"{topic_partition}: producer {header.producer_id} sent sequence {header.base_sequence} behind "
                f"{before.last_sequence} in one append"
            )


def _check_sequence(topic_partition: TopicPartition, entry: ProducerEntry, header: BatchHeader) -> None:
    first = header.base_sequence
    if header.producer_epoch != entry.epoch:
        if first == 0 or entry.epoch == NO_PRODUCER_EPOCH:
            return
        raise OutOfOrderSequenceError(
            f"{topic_partition}: producer {header.producer_id} begins its epoch {header.producer_epoch} with sequence {first}, "
            "a new epoch begins with 0"
        )
    last = entry.last_sequence
    if first == last + 1 or (first == 0 and last == INT32_MAX):
        return
    raise OutOfOrderSequenceError(
        f"{topic_partition}: producer {header.producer_id}, epoch {header.producer_epoch}, sent sequence {first} after {last}; "
        "a batch between them is missing, or this is an old one"
    )
