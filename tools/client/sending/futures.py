"""Futures of sent records: one small object per record, resolved by its batch.

A record knows its batch and its index in it; offset and error are the batch's. So an acknowledgement of a thousand records
changes one object, and a record without a waiter costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....protocol.errors import TriologError
from ....protocol.types import NO_OFFSET, NO_TIMESTAMP


class RecordMetadata(NamedTuple):
    """The position of a record. `offset` is -1 with acks 0. It is also -1 when a server was killed while it wrote the request,
    and a retry left the batches in two places. `timestamp` is the log append time where the topic uses it."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class BatchOutcome:
    """The outcome of one batch. The accumulator sets it once; the futures of its records await it."""

    __slots__ = ("_listeners", "base_offset", "error", "is_done", "log_append_time", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.is_done = False
        self.base_offset = NO_OFFSET
        self.log_append_time = NO_TIMESTAMP
        self.error: TriologError | None = None
        self._listeners: list[Callable[[], object]] = []

    def add_listener(self, listener: Callable[[], object]) -> None:
        """Call `listener` when the batch is done; at once if it is. It must not raise."""
        if self.is_done:
            listener()
        else:
            self._listeners.append(listener)

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        """The batch is acknowledged."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._finish()

    def fail(self, error: TriologError) -> None:
        """The batch is given up."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
        assert not self.is_done, f"batch of {self.topic}-{self.partition} is done twice"
        self.is_done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


class RecordFuture:
    """The future of a sent record. Each producer implements the wait for it."""

    __slots__ = ("_index", "_outcome", "_timestamp")

    def __init__(self, outcome: BatchOutcome, index: int, timestamp: int) -> None:
        self._outcome = outcome
        self._index = index
        self._timestamp = timestamp

    def __repr__(self) -> str:
        outcome = self._outcome
        state = "pending" if not outcome.is_done else f"failed: {outcome.error}" if outcome.error else "done"
        return f"<{type(self).__name__} {outcome.topic}-{outcome.partition} {state}>"

    @property
    def is_done(self) -> bool:
        """Return whether the record was acknowledged or given up."""
        return self._outcome.is_done

    def value(self) -> RecordMetadata:
        """Return the record's metadata, once it is done; raise the error that its batch failed with."""
        outcome = self._outcome
        assert outcome.is_done, "the record has no result yet"
        if outcome.error is not None:
            raise outcome.error.with_traceback(None)  # one error for all records of the batch
        offset = outcome.base_offset
        return RecordMetadata(
            outcome.topic,
            outcome.partition,
            offset if offset == NO_OFFSET else offset + self._index,
            self._timestamp if outcome.log_append_time == NO_TIMESTAMP else outcome.log_append_time,
        )

    def add_listener(self, listener: Callable[[], object]) -> None:
        """Call `listener` when the record is done; at once if it is. It must not raise."""
        self._outcome.add_listener(listener)
