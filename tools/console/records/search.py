"""A search through a range of a topic, from its oldest record to its newest or the other way, told as events: `match`,
`progress`, `done`.

It ends at its end, at so many matches, or when nobody listens any more. A batch in which the bytes that are looked for do not
occur is passed over without its records being made. From the newest on the range is read in stretches, the last one first; the
matches of a stretch come together, the newest first, so in each partition they stand in the order of falling offsets.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from ....protocol.limits import MAX_DECOMPRESSED_BYTES
from ....protocol.records.unpacking import records_data
from ....protocol.types import Isolation, Record, TimeRange, TopicPartition
from ...client.config import ConsumerConfig
from ...client.connection import Client
from ...client.reading import FetchedBatch, Reading
from ..events import EventQueue
from .contents import shown_record
from .pages import LARGE_BYTES

if TYPE_CHECKING:
    from .schemas import Schemas

PLACES: Final = ("any", "key", "whole-key", "value", "headers")


@attrs.frozen
class Needle:
    """A text, as its bytes in UTF-8, and where it has to be. `ignores_case` is about the letters of ASCII."""

    text: str
    place: str = "any"
    ignores_case: bool = False
    _wanted: bytes = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_wanted", self._folded(self.text.encode(errors="surrogatepass")))

    def may_be_in(self, batch: FetchedBatch) -> bool:
        """Return whether the needle can be in a batch. Most batches are excluded without decoding a record."""
        return self._wanted in self._folded(records_data(batch.data, batch.header, MAX_DECOMPRESSED_BYTES))

    def is_in(self, record: Record) -> bool:
        match self.place:
            case "key":
                return self._holds(record.key)
            case "whole-key":
                return record.key is not None and self._folded(record.key) == self._wanted
            case "value":
                return self._holds(record.value)
            case "headers":
                return self._is_in_headers(record)
        return self._holds(record.value) or self._holds(record.key) or self._is_in_headers(record)

    def _is_in_headers(self, record: Record) -> bool:
        return any(self._holds(name.encode()) or self._holds(value) for name, value in record.headers)

    def _holds(self, data: bytes | None) -> bool:
        return data is not None and self._wanted in self._folded(data)

    def _folded(self, data: bytes) -> bytes:
        return data.lower() if self.ignores_case else data


MAX_FETCH_BYTES: Final = 2**20
MAX_PARTITION_FETCH_BYTES: Final = 2**19
PROGRESS_S: Final = 0.25
FIRST_STRETCH: Final = 1_000
LONGEST_STRETCH: Final = 16_000
"""Offsets of each partition; each stretch is twice as long as the one before."""

Places = Mapping[int, int]
Row = dict[str, Any]


@attrs.define(eq=False, repr=False, kw_only=True)
class Search:
    """A search through the records of a topic. Owner: its stream."""

    client: Client
    topic: str
    needle: Needle
    kind: str
    limit: int
    starts: Places
    ends: Places
    times: TimeRange | None = None
    is_newest_first: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    schemas: Schemas | None = None
    found: int = 0
    records: int = 0
    read_bytes: int = 0
    _begin: Places = attrs.field(factory=dict)
    """Of the stretch that is read."""
    _passed: int = 0
    """Offsets of the stretches that are done."""
    _told_s: float = 0.0

    async def run(self, queue: EventQueue) -> None:
        """Put all that is found into the queue, and wait where it is full."""
        self._told_s = trio.current_time()
        reading = Reading(
            ConsumerConfig(
                max_wait_ms=0,
                max_bytes=MAX_FETCH_BYTES,
                partition_max_bytes=MAX_PARTITION_FETCH_BYTES,
                isolation=self.isolation,
                skip_gaps=True,
            )
        )
        for starts, ends in self._stretches():
            self._begin = starts
            reading.assign(self._named(starts), self._named(ends), self.times)
            await self._read(queue, reading)
            if self.found >= self.limit:
                break
            self._passed += sum(ends.values()) - sum(starts.values())
            reading.assign({}, {})
        reason = "limit" if self.found >= self.limit else "end"
        await queue.send("done", {"reason": reason, **self._progress(reading)})

    def _stretches(self) -> Iterator[tuple[Places, Places]]:
        """Starts and ends, in the order in which they are read."""
        if not self.is_newest_first:
            yield self.starts, self.ends
            return
        ends, length = dict(self.ends), FIRST_STRETCH
        while left := {partition: end for partition, end in ends.items() if end > self.starts[partition]}:
            starts = {partition: max(self.starts[partition], end - length) for partition, end in left.items()}
            yield starts, left
            ends, length = starts, min(2 * length, LONGEST_STRETCH)

    async def _read(self, queue: EventQueue, reading: Reading) -> None:
        """Read one stretch and send its matches."""
        newest: dict[int, deque[Row]] = {number: deque(maxlen=self.limit - self.found) for number in self._begin}
        while (fetch := reading.next_fetch()) is not None:
            before, has_come = self._offsets(reading), False
            response = await self.client.call_fetch(fetch.request)
            for batch in reading.accept(fetch, response):
                has_come, number = True, batch.partition.partition
                self._count(batch)
                matches = await self._matches(batch)
                if self.schemas is not None:
                    await self.schemas.prepare(matches[: self.limit])
                shown = partial(shown_record, number, kind=self.kind, schemas=self.schemas)
                if self.is_newest_first:
                    newest[number].extend(shown(each) for each in matches[self.found - self.limit :])
                else:
                    await self._send(queue, (shown(each) for each in matches))
                    if self.found >= self.limit:
                        return
                await self._tell(queue, reading)
            if not has_come and self._offsets(reading) == before:
                break  # there is nothing more that may be read
        await self._send(queue, heapq.merge(*(reversed(rows) for rows in newest.values()), key=_time, reverse=True))

    async def _send(self, queue: EventQueue, rows: Iterable[Row]) -> None:
        """As many as may still be told."""
        for row in islice(rows, self.limit - self.found):
            self.found += 1
            await queue.send("match", row)

    def _count(self, batch: FetchedBatch) -> None:
        """A batch that stretches share is counted where it begins."""
        number, self.read_bytes = batch.partition.partition, self.read_bytes + len(batch.data)
        if batch.header.base_offset >= self._begin[number] or self._begin[number] == self.starts[number]:
            self.records += batch.header.records_count

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
        here = sum(reading.position(name) - self._begin[name.partition] for name in reading.partitions)
        return {
            "found": self.found,
            "records": self.records,
            "bytes": self.read_bytes,
            "share": 1.0 if total <= 0 else round(min(1.0, (self._passed + here) / total), 4),
        }

    def _offsets(self, reading: Reading) -> int:
        return sum(reading.position(name) for name in reading.partitions)

    def _named(self, places: Mapping[int, int]) -> dict[TopicPartition, int]:
        return {TopicPartition(self.topic, partition): offset for partition, offset in places.items()}


def _time(row: Row) -> int:
    return int(row["timestamp"])
