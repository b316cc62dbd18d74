"""What the cleaner knows of transactions along a pass."""

from __future__ import annotations

import pytest
from triolog.protocol.records.batch import BatchHeader, end_txn_marker, parse_header
from triolog.protocol.records.builder import build_batch
from triolog.server.storage.cleaner.transactions import CleanedTransactions
from triolog.server.storage.indexes.transaction_index import AbortedTxn


def data(offset: int, producer_id: int = 1) -> BatchHeader:
    batch = build_batch(
        [(0, b"k", b"v", ())], producer_id=producer_id, producer_epoch=0, base_sequence=offset, is_transactional=True
    )
    return parse_header(batch)._replace(base_offset=offset)


def end(transactions: CleanedTransactions, offset: int, *, commit: bool, producer_id: int = 1) -> bool:
    marker = end_txn_marker(
        producer_id=producer_id, producer_epoch=0, commit=commit, timestamp=0, coordinator_epoch=0, base_offset=offset
    )
    return transactions.on_control_batch(parse_header(marker), marker)


def test_batches_are_aborted_up_to_their_marker() -> None:
    transactions = CleanedTransactions()
    transactions.add_aborted([AbortedTxn(1, 2, 4, 5)])
    assert [transactions.on_data_batch(data(offset)) for offset in (1, 2, 3)] == [False, True, True]
    assert not end(transactions, 4, commit=False)
    assert transactions.take_cleaned_index() == [AbortedTxn(1, 2, 4, 5)]
    assert not transactions.on_data_batch(data(5))


@pytest.mark.parametrize("markers_between", [0, 1])
def test_a_transaction_whose_marker_is_lost_ends_where_the_index_says(markers_between: int) -> None:
    """Damage took the ABORT marker at 4 out; what the producer wrote afterwards was committed and stays."""
    transactions = CleanedTransactions()
    transactions.add_aborted([AbortedTxn(1, 2, 4, 5)])
    assert transactions.on_data_batch(data(2))
    for offset in range(5, 5 + markers_between):
        end(transactions, offset, commit=True)
    assert not transactions.on_data_batch(data(7))
    assert not end(transactions, 8, commit=True), "a record of its transaction is there"
