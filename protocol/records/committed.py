"""Which batches a reader of committed records leaves out (KIP-98; Kafka: CompletedFetch).

A fetch answer lists the aborted transactions that its batches have a part in, as (producer id, first offset). A producer
has one transaction at a time on a partition, so from a transaction's first offset on, its producer's transactional batches
are aborted until the producer's next marker: ABORT, or COMMIT of the next transaction where damage has taken the ABORT out.
One filter serves one answer: the next answer has a list of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .batch import BatchHeader
from .control import ControlRecordType, control_record_type
from .record import iter_records

_MARKERS: Final = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


class CommittedFilter:
    """Asked for the batches of one answer, in order. Owner: whoever walks the answer."""

    __slots__ = ("_aborting", "_upcoming")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted` holds (producer id, first offset) in any order."""
        self._upcoming = sorted(aborted, key=_first_offset, reverse=True)  # the next one comes last
        self._aborting: set[int] = set()

    def leaves_out(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether nobody is to see this batch: a control batch, or part of an aborted transaction.

        InvalidRecordError for a control batch whose record is none.
        """
        while self._upcoming and self._upcoming[-1][1] <= header.last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        if header.is_control:
            if header.producer_id in self._aborting and _is_marker(header, batch):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._aborting


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]


def _is_marker(header: BatchHeader, batch: memoryview) -> bool:
    """False when compaction has left the batch without its record: the transaction's records are gone then, too."""
    return any(control_record_type(record.key) in _MARKERS for record in iter_records(batch, header))
