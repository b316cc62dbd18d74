"""Pages of records: of one partition in the order of its offsets, of several merged by time.

A page begins at a place, an offset for each partition, and goes on to newer records, or ends before one. In which order a
merge takes records of different partitions their timestamps say; within a partition it is always that of the offsets, so the
places where a page begins and ends are exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ....protocol.native.messages import FetchResponse
from ....protocol.types import Isolation, Record, TimeRange, TopicPartition
from ...client.config import ConsumerConfig
from ...client.connection import Client
from ...client.reading import FetchedBatch, Reading
from .contents import shown_record

if TYPE_CHECKING:
    from .schemas import Schemas

MAX_FETCH_BYTES: Final = 2**20
MAX_PARTITION_FETCH_BYTES: Final = 256 * 1024
LARGE_BYTES: Final = 256 * 1024
"""Batches from here on are unpacked in a thread."""
LOOK_BACK_TIMES: Final = 4
MOST_LOOKS_BACK: Final = 6
"""Where compaction, or markers of transactions, left few records the stretch looked at becomes longer: 4 times each time."""

Places = dict[int, int]
"""Offsets by partition."""
Row = dict[str, Any]


class Page(NamedTuple):
    """Records in ascending order, the places of the first ones, and where the next page begins."""

    rows: list[Row]
    first: Places
    following: Places


class PagedTopic(NamedTuple):
    """A topic to read, with the isolation of the read and the kind of display."""

    client: Client
    topic: str
    kind: str
    isolation: Isolation
    schemas: Schemas | None = None


async def newer(
    of: PagedTopic, places: Mapping[int, int], ends: Mapping[int, int], limit: int, times: TimeRange | None = None
) -> Page:
    """The first `limit` records from the places on; with `times` only those of that range, wherever they lie."""
    found = await _read(of, places, ends, limit, times=times)
    taken = list(islice(heapq.merge(*found.values(), key=_time), limit))
    following = dict(ends)
    for partition, rows in found.items():
        count = sum(1 for row in taken if row["partition"] == partition)
        if count < len(rows):
            following[partition] = int(rows[count]["offset"])
        elif len(rows) >= limit:
            following[partition] = int(rows[-1]["offset"]) + 1
    return Page(taken, dict(places), following)


async def older(of: PagedTopic, places: Mapping[int, int], starts: Mapping[int, int], limit: int) -> Page:
    """The last `limit` records before the places."""
    found = {partition: await _last(of, partition, end, starts[partition], limit) for partition, end in places.items()}
    newest_first = heapq.merge(*(reversed(rows) for rows, _ in found.values()), key=_time, reverse=True)
    taken = list(islice(newest_first, limit))[::-1]
    first = {}
    for partition, (rows, begin) in found.items():
        of_partition = [row for row in taken if row["partition"] == partition]
        if of_partition:
            first[partition] = int(of_partition[0]["offset"])
        else:
            first[partition] = places[partition] if rows else begin
    return Page(taken, first, dict(places))


async def _last(of: PagedTopic, partition: int, end: int, start: int, limit: int) -> tuple[list[Row], int]:
    """The last records before `end`, and from where on it was looked for them."""
    stretch = limit
    for _ in range(MOST_LOOKS_BACK):
        begin = max(start, end - stretch)
        rows = (await _read(of, {partition: begin}, {partition: end}, stretch, limit))[partition]
        if len(rows) >= limit or begin == start:
            break
        stretch *= LOOK_BACK_TIMES
    return rows, begin


async def _read(
    of: PagedTopic,
    places: Mapping[int, int],
    ends: Mapping[int, int],
    most: int,
    kept: int | None = None,
    times: TimeRange | None = None,
) -> dict[int, list[Row]]:
    """Up to `most` records of each partition; of them the last `kept`."""
    config = ConsumerConfig(
        max_wait_ms=0,
        max_bytes=MAX_FETCH_BYTES,
        partition_max_bytes=MAX_PARTITION_FETCH_BYTES,
        isolation=of.isolation,
        skip_gaps=True,
    )
    reading = Reading(config)
    reading.assign(_named(of.topic, places), _named(of.topic, ends), times)
    found: dict[int, list[Row]] = {partition: [] for partition in places}
    counts = dict.fromkeys(places, 0)
    while (fetch := reading.next_fetch()) is not None:
        before, has_come = [reading.position(name) for name in reading.partitions], False
        response: FetchResponse = await of.client.call_fetch(fetch.request)
        for batch in reading.accept(fetch, response):
            number, has_come = batch.partition.partition, True
            records = (await unpacked(batch))[: most - counts[number]]
            if of.schemas is not None:
                await of.schemas.prepare(records)
            for record in records:
                found[number].append(shown_record(number, record, of.kind, schemas=of.schemas))
                counts[number] += 1
            if kept is not None:
                del found[number][:-kept]
            if counts[number] >= most:
                reading.stop_at(batch.partition, 0)
        if not has_come and [reading.position(name) for name in reading.partitions] == before:
            break  # there is nothing more that may be read
    return found


async def unpacked(batch: FetchedBatch) -> list[Any]:
    """The records of a batch that were asked for."""
    if len(batch.data) < LARGE_BYTES:
        return batch.records()
    return await trio.to_thread.run_sync(batch.records)


def _named(topic: str, places: Mapping[int, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in places.items()}


def _time(row: Row) -> int:
    return int(row["timestamp"])


SMALL_BYTES: Final = 1024
"""One whole batch comes in any case."""


async def record_at(client: Client, partition: TopicPartition, offset: int) -> Record | None:
    """None where there is none: it was compacted away, or is the marker of a transaction."""
    reading = Reading(ConsumerConfig(max_wait_ms=0, partition_max_bytes=SMALL_BYTES, skip_gaps=True))
    reading.assign({partition: offset}, {partition: offset + 1})
    fetch = reading.next_fetch()
    assert fetch is not None
    response = await client.call_fetch(fetch.request)
    for batch in reading.accept(fetch, response):
        found: list[Record] = await unpacked(batch)
        if found:
            return found[0]
    return None
