"""A search through a range of a topic, from its oldest record to its newest, told as events: `match`, `progress`, `done`.

It ends at its end, at so many matches, or when nobody listens any more. A batch in which the bytes that are looked for do not
occur is passed over without its records being made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio

from ....protocol.types import Isolation, Record, TimeRange, TopicPartition
from ...client.config import ConsumerConfig
from ...client.connection import Client
from ...client.reading import FetchedBatch, Reading
from ..events import EventQueue
from .contents import shown_record
from .matching import Needle
from .pages import LARGE_BYTES

MAX_FETCH_BYTES: Final = 2**20
MAX_PARTITION_FETCH_BYTES: Final = 2**19
PROGRESS_S: Final = 0.25


@attrs.define(eq=False, kw_only=True)
class Search:
    """One search. Owner: its stream."""

    client: Client
    topic: str
    needle: Needle
    kind: str
    limit: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    times: TimeRange | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    found: int = 0
    records: int = 0
    read_bytes: int = 0
    _told_s: float = 0.0

    async def run(self, queue: EventQueue) -> None:
        """Put all that is found into the queue, and wait where it is full."""
        config = ConsumerConfig(
            max_wait_ms=0,
            max_bytes=MAX_FETCH_BYTES,
            partition_max_bytes=MAX_PARTITION_FETCH_BYTES,
            isolation=self.isolation,
            skip_gaps=True,
        )
        reading = Reading(config)
        reading.assign(self._named(self.starts), self._named(self.ends), self.times)
        self._told_s = trio.current_time()
        reason = "end"
        while (fetch := reading.next_fetch()) is not None:
            before, seen = self._offsets(reading), self.records
            response = await self.client.fetch(fetch.request)
            for batch in reading.accept(fetch, response):
                self.records += batch.header.records_count
                self.read_bytes += len(batch.data)
                for record in await self._matches(batch):
                    self.found += 1
                    await queue.send("match", shown_record(batch.partition.partition, record, self.kind))
                    if self.found >= self.limit:
                        break
                if self.found >= self.limit:
                    break
                await self._tell(queue, reading)
            if self.found >= self.limit:
                reason = "limit"
                break
            if self.records == seen and self._offsets(reading) == before:
                break  # there is nothing more that may be read
        await queue.send("done", {"reason": reason, **self._progress(reading)})

    async def _matches(self, batch: FetchedBatch) -> list[Record]:
        if len(batch.data) < LARGE_BYTES:
            await trio.lowlevel.checkpoint()
            return self._look(batch)
        return await trio.to_thread.run_sync(self._look, batch)

    def _look(self, batch: FetchedBatch) -> list[Record]:
        if not self.needle.may_be_in(batch):
            return []
        return [record for record in batch.records() if self.needle.is_in(record)]

    async def _tell(self, queue: EventQueue, reading: Reading) -> None:
        now_s = trio.current_time()
        if now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            await queue.send("progress", self._progress(reading))

    def _progress(self, reading: Reading) -> dict[str, Any]:
        total = sum(self.ends.values()) - sum(self.starts.values())
        done = self._offsets(reading) - sum(self.starts.values())
        return {
            "found": self.found,
            "records": self.records,
            "bytes": self.read_bytes,
            "share": 1.0 if total <= 0 else round(min(1.0, done / total), 4),
        }

    def _offsets(self, reading: Reading) -> int:
        return sum(reading.position(name) for name in reading.partitions)

    def _named(self, places: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic, partition): offset for partition, offset in places.items()}
