"""The partitions that a consumer reads and the positions of its program, for programs with and without trio. `reading` owns the
fetches and the contents of their responses."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ...protocol.types import TimeRange, TopicPartition
from .config import ConsumerConfig
from .procedures import groups as group_procedures
from .procedures import topics as procedures
from .procedures.driving import Driver
from .procedures.groups import CommittedOffset
from .procedures.topics import EARLIEST, LATEST, AtOffset, Place
from .reading import FetchedBatch, Reading

T = TypeVar("T")


def may_pass(error: RequestError) -> bool:
    """Return whether the read may be retried; damage persists, so CORRUPT_MESSAGE may not."""
    return error.retriable and error.code is not ErrorCode.CORRUPT_MESSAGE


class Assignment:
    """The partitions of a consumer, and the calls that change them. `dropped` is called when what was fetched, or is being
    fetched, is not wanted any more."""

    def __init__(self, driver: Driver, config: ConsumerConfig, dropped: Callable[[], None]) -> None:
        self._dropped = dropped
        self._driver = driver
        self._config = config
        self._reading = Reading(config)
        self._batches: deque[FetchedBatch] = deque()
        self._positions: dict[TopicPartition, int] = {}

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
        """Return the next offset of every assigned partition, for `commit` and `Transaction.send_offsets`."""
        return {partition: self.position(partition) for partition in self.assignment}

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Keep these offsets for the group, or the positions: of whole batches taken, whatever of them was looked at."""
        kept = self.positions() if offsets is None else offsets
        await self._retried(lambda: self._driver.run(group_procedures.commit_offsets(self._group(), kept)))

    async def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets for the assigned partitions; partitions without one are left out."""
        procedure = partial(group_procedures.fetch_offsets, self._group(), self.assignment, require_stable=True)
        return await self._retried(lambda: self._driver.run(procedure()))

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
        partitions = await self._driver.run(procedures.partitions_of(named))
        starts = await self._driver.run(procedures.locate(partitions, start, self._config.isolation))
        ends: dict[TopicPartition, int] = {}
        if end is not None or not self._config.follow:
            ends = await self._driver.run(procedures.locate(partitions, end or LATEST, self._config.isolation))
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

    def _take_next(self) -> FetchedBatch:
        """The first of the batches that were fetched."""
        batch = self._batches.popleft()
        self._positions[batch.partition] = batch.next_offset
        return batch

    async def _locate(self, partition: TopicPartition, place: Place) -> dict[TopicPartition, int]:
        return await self._driver.run(procedures.locate([partition], place, self._config.isolation))

    def _group(self) -> str:
        if self._config.group is None:
            raise InvalidRequestError("the consumer has no group. Open it with group=...")
        return self._config.group

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._driver.retried(attempt, self._config.retry_timeout_ms, self._config, passes=may_pass)

    def _drop(self, partition: TopicPartition | None) -> None:
        """Forget what was fetched of a partition, or of all, and what is being fetched."""
        self._batches = deque(batch for batch in self._batches if partition is not None and batch.partition != partition)
        self._dropped()
