"""Transactions of a producer for blocking programs.

with BlockingProducer(client, transactional_id="copier") as producer:
    with producer.transaction() as transaction:
        producer.send("out", b"value")
        transaction.send_offsets("group", {TopicPartition("in", 0): 43})
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ..transaction import LogTransaction, Transaction
from .in_place import blocking
from .loop import InPlaceLoop


class BlockingTransaction:
    """A transaction for blocking programs, as Transaction: a block that commits or aborts at its end, or separate methods."""

    def __init__(self, loop: InPlaceLoop, shared: Transaction) -> None:
        self._loop = loop
        self._shared = shared

    begin = blocking(Transaction.begin)
    send_offsets = blocking(Transaction.send_offsets)
    commit = blocking(Transaction.commit)

    def abort(self, timeout_s: float | None = None) -> None:
        """Make sure that nobody sees the records and offsets. InvalidTxnStateError when a commit may have been made;
        TimeoutError, or what the last attempt failed with, when that is not done within `timeout_s`."""
        self._loop.run(self._shared.calls.abort(float("inf") if timeout_s is None else timeout_s))

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self._loop.run(self._shared.__aexit__(kind, value, traceback))


class BlockingLogTransaction(BlockingTransaction):
    """A transaction with appends of its own, as LogTransaction."""

    _shared: LogTransaction

    begin = blocking(LogTransaction.begin)
    append = blocking(LogTransaction.append)
    commit_offsets = blocking(LogTransaction.commit_offsets)
