"""Which transactions the cleaner is in the middle of, and what of them may go (Kafka: CleanedTransactionMetadata).

Records of aborted transactions go at once; an entry of the transaction index counts up to its marker's offset, also where
damage has taken the marker out. A marker has to stay as long as a record of its transaction does: it is discardable when the
cleaner came by no batch of the transaction on its way to the marker. An ABORT marker that stays keeps its entry in the
transaction index.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import attrs

from ....protocol.records.batch import BatchHeader
from ....protocol.records.control import ControlRecordType, control_record_type
from ....protocol.records.record import iter_records
from ....protocol.types import Bytes
from ..indexes.transaction_index import AbortedTxn


@attrs.define(eq=False, repr=False)
class CleanedTransactions:
    """Transactions along one pass over a log, from its first segment on. Owner: that pass."""

    cleaned_index: list[AbortedTxn] = attrs.field(factory=list)
    """Entries of markers that stay, of the segment that is being written."""
    _ahead: list[tuple[int, AbortedTxn]] = attrs.field(factory=list)
    _aborted: dict[int, tuple[AbortedTxn, bool]] = attrs.field(factory=dict)
    """By producer: the aborted transaction that the pass is in, and whether a batch of it was there."""
    _committed: set[int] = attrs.field(factory=set)

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """These lie ahead: their markers do, at least."""
        for txn in transactions:
            heapq.heappush(self._ahead, (txn.first_offset, txn))

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        entry = self._aborted.get(header.producer_id)
        if entry is not None and entry[0].last_offset < header.base_offset:
            del self._aborted[header.producer_id]
            entry = None
        if entry is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = entry[0], True
        return True

    def on_control_batch(self, header: BatchHeader, batch: Bytes) -> bool:
        """Whether nothing is left that the batch says something about. Other control batches than markers always stay."""
        self._reach(header.last_offset)
        if not header.records_count:
            return True
        kind = control_record_type(next(iter(iter_records(batch, header))).key)
        if kind is ControlRecordType.ABORT:
            txn, has_batches = self._aborted.pop(header.producer_id, (None, False))
            if txn is None or not has_batches:
                return True
            self.cleaned_index.append(txn)
            return False
        if kind is ControlRecordType.COMMIT:
            has_batches = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not has_batches
        return False

    def take_cleaned_index(self) -> list[AbortedTxn]:
        """Entries that belong to the segment written so far; the next segment starts with none."""
        entries, self.cleaned_index = self.cleaned_index, []
        return entries

    def _reach(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, txn = heapq.heappop(self._ahead)
            self._aborted.setdefault(txn.producer_id, (txn, False))
