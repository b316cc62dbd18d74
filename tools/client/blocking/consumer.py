"""Batches and records out of assigned partitions, for programs without trio. What to fetch is `reading`'s.

While the program works on the batches of one answer the next request is already with the server: it is sent before they are
handed out, and its answer is taken in when they are used up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import attrs

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.native.messages import FetchResponse
from ....protocol.types import Record, TimeRange, TopicPartition
from ..backoff import Backoff, Retries
from ..config import ConsumerConfig
from ..errors import ClosedError
from ..exchange import expect
from ..procedures import groups as group_procedures
from ..procedures import topics as procedures
from ..procedures.groups import CommittedOffset
from ..procedures.topics import EARLIEST, LATEST, AtOffset, Place, Procedure
from ..reading import Fetch, FetchedBatch, Reading
from .client import BlockingClient, Started

T = TypeVar("T")


class _Ahead(NamedTuple):
    fetch: Fetch
    started: Started


class BlockingConsumer:
    """Reads the partitions it is assigned. Iterate it for FetchedBatch, or `records()`. Owner: one thread, the client's."""

    def __init__(self, client: BlockingClient, config: ConsumerConfig | None = None, **options: Any) -> None:
        self._client = client
        self._config = attrs.evolve(ConsumerConfig() if config is None else config, **options)
        self._reading = Reading(self._config)
        self._batches: deque[FetchedBatch] = deque()
        self._positions: dict[TopicPartition, int] = {}
        self._ahead: _Ahead | None = None
        self._backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        self._retry_at = -float("inf")  # no fetch before
        self._give_up_at = float("inf")  # known while fetches fail, whatever the calls that make them
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<BlockingConsumer of {len(self._positions)} partitions, {len(self._batches)} batches fetched>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

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
        """Where every assigned partition goes on; what `commit` keeps, and a transaction's `send_offsets` takes."""
        return {partition: self.position(partition) for partition in self.assignment}

    def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Keep these offsets for the group, or the positions: of whole batches taken, whatever of them was looked at."""
        kept = self.positions() if offsets is None else offsets
        self._retried(lambda: group_procedures.commit_offsets(self._group(), kept))

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """What the group has kept for the assigned partitions; those without are left out."""
        return self._retried(lambda: group_procedures.fetch_offsets(self._group(), self.assignment, require_stable=True))

    def seek_to_committed(self) -> dict[TopicPartition, int]:
        """Go on where the group has got to; partitions that it has nothing for stay where they are. Answers the positions."""
        for partition, kept in self.committed().items():
            self.seek(partition, AtOffset(kept.offset))
        return self.positions()

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """As of the last answer; None before the first."""
        return self._reading.high_watermark(partition)

    def assign(
        self,
        topics: str | TopicPartition | Iterable[str | TopicPartition],
        *,
        start: Place = EARLIEST,
        end: Place | None = None,
        times: TimeRange | None = None,
    ) -> None:
        """Read these partitions, or all of these topics, and no others, from `start` up to `end`, as Consumer.assign; with
        `times` exactly the records of that range."""
        named = [topics] if isinstance(topics, str | TopicPartition) else topics
        partitions = self._client.run(procedures.partitions_of(named))
        starts = self._client.run(procedures.locate(partitions, start, self._config.isolation))
        ends: dict[TopicPartition, int] = {}
        if end is not None or not self._config.follow:
            ends = self._client.run(procedures.locate(partitions, end or LATEST, self._config.isolation))
        self._reading.assign(starts, ends, times)
        self._positions = dict(starts)
        self._drop(None)

    def seek(self, partition: TopicPartition, place: Place) -> None:
        """Go on elsewhere in one partition; batches of it that were fetched ahead are dropped."""
        offset = self._locate(partition, place)
        self._reading.seek(partition, offset)
        self._positions[partition] = offset
        self._drop(partition)

    def stop_at(self, partition: TopicPartition, place: Place | None) -> None:
        """End reading of one partition at a place (exclusive); None: follow it."""
        end = None if place is None else self._locate(partition, place)
        self._reading.seek(partition, self.position(partition))
        self._reading.stop_at(partition, end)
        self._drop(partition)

    def next_batch(self, timeout_s: float | None = None) -> FetchedBatch | None:
        """The next batch; None when every partition has reached its end; TimeoutError when none came in time.

        What may pass is retried for `retry_timeout_ms`, counted through calls however short; then it is raised.
        """
        deadline = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not self._batches:
            if self._is_closed:
                raise ClosedError("the consumer is closed")
            if self._reading.is_finished:
                return None
            self._receive_or_retry(deadline)
            if not self._batches and time.monotonic() >= deadline:
                raise TimeoutError(f"no batch within {timeout_s} s")
        batch = self._batches.popleft()
        self._positions[batch.partition] = batch.next_offset
        return batch

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

    def _locate(self, partition: TopicPartition, place: Place) -> int:
        return self._client.run(procedures.locate([partition], place, self._config.isolation))[partition]

    def _group(self) -> str:
        if self._config.group is None:
            raise InvalidRequestError("the consumer has no group; open it with group=...")
        return self._config.group

    def _retried(self, procedure: Callable[[], Procedure[T]]) -> T:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        retries = Retries(self._config.retry_timeout_ms / 1000, backoff=backoff)
        return self._client.retried(lambda: self._client.run(procedure()), retries)

    def _receive(self, deadline: float) -> None:
        """Take in one answer, waiting no longer than the deadline, and ask for the next one."""
        if self._reading.lost:
            self._reset_lost()
        ahead = self._ahead or self._ask()
        if ahead is None:
            return
        if not ahead.started.is_due(deadline):
            return
        self._ahead = None
        for batch in self._reading.accept(ahead.fetch, expect(FetchResponse, ahead.started.take())):
            self._batches.append(batch)
        self._forget_failures()
        if not ahead.started.is_lost:
            self._ask()

    def _ask(self) -> _Ahead | None:
        fetch = self._reading.next_fetch()
        if fetch is None:
            return None
        self._ahead = _Ahead(fetch, self._client.start(fetch.request, fetch.request.max_wait_ms))
        return self._ahead

    def _reset_lost(self) -> None:
        for partition, error in list(self._reading.lost.items()):
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
            if self._batches:
                return  # they come first; the same fetch will fail again
            is_damage = exc.code is ErrorCode.CORRUPT_MESSAGE  # it is there the next time, too
            if not exc.retriable or is_damage or now >= self._give_up_at:
                self._forget_failures()
                raise
            self._retry_at = now + self._backoff.pause_s()

    def _forget_failures(self) -> None:
        """The next failure counts from itself."""
        self._backoff.reset()
        self._give_up_at = float("inf")

    def _drop(self, partition: TopicPartition | None) -> None:
        """Forget what was fetched of a partition, or of all, and what is being fetched."""
        kept = [batch for batch in self._batches if partition is not None and batch.partition != partition]
        self._batches = deque(kept)
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.started.forget()
            self._ahead = None
