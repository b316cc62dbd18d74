"""Batches and records out of assigned partitions, for programs without trio. What to fetch is `reading`'s.

While the program works on the batches of one answer the next request is already with the server: it is sent before they are
handed out, and its answer is taken in when they are used up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self, TypeVar, Unpack

from ....protocol.errors import RequestError
from ....protocol.native.messages import FetchResponse
from ....protocol.types import Record, TopicPartition
from ..assignment import Assignment, may_pass
from ..backoff import Backoff
from ..config import ConsumerConfig
from ..errors import ClosedError
from ..exchange import expect
from ..options import ConsumerOptions, consumer_config
from ..procedures.topics import EARLIEST, LATEST
from ..reading import Fetch, FetchedBatch
from .client import BlockingClient, Started
from .in_place import blocking

T = TypeVar("T")


class _Ahead(NamedTuple):
    fetch: Fetch
    started: Started


class BlockingConsumer:
    """Reads the partitions it is assigned. Iterate it for FetchedBatch, or `records()`. Owner: one thread, the client's."""

    def __init__(
        self, client: BlockingClient, config: ConsumerConfig | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._client = client
        self._config = consumer_config(config, options)
        self._shared = Assignment(client.driver, self._config, self._forget_ahead)
        self._ahead: _Ahead | None = None
        self._backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        self._retry_at = -float("inf")  # no fetch before
        self._give_up_at = float("inf")  # known while fetches fail, whatever the calls that make them
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<BlockingConsumer of {len(self._shared._positions)} partitions, {len(self._shared._batches)} batches fetched>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._shared.assignment

    def position(self, partition: TopicPartition) -> int:
        """The offset after the last batch taken, or after what is left out behind it."""
        return self._shared.position(partition)

    def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of every assigned partition, for `commit` and a transaction's `send_offsets`."""
        return self._shared.positions()

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """As of the last answer; None before the first."""
        return self._shared.high_watermark(partition)

    commit = blocking(Assignment.commit)
    committed = blocking(Assignment.committed)
    seek_to_committed = blocking(Assignment.seek_to_committed)
    assign = blocking(Assignment.assign)
    seek = blocking(Assignment.seek)
    stop_at = blocking(Assignment.stop_at)

    def next_batch(self, timeout_s: float | None = None) -> FetchedBatch | None:
        """The next batch; None when every partition has reached its end; TimeoutError when none came in time.

        What may pass is retried for `retry_timeout_ms`, counted through calls however short; then it is raised.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not self._shared._batches:
            if self._is_closed:
                raise ClosedError("the consumer is closed")
            if self._shared._reading.is_finished:
                return None
            self._receive_or_retry(deadline)
            if not self._shared._batches and time.monotonic() >= deadline:
                raise TimeoutError(f"no batch within {timeout_s} s")
        return self._shared._take_next()

    def __iter__(self) -> Iterator[FetchedBatch]:
        while (batch := self.next_batch()) is not None:
            yield batch

    def records(self) -> Iterator[tuple[TopicPartition, Record]]:
        """The records one by one, with their partitions."""
        for batch in self:
            for record in batch.records():
                yield batch.partition, record

    def close(self) -> None:
        """Read no more."""
        self._is_closed = True
        self._forget_ahead()

    def _receive(self, deadline: float) -> None:
        """Take in one answer, waiting no longer than the deadline, and ask for the next one."""
        if self._shared._reading.lost:
            self._reset_lost()
        ahead = self._ahead or self._ask()
        if ahead is None:
            return
        if not ahead.started.is_due(deadline):
            return
        self._ahead = None
        for batch in self._shared._reading.accept(ahead.fetch, expect(FetchResponse, ahead.started.take())):
            self._shared._batches.append(batch)
        self._forget_failures()
        if not ahead.started.is_lost:
            self._ask()

    def _ask(self) -> _Ahead | None:
        fetch = self._shared._reading.next_fetch()
        if fetch is None:
            return None
        self._ahead = _Ahead(fetch, self._client.start(fetch.request))
        return self._ahead

    def _reset_lost(self) -> None:
        for partition, error in list(self._shared._reading.lost.items()):
            if self._config.offset_reset is None:
                raise error
            self.seek(partition, EARLIEST if self._config.offset_reset == "earliest" else LATEST)

    def _receive_or_retry(self, deadline: float) -> None:
        while (now := time.monotonic()) < self._retry_at:
            time.sleep(max(0.0, min(self._retry_at, deadline) - now))
            if deadline < self._retry_at:
                return
        try:
            self._receive(deadline)
        except RequestError as exc:
            self._forget_ahead()
            now = time.monotonic()
            self._give_up_at = min(self._give_up_at, now + self._config.retry_timeout_ms / 1000)
            if self._shared._batches:
                return  # they come first; the same fetch will fail again
            if not may_pass(exc) or now >= self._give_up_at:
                self._forget_failures()
                raise
            self._retry_at = now + self._backoff.pause_s()

    def _forget_failures(self) -> None:
        """The next failure counts from itself."""
        self._backoff.reset()
        self._give_up_at = float("inf")

    def _forget_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.started.forget()
            self._ahead = None
