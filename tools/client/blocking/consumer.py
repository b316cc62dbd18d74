"""Batches and records out of assigned partitions, for blocking programs: the shared `Consumer` over the client's loop.

While the program works on the batches of one answer the next request is already with the server: it is sent before they are
handed out, and its answer is taken in by the next call that waits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import TracebackType
from typing import Self, Unpack

from ....protocol.errors import TriologError
from ....protocol.types import Record, TopicPartition
from ..config import ConsumerConfig
from ..consumer import Consumer
from ..errors import ClosedError
from ..loops import Scope
from ..options import ConsumerOptions, consumer_config
from ..reading import FetchedBatch
from .client import BlockingClient
from .in_place import blocking, same


class BlockingConsumer:
    """Reads the partitions it is assigned. Iterate it for FetchedBatch, or `records()`. Owner: one thread, the client's."""

    def __init__(
        self, client: BlockingClient, config: ConsumerConfig | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        self._loop = client.loop
        self._shared = Consumer(client._shared, consumer_config(config, options))
        self._fetching: Scope | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._shared)[1:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._shared.assignment

    position = same(Consumer.position)
    positions = same(Consumer.positions)
    high_watermark = same(Consumer.high_watermark)
    commit = blocking(Consumer.commit)
    committed = blocking(Consumer.committed)
    seek_to_committed = blocking(Consumer.seek_to_committed)
    assign = blocking(Consumer.assign)
    seek = blocking(Consumer.seek)
    stop_at = blocking(Consumer.stop_at)

    def next_batch(self, timeout_s: float | None = None) -> FetchedBatch | None:
        """The next batch; None when every partition has reached its end; TimeoutError when none came in time.

        What may pass is retried for `retry_timeout_ms`, counted through calls however short; then it is raised, and the next
        call begins again.
        """
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        if self._fetching is None:
            self._shared._forget_failure()
            self._fetching = self._loop.start_guarded(self._shared.run)
        return self._loop.run(self._next_batch(timeout_s))

    async def _next_batch(self, timeout_s: float | None) -> FetchedBatch | None:
        loop = self._loop.parts
        try:
            with loop.scope(deadline=math.inf if timeout_s is None else loop.now() + timeout_s):
                return await self._shared.next_batch()
        except TriologError:
            self._fetching = None
            raise
        raise TimeoutError(f"no batch within {timeout_s} s")

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
        if self._fetching is not None:
            self._fetching.cancel()
            self._loop.turn()
