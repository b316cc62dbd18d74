"""Applies appends to a copy of a log's producers, and refuses invalid ones (KIP-98; Kafka: ProducerAppendInfo).

A batch is a duplicate when one of its producer's last five batches has its epoch, first and last sequence; it is accepted
when it follows the last one; sequences run from 0 to 2^31 - 1 and start again at 0. A producer that the log does not know may
start anywhere.

Also the state of one producer, and the content of a transaction marker (Kafka: ProducerStateEntry, EndTransactionMarker).

All of these are values. The bytes that they are written as are in `producer_snapshots`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ....protocol.errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    RequestError,
    TransactionCoordinatorFencedError,
)
from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import TRANSACTIONAL_FLAG, BatchHeader, decrement_sequence, increment_sequence
from ....protocol.records.control import ControlRecordType, control_record_type, coordinator_epoch
from ....protocol.records.record import iter_records
from ....protocol.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Bytes, TopicPartition
from ..indexes.transaction_index import AbortedTxn

CACHED_BATCHES: Final = 5
"""Kafka's producers have at most five requests in flight to a partition's leader."""
EPOCH_PER_TRANSACTION: Final = 2
"""From this transaction version on a coordinator raises the epoch before it writes markers (KIP-890)."""


class StoredBatches(NamedTuple):
    """The first `how_many` batches of an append are stored already, from the batch `first` to `last`."""

    how_many: int
    first: BatchMetadata
    last: BatchMetadata


class AppendOrigin(enum.Enum):
    """The origin of an append: a client, whose sequences are checked; one of our coordinators, whose batches carry none; or
    another server's log that is mirrored, of which nothing is refused."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class ProducerCursor:
    """Entries that appends would change, laid over those of a state, which stays as it is until `ProducerState.commit`.

    Owner: the plan of these appends. `ongoing` is the first offset of each open transaction by producer id.
    """

    __slots__ = ("_entries", "_ongoing", "changed", "completed", "touches_transactions")

    def __init__(self, entries: Mapping[int, ProducerEntry], ongoing: Mapping[int, int]) -> None:
        self._entries = entries
        self._ongoing = ongoing
        self.changed: dict[int, ProducerEntry] = {}
        self.completed: list[CompletedTxn] = []
        self.touches_transactions = False

    def entry(self, producer_id: int) -> ProducerEntry | None:
        found = self.changed.get(producer_id)
        return self._entries.get(producer_id) if found is None else found

    def admit(
        self, topic_partition: TopicPartition, headers: Sequence[BatchHeader], *, joins_transaction: bool = False
    ) -> StoredBatches | None:
        """Return None when a client's append of these batches, of one producer, may be stored. Otherwise return how many of
        them are stored already; the batches after them may be stored.

        The last batch is evidence enough: it was accepted because it followed the others. Snapshots and compaction keep for
        certain only the newest of a producer's batches. After a restart it may be the only known batch of an append. A server
        that was killed during a write leaves the first batches of an append. `joins_transaction`: the batch opens a transaction
        here by itself, so it must be the first one of a producer that is not known (KIP-890).

        Raises InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError, checked in this order.
        """
        header = headers[0]
        entry = self.entry(header.producer_id)
        if joins_transaction and header.base_sequence and (entry is None or not entry.batches):
            raise OutOfOrderSequenceError(
                f"{topic_partition}: producer {header.producer_id} begins a transaction with sequence "
                f"{header.base_sequence}. It is unknown here, so the first sequence must be 0"
            )
        if len(headers) > 1:
            _check_consecutive(topic_partition, headers)
        if entry is None:
            return None
        if len(headers) == 1 and entry.is_next(header):
            return None
        stored = _stored(entry, headers)
        if stored is None:
            _check_epoch(topic_partition, entry, header)
            _check_sequence(topic_partition, entry, header)
            _check_transaction(topic_partition, entry, header)
        elif stored.how_many < len(headers):
            _check_epoch(topic_partition, entry, header)
            _check_transaction(topic_partition, entry, header)
        return stored

    def check_epoch(self, topic_partition: TopicPartition, header: BatchHeader) -> None:
        """Check a coordinator's batch, which carries no sequence. Raises InvalidProducerEpochError, InvalidTxnStateError."""
        entry = self.entry(header.producer_id)
        if entry is not None:
            _check_epoch(topic_partition, entry, header)
            _check_transaction(topic_partition, entry, header)

    def check_room(self, topic_partition: TopicPartition, producer_id: int, most: int) -> None:
        """Raises RequestError (POLICY_VIOLATION) when a producer that is not known yet would be more than `most`.

        Markers are not asked: a transaction can always be ended.
        """
        known, changed = self._entries, self.changed
        if len(known) + len(changed) < most or producer_id in known or producer_id in changed:
            return
        count = len(known) + sum(each not in known for each in changed)
        if count >= most:
            raise RequestError(
                f"{topic_partition}: producer {producer_id} is new, but {count} are remembered, the maximum of "
                f"max_producers_per_partition={most}. Reuse producers, or wait until older ones are forgotten "
                "(producer_id_expiration_ms)",
                ErrorCode.POLICY_VIOLATION,
            )

    def add(self, header: BatchHeader, base_offset: int, append_time: int | None = None) -> None:
        """Take in a data batch that is stored at `base_offset`."""
        producer_id, epoch, delta = header.producer_id, header.producer_epoch, header.last_offset_delta
        old = self.changed.get(producer_id) or self._entries.get(producer_id) or ProducerEntry(producer_id)
        timestamp = header.max_timestamp if append_time is None else append_time
        # What BatchMetadata(...) and ProducerEntry(...) make, without their Python-level calls.
        batch = tuple.__new__(BatchMetadata, (header.last_sequence, base_offset + delta, delta, timestamp))
        batches = old.batches if old.epoch == epoch else ()
        batches = (*batches[1 - CACHED_BATCHES :], batch)
        first_offset = old.current_txn_first_offset
        if first_offset is None and header.attributes & TRANSACTIONAL_FLAG:
            first_offset = base_offset
            self.touches_transactions = True
        self.changed[producer_id] = tuple.__new__(
            ProducerEntry, (producer_id, epoch, old.coordinator_epoch, timestamp, first_offset, batches)
        )

    def check_marker(self, topic_partition: TopicPartition, marker: EndTxnMarker) -> None:
        """A marker of EPOCH_PER_TRANSACTION ends nothing that is open under its own epoch (KIP-1228). Raises
        InvalidProducerEpochError or TransactionCoordinatorFencedError."""
        entry = self.entry(marker.producer_id) or ProducerEntry(marker.producer_id)
        is_late = marker.producer_epoch == entry.epoch and entry.current_txn_first_offset is not None
        if marker.producer_epoch < entry.epoch or (is_late and marker.transaction_version >= EPOCH_PER_TRANSACTION):
            raise InvalidProducerEpochError(
                f"{topic_partition}: the marker for producer {marker.producer_id} has epoch {marker.producer_epoch} "
                f"and transaction version {marker.transaction_version}, the log has epoch {entry.epoch}"
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"{topic_partition}: the marker for producer {marker.producer_id} comes from coordinator epoch "
                f"{marker.coordinator_epoch}, the log has {entry.coordinator_epoch}"
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
        firsts = [first for producer_id, first in self._ongoing.items() if producer_id not in self.changed]
        firsts += [
            entry.current_txn_first_offset for entry in self.changed.values() if entry.current_txn_first_offset is not None
        ]
        own = completed.first_offset
        others = [first for first in firsts if first != own]
        return min(others, default=completed.last_offset + 1)


def _stored(entry: ProducerEntry, headers: Sequence[BatchHeader]) -> StoredBatches | None:
    """Return how many of the batches, from the first one on, the producer has stored. These are all, if the last is known, or
    those up to its newest stored batch."""
    last, count = entry.find_duplicate(headers[-1]), len(headers)
    while last is None and count > 1:
        count -= 1
        last = entry.find_duplicate(headers[count - 1])
        if last is not None and last is not entry.batches[-1]:
            return None  # others were stored behind it: these are old ones, and what is missing of them stays so
    if last is None:
        return None
    return StoredBatches(count, entry.find_duplicate(headers[0]) or _first_before(headers[:count], last), last)


def _first_before(headers: Sequence[BatchHeader], last: BatchMetadata) -> BatchMetadata:
    """The first of the batches that were appended together and end with `last`."""
    first = headers[0]
    first_offset = last.first_offset - sum(header.last_offset_delta + 1 for header in headers[:-1])
    delta = first.last_offset_delta
    return BatchMetadata(first.last_sequence, first_offset + delta, delta, last.timestamp)


def _check_epoch(topic_partition: TopicPartition, entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpochError(
            f"{topic_partition}: producer {header.producer_id} sent epoch {header.producer_epoch}, the log has "
            f"{entry.epoch}: a newer instance took over"
        )


def _check_transaction(topic_partition: TopicPartition, entry: ProducerEntry, header: BatchHeader) -> None:
    if entry.current_txn_first_offset is not None and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{topic_partition}: producer {header.producer_id} has a transaction open since offset "
            f"{entry.current_txn_first_offset}. It cannot send a batch outside of it"
        )


def _check_consecutive(topic_partition: TopicPartition, headers: Sequence[BatchHeader]) -> None:
    for before, header in pairwise(headers):
        if header.base_sequence != increment_sequence(before.last_sequence, 1):
            raise OutOfOrderSequenceError(
                f"{topic_partition}: producer {header.producer_id} sent sequence {header.base_sequence} after "
                f"{before.last_sequence} in one append"
            )


def _check_sequence(topic_partition: TopicPartition, entry: ProducerEntry, header: BatchHeader) -> None:
    first = header.base_sequence
    if header.producer_epoch != entry.epoch:
        if first == 0 or entry.epoch == NO_PRODUCER_EPOCH:
            return
        raise OutOfOrderSequenceError(
            f"{topic_partition}: producer {header.producer_id} begins its epoch {header.producer_epoch} with "
            f"sequence {first}. A new epoch begins with 0"
        )
    last = entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE
    if first == last + 1 or (first == 0 and last == INT32_MAX):
        return
    raise OutOfOrderSequenceError(
        f"{topic_partition}: producer {header.producer_id}, epoch {header.producer_epoch}, sent sequence "
        f"{first} after {last}. A batch between them is missing, or this is an old one"
    )


NO_COORDINATOR_EPOCH: Final = -1


class BatchMetadata(NamedTuple):
    """The remembered fields of a batch, to recognise it when the producer sends it again."""

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
    """A producer. `batches` ascend, the newest is last; `current_txn_first_offset` is None outside of a transaction."""

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

    def is_next(self, header: BatchHeader) -> bool:
        """Return whether a batch follows the newest one, in its epoch and in any open transaction, and is not a remembered
        batch. Nearly every batch does. False where sequences start again at 0."""
        batches, first = self.batches, header.base_sequence
        if not batches or first != batches[-1].last_sequence + 1 or header.producer_epoch != self.epoch:
            return False
        if self.current_txn_first_offset is not None and not header.attributes & TRANSACTIONAL_FLAG:
            return False
        last = first + header.last_offset_delta
        if last > INT32_MAX:
            return False
        for batch in batches:  # noqa: SIM110 -- a generator costs more than all of the rest
            if batch.last_sequence == last:
                return False
        return True

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        if header.producer_epoch != self.epoch:
            return None
        last = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == header.base_sequence:
                return batch
        return None


class EndTxnMarker(NamedTuple):
    """The content of a transaction marker's one record, and the version of the transaction, which no record has."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_abort: bool
    timestamp: int
    transaction_version: int = 0


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
