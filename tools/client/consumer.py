"""Batches and records out of assigned partitions: the consumer for trio programs.

One task fetches ahead, up to `prefetch_bytes`; the program takes batches. What to fetch and what an answer holds is
`reading`'s. A lost connection, or an error of a partition that may pass, is retried for `retry_timeout_ms`; after that, or for
any other error, the batches that came before it are handed out first, then it is raised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar

import attrs
import trio

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError, TriologError
from ...protocol.types import Record, TimeRange, TopicPartition
from .background import open_background
from .backoff import Backoff
from .config import ConsumerConfig
from .connection import Client
from .errors import ClosedError
from .procedures import groups as group_procedures
from .procedures import topics as procedures
from .procedures.groups import CommittedOffset
from .procedures.topics import EARLIEST, LATEST, AtOffset, Place
from .reading import FetchedBatch, Reading

T = TypeVar("T")


class Consumer:
    """Reads the partitions it is assigned. `run` is its fetching task; one other task iterates. Use `open_consumer`.

    `async for batch in consumer` gives FetchedBatch; `async for partition, record in consumer.records()` single records,
    at 3 us more for each, the price of a checkpoint. Both end when every partition has reached its end.
    """

    def __init__(self, client: Client, config: ConsumerConfig) -> None:
        self._client = client
        self._config = config
        self._reading = Reading(config)
        self._batches: deque[FetchedBatch] = deque()
        self._buffered_bytes = 0
        self._positions: dict[TopicPartition, int] = {}
        self._failure: TriologError | None = None
        self._fetch_scope: trio.CancelScope | None = None
        self._wake_fetcher = trio.Event()
        self._arrived = trio.Event()

    def __repr__(self) -> str:
        return f"<Consumer of {len(self._positions)} partitions, {len(self._batches)} batches fetched>"

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._reading.partitions

    def position(self, partition: TopicPartition) -> int:
        """The offset after the last batch taken, or after what is left out behind it."""
        if any(batch.partition == partition for batch in self._batches):
            return self._positions[partition]
        return self._reading.position(partition)

    def positions(self) -> dict[TopicPartition, int]:
        """Where every assigned partition goes on; what `commit` keeps, and `Transaction.send_offsets` takes."""
        return {partition: self.position(partition) for partition in self.assignment}

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Keep these offsets for the group, or the positions: of whole batches taken, whatever of them was looked at."""
        kept = self.positions() if offsets is None else offsets
        await self._retried(lambda: self._client.run(group_procedures.commit_offsets(self._group(), kept)))

    async def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """What the group has kept for the assigned partitions; those without are left out."""
        procedure = partial(group_procedures.fetch_offsets, self._group(), self.assignment, require_stable=True)
        return await self._retried(lambda: self._client.run(procedure()))

    async def seek_to_committed(self) -> dict[TopicPartition, int]:
        """Go on where the group has got to; partitions that it has nothing for stay where they are. Answers the positions."""
        for partition, kept in (await self.committed()).items():
            await self.seek(partition, AtOffset(kept.offset))
        return self.positions()

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """As of the last answer; None before the first."""
        return self._reading.high_watermark(partition)

    async def assign(
        self,
        topics: str | TopicPartition | Iterable[str | TopicPartition],
        *,
        start: Place = EARLIEST,
        end: Place | None = None,
        times: TimeRange | None = None,
    ) -> None:
        """Read these partitions, or all of these topics, and no others, from `start` up to `end` (exclusive).

        AtTime(a) to AtTime(b) are offsets: from the first record at or after a up to the first at or after b, whatever
        the timestamps between them are. TimeRange(a, b) as `times` is exact: the records from a until before b, also those that
        were written late, in the order of their offsets, and reading ends with the range, as far as it is there by then.
        Without `end` reading follows the log unless there are `times`, or without `follow` ends at the high watermark of now,
        under read_committed at the last stable offset.
        """
        named = [topics] if isinstance(topics, str | TopicPartition) else topics
        partitions = await self._client.run(procedures.partitions_of(named))
        starts = await self._client.run(procedures.locate(partitions, start, self._config.isolation))
        ends: dict[TopicPartition, int] = {}
        if end is not None or not self._config.follow:
            ends = await self._client.run(procedures.locate(partitions, end or LATEST, self._config.isolation))
        self._reading.assign(starts, ends, times)
        self._positions = dict(starts)
        self._drop(None)

    async def seek(self, partition: TopicPartition, place: Place) -> None:
        """Go on elsewhere in one partition; batches of it that were fetched ahead are dropped."""
        offset = (await self._locate(partition, place))[partition]
        self._reading.seek(partition, offset)
        self._positions[partition] = offset
        self._drop(partition)

    async def stop_at(self, partition: TopicPartition, place: Place | None) -> None:
        """End reading of one partition at a place (exclusive); None: follow it."""
        offset = None
        if place is not None:
            offset = (await self._locate(partition, place))[partition]
        self._reading.seek(partition, self.position(partition))
        self._reading.stop_at(partition, offset)
        self._drop(partition)

    @trio.lowlevel.enable_ki_protection
    async def next_batch(self) -> FetchedBatch | None:
        """The next batch; None when every partition has reached its end. Cancelled or interrupted, nothing is lost."""
        await trio.lowlevel.checkpoint()
        while not self._batches:
            if self._failure is not None:
                raise self._failure
            if self._reading.is_finished:
                return None
            self._arrived = trio.Event()
            await self._arrived.wait()
        batch = self._batches.popleft()
        self._buffered_bytes -= len(batch.data)
        self._positions[batch.partition] = batch.next_offset
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
                self._wake_fetcher = trio.Event()
                if self._reading.lost:
                    await self._reset_lost()
                is_idle = False
                with trio.CancelScope() as self._fetch_scope:
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
        response = await self._client.fetch(fetch.request)
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

    async def _locate(self, partition: TopicPartition, place: Place) -> dict[TopicPartition, int]:
        return await self._client.run(procedures.locate([partition], place, self._config.isolation))

    def _group(self) -> str:
        if self._config.group is None:
            raise InvalidRequestError("the consumer has no group; open it with group=...")
        return self._config.group

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        deadline = trio.current_time() + self._config.retry_timeout_ms / 1000
        while True:
            try:
                return await attempt()
            except RequestError as exc:
                is_damage = exc.code is ErrorCode.CORRUPT_MESSAGE  # it is there the next time, too
                if not exc.retriable or is_damage or trio.current_time() >= deadline:
                    raise
                await trio.sleep(backoff.pause_s())

    def _drop(self, partition: TopicPartition | None) -> None:
        """Forget what was fetched of a partition, or of all, and what is being fetched."""
        self._batches = deque(batch for batch in self._batches if partition is not None and batch.partition != partition)
        self._buffered_bytes = sum(len(batch.data) for batch in self._batches)
        if self._fetch_scope is not None:
            self._fetch_scope.cancel()
        self._wake_fetcher.set()
        self._arrived.set()


class Records:
    """The records of a consumer, one by one. `async for partition, record in consumer.records()`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._partition = TopicPartition("", 0)
        self._records: Iterator[Record] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[TopicPartition, Record]:
        await trio.lowlevel.checkpoint()
        while (record := next(self._records, None)) is None:
            batch = await self._consumer.__anext__()
            self._partition = batch.partition
            self._records = iter(batch.records())
        return self._partition, record


@asynccontextmanager
async def open_consumer(client: Client, config: ConsumerConfig | None = None, **options: Any) -> AsyncIterator[Consumer]:
    """A consumer over `client`, with ConsumerConfig's fields as keywords."""
    consumer = Consumer(client, attrs.evolve(ConsumerConfig() if config is None else config, **options))
    async with open_background() as nursery:
        await nursery.start(consumer.run)
        yield consumer
        nursery.cancel_scope.cancel()


__all__ = ["EARLIEST", "LATEST", "AtOffset", "Consumer", "FetchedBatch", "Records", "open_consumer"]
