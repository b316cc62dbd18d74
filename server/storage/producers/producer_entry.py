"""What a log remembers of one producer, and what a transaction marker says (Kafka: ProducerStateEntry, EndTransactionMarker).

All of these are values. The bytes that they are written as are in `producer_snapshots`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import TRANSACTIONAL_FLAG, BatchHeader, decrement_sequence
from ....protocol.records.control import ControlRecordType, control_record_type, coordinator_epoch
from ....protocol.records.record import iter_records
from ....protocol.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Bytes

NO_COORDINATOR_EPOCH: Final = -1


class BatchMetadata(NamedTuple):
    """What is remembered of a batch, to recognise it when it is sent again."""

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

    def is_next(self, header: BatchHeader) -> bool:
        """Whether a batch follows the newest one, in its epoch and in its transaction if one is open, and is none of those that
        are remembered: what nearly every batch does. Where sequences start again at 0 it is not asked."""
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
    """What the one record of a transaction marker says, and the version of the transaction, which no record has."""

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
