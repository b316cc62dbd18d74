"""What appends and markers do to a `ProducerState`, without a log around it."""

from __future__ import annotations

from triolog.protocol.records.batch import TRANSACTIONAL_FLAG, BatchHeader
from triolog.server.storage.indexes.transaction_index import AbortedTxn
from triolog.server.storage.producers.producer_cursor import EndTxnMarker
from triolog.server.storage.producers.producer_state import ProducerState

from tests.support.logs import TOPIC_PARTITION

PID = 7


def header(
    sequence: int, offset: int = 0, *, count: int = 1, epoch: int = 0, pid: int = PID, txn: bool = False, timestamp: int = 0
) -> BatchHeader:
    attributes = TRANSACTIONAL_FLAG if txn else 0
    return BatchHeader(offset, 49, 0, 2, 0, attributes, count - 1, timestamp, timestamp, pid, epoch, sequence, count)


def append(state: ProducerState, sequence: int, offset: int, **options: int | bool) -> None:
    """What a client's append does: check, then take in."""
    one = header(sequence, offset, **options)  # type: ignore[arg-type]
    cursor = state.cursor()
    assert cursor.admit(TOPIC_PARTITION, [one]) is None
    cursor.add(one, offset)
    state.commit(cursor, one.next_offset)


def end(
    state: ProducerState, offset: int, *, pid: int = PID, epoch: int = 0, coordinator_epoch: int = 0, abort: bool = False
) -> AbortedTxn | None:
    marker = EndTxnMarker(pid, epoch, coordinator_epoch, abort, 1)
    cursor = state.cursor()
    cursor.check_marker(TOPIC_PARTITION, marker)
    aborted = cursor.end(marker, offset)
    state.commit(cursor, offset + 1)
    return aborted
