"""Transactions of a producer without trio; what `transaction` is for trio programs.

with BlockingProducer(client, transactional_id="copier") as producer:
    with producer.transaction() as transaction:
        producer.send("out", b"value")
        transaction.send_offsets("group", {TopicPartition("in", 0): 43})
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from ....protocol.errors import RequestError, TriologError
from ....protocol.types import TopicPartition
from ..backoff import Backoff
from ..config import ProducerConfig
from ..errors import ClosedError
from ..procedures import groups as group_procedures
from ..procedures.groups import CommittedOffset
from ..procedures.topics import Procedure
from ..sending.accumulator import Accumulator
from ..sending.transactions import ABORT_TIMEOUT_S, TransactionState
from .client import BlockingClient

T = TypeVar("T")


class BlockingTransactionCalls:
    """The calls of one transactional producer. Owner: the producer."""

    def __init__(
        self, client: BlockingClient, config: ProducerConfig, accumulator: Accumulator, flush: Callable[[float | None], None]
    ) -> None:
        assert config.transactional_id is not None
        self._client = client
        self._config = config
        self._accumulator = accumulator
        self._flush = flush
        self.state = TransactionState(config.transactional_id, accumulator)

    def initialize(self) -> None:
        """Get the producer id and the next epoch; what an older instance left open is aborted then."""
        self.state.initialized(self._repeat(lambda: group_procedures.init_producer(self._config)))

    def begin(self) -> None:
        """Begin a transaction, under another epoch when the last one was left behind."""
        self.state.check_alive()
        self.state.leave_undecided()
        if not self.state.is_open and self.state.needs_identity:
            self._flush(None)
            self.initialize()
        self.state.begin()

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Commit a group's offsets with the transaction."""
        self.state.check_sending()
        if offsets:
            self.state.add_offsets()
            self._repeat(lambda: group_procedures.commit_offsets(group, offsets, self.state.producer))

    def commit(self) -> None:
        """Flush, then make it all visible; raises what a record was given up for, and then only an abort is possible."""
        self.state.check_open()
        self._flush(None)
        self.state.commit()
        self._end(commit=True)

    def abort(self, timeout_s: float | None = None) -> None:
        """Give up what was not sent, and make the rest invisible; all of it within `timeout_s`, else it raises TimeoutError or
        what the last attempt failed with."""
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        with self._client.within(deadline):
            self.state.check_abort()
            self._accumulator.drop_unsent(ClosedError("the transaction was aborted before the record was sent"))
            self._flush(timeout_s)
            self.state.check_open()
            self._end(commit=False, deadline=deadline)

    def _end(self, *, commit: bool, deadline: float = float("inf")) -> None:
        if self.state.has_parts:
            try:
                self._repeat(lambda: group_procedures.end_transaction(self.state.producer, commit), deadline)
            except BaseException as exc:
                self.state.end_failed(exc)
                raise
        self.state.ended()

    def _repeat(self, procedure: Callable[[], Procedure[T]], deadline: float = float("inf")) -> T:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        deadline = min(deadline, time.monotonic() + self._config.max_block_ms / 1000)
        while True:
            try:
                return self._client.run(procedure())
            except BaseException as exc:  # Ctrl-C, too
                self.state.call_failed()
                pause_s = backoff.pause_s()
                if not isinstance(exc, RequestError) or not exc.retriable or time.monotonic() + pause_s >= deadline:
                    raise
            time.sleep(pause_s)


class BlockingTransaction:
    """One transaction, as Transaction: a block that commits or aborts at its end, or its methods."""

    def __init__(self, calls: BlockingTransactionCalls) -> None:
        self._calls = calls

    def begin(self) -> None:
        """Begin it. InvalidTxnStateError when another is open, unless that was left after a commit of unknown outcome."""
        self._calls.begin()

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Commit these offsets of a group together with the records: at the commit, or not at all."""
        self._calls.send_offsets(group, offsets)

    def commit(self) -> None:
        """Make records and offsets visible; raises as Transaction.commit."""
        self._calls.commit()

    def abort(self, timeout_s: float | None = None) -> None:
        """Make sure that nobody sees the records and offsets. InvalidTxnStateError when a commit may have been made;
        TimeoutError, or what the last attempt failed with, when that is not done within `timeout_s`."""
        self._calls.abort(timeout_s)

    def __enter__(self) -> Self:
        self._calls.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        state = self._calls.state
        if kind is None and state.is_open:
            try:
                self._calls.commit()
            except BaseException:  # Ctrl-C, too: nobody else could end it
                self._abort_quietly()
                raise
        elif state.is_open:
            self._abort_quietly()

    def _abort_quietly(self) -> None:
        """Abort because something else went wrong, which is what the caller shall hear of."""
        state = self._calls.state
        try:
            if state.can_abort:
                with contextlib.suppress(TriologError, TimeoutError):
                    self._calls.abort(ABORT_TIMEOUT_S)
        finally:
            if state.is_open:
                state.leave_behind()
