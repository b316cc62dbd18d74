"""Batches and records out of assigned partitions: the consumer for trio programs.

One task fetches ahead, up to `prefetch_bytes`; the program takes batches. What to fetch and what an answer holds is
`reading`'s. A lost connection, or an error of a partition that may pass, is retried for `retry_timeout_ms`; after that, or for
any other error, the batches that came before it are handed out first, then it is raised.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Self, TypeVar, Unpack

import trio

from ...protocol.errors import TriologError
from ...protocol.types import Record, TopicPartition
from .assignment import Assignment
from .config import ConsumerConfig
from .connection import Client, open_background
from .errors import ClosedError
from .loops import Scope
from .options import ConsumerOptions, consumer_config
from .procedures.topics import EARLIEST, LATEST, AtOffset
from .reading import FetchedBatch

T = TypeVar("T")


class Consumer(Assignment):
    """Reads the partitions it is assigned. `run` is its fetching task; one other task iterates. Use `open_consumer`.

    `async for batch in consumer` gives FetchedBatch; `async for partition, record in consumer.records()` single records,
    at 3 us more for each, the price of a checkpoint. Both end when every partition has reached its end.
    """

    def __init__(self, client: Client, config: ConsumerConfig) -> None:
        super().__init__(client.driver, config, self._stop_fetching)
        self._client = client
        self._buffered_bytes = 0
        self._failure: TriologError | None = None
        self._loop = client.loop
        self._fetch_scope: Scope | None = None
        self._wake_fetcher = self._loop.event()
        self._arrived = self._loop.event()

    def __repr__(self) -> str:
        return f"<Consumer of {len(self._positions)} partitions, {len(self._batches)} batches fetched>"

    @property
    def checkpoint(self) -> Callable[[], Awaitable[None]]:
        """Return the checkpoint of the consumer's loop."""
        return self._loop.checkpoint

    @trio.lowlevel.enable_ki_protection
    async def next_batch(self) -> FetchedBatch | None:
        """The next batch; None when every partition has reached its end. Cancelled or interrupted, nothing is lost."""
        await self._loop.checkpoint()
        while not self._batches:
            if self._failure is not None:
                raise self._failure
            if self._reading.is_finished:
                return None
            self._arrived = self._loop.event()
            await self._arrived.wait()
        batch = self._take_next()
        self._buffered_bytes -= len(batch.data)
        self._wake_fetcher.set()
        return batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FetchedBatch:
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    def records(self) -> Records:
        """The records one by one, as (partition, record)."""
        return Records(self)

    @trio.lowlevel.enable_ki_protection  # half an answer taken in would be positions of batches that nobody gets
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch ahead until cancelled or failed."""
        task_status.started()
        try:
            while True:
                self._wake_fetcher = self._loop.event()
                if self._reading.lost:
                    await self._reset_lost()
                is_idle = False
                with self._loop.scope() as self._fetch_scope:
                    is_idle = not await self._retried(self._fetch)
                self._fetch_scope = None
                if is_idle:
                    await self._wake_fetcher.wait()
        except TriologError as exc:
            self._failure = exc
        finally:
            self._failure = self._failure or ClosedError("the consumer is closed")
            self._arrived.set()

    async def _fetch(self) -> bool:
        """Take in one answer; False when there is nothing to fetch now, or no room for it."""
        if self._reading.lost:  # by an answer of which another partition failed
            return True
        fetch = self._reading.next_fetch() if self._buffered_bytes < self._config.prefetch_bytes else None
        if fetch is None:
            return False
        response = await self._client.call_fetch(fetch.request)
        try:
            for batch in self._reading.accept(fetch, response):
                self._batches.append(batch)
                self._buffered_bytes += len(batch.data)
        finally:
            self._arrived.set()
        return True

    async def _reset_lost(self) -> None:
        for partition, error in list(self._reading.lost.items()):
            if self._config.offset_reset is None:
                raise error
            place = EARLIEST if self._config.offset_reset == "earliest" else LATEST
            located = await self._retried(partial(self._locate, partition, place))
            offset = located[partition]
            if partition in self._reading.lost:  # no seek came in between
                self._reading.seek(partition, offset)
                self._positions[partition] = offset

    def _stop_fetching(self) -> None:
        self._buffered_bytes = sum(len(batch.data) for batch in self._batches)
        if self._fetch_scope is not None:
            self._fetch_scope.cancel()
        self._wake_fetcher.set()
        self._arrived.set()


class Records:
    """The records of a consumer, one by one. `async for partition, record in consumer.records()`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._checkpoint = consumer.checkpoint
        self._partition = TopicPartition("", 0)
        self._records: Iterator[Record] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[TopicPartition, Record]:
        await self._checkpoint()
        while (record := next(self._records, None)) is None:
            batch = await self._consumer.__anext__()
            self._partition = batch.partition
            self._records = iter(batch.records())
        return self._partition, record


@asynccontextmanager
async def open_consumer(
    client: Client, config: ConsumerConfig | None = None, **options: Unpack[ConsumerOptions]
) -> AsyncIterator[Consumer]:
    """A consumer over `client`, with ConsumerConfig's fields as keywords."""
    consumer = Consumer(client, consumer_config(config, options))
    async with open_background() as nursery:
        await nursery.start(consumer.run)
        yield consumer
        nursery.cancel_scope.cancel()


__all__ = ["EARLIEST", "LATEST", "AtOffset", "Consumer", "FetchedBatch", "Records", "open_consumer"]
