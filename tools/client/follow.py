"""Reads for follows of a client. The follow itself, with its state, is `protocol.following`'s."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs

from ...protocol.errors import RequestError
from ...protocol.following import Following, Found, Place
from ...protocol.native.messages import MetadataRequest, TopicMetadata
from ...protocol.types import EARLIEST_TIMESTAMP, Isolation, Record, TopicPartition
from .backoff import passes
from .config import ConsumerConfig
from .procedures import groups, topics
from .procedures.driving import Driver
from .procedures.topics import EARLIEST, LATEST, AtOffset, AtTime, answer_to, checked
from .procedures.topics import Place as Point
from .reading import read_once

T = TypeVar("T")

LOOK_S: Final = 0.5
"""How often a follow asks for partitions that were created."""
PAGE_WAIT_S: Final = 0.5
"""The longest wait of one fetch."""


@attrs.define(eq=False, repr=False)
class Reader:
    """Reads for one follow. Retries after a lost connection, for `retry_timeout_ms` of ConsumerConfig."""

    driver: Driver
    following: Following
    _look_at: float = -float("inf")  # for new partitions, on the driver's clock

    async def __call__(self, place: Place) -> Found:
        """Return the next records; wait for the first, for at most `max_wait_s`. Raises RequestError."""
        begun = self.driver.now()
        deadline = begun + self.following.max_wait_s
        while True:
            if self.driver.now() >= self._look_at or not place.positions:
                place = await self.placed(place)
            left_s = deadline - self.driver.now()
            found = await self._retried(partial(self._read, place, max(0.0, min(PAGE_WAIT_S, left_s))))
            if found.records:
                return found
            if left_s <= 0 and found.place.positions == place.positions:
                if self._look_at - LOOK_S >= begun:
                    return found
                self._look_at = begun  # an end, unless there are new partitions
            place = found.place

    async def placed(self, place: Place) -> Place:
        """Add new partitions. Raises RequestError for a topic that does not exist (any more)."""
        request = MetadataRequest(self.following.topics)
        answer = await self._retried(lambda: self.driver.run(answer_to(request)))
        described: Sequence[TopicMetadata] = checked(answer.topics)
        self._look_at = self.driver.now() + LOOK_S
        ids = {topic.name: str(topic.topic_id).encode() for topic in described}
        existing = [TopicPartition(topic.name, each.partition) for topic in described for each in topic.partitions]
        if ids == place.topic_ids and len(existing) == len(place.positions):
            return place
        kept = {each: offset for each, offset in place.positions.items() if ids[each.topic] == place.topic_ids.get(each.topic)}
        return Place({**kept, **await self._starts([each for each in existing if each not in kept], place)}, ids)

    async def _starts(self, partitions: Sequence[TopicPartition], place: Place) -> dict[TopicPartition, int]:
        """Return the start of each partition: the committed offset of the group, else the requested start. Partitions that
        were created later start at their beginning."""
        following = self.following
        point: Point = EARLIEST if following.start == "earliest" else LATEST
        if place.topic_ids:
            point = EARLIEST
        elif following.start_offset is not None:
            point = AtOffset(following.start_offset)
        elif following.start_timestamp is not None:
            point = AtTime(following.start_timestamp)
        starts = await self._located(partitions, point)
        if following.group is not None:
            ask = partial(groups.fetch_offsets, following.group, partitions, require_stable=True)
            committed = await self._retried(lambda: self.driver.run(ask()))
            starts |= {each: kept.offset for each, kept in committed.items()}
        return starts

    async def _located(self, partitions: Sequence[TopicPartition], point: Point) -> dict[TopicPartition, int]:
        return await self._retried(lambda: self.driver.run(topics.locate(partitions, point, self._isolation)))

    @property
    def _isolation(self) -> Isolation:
        return Isolation.READ_COMMITTED if self.following.committed_only else Isolation.READ_UNCOMMITTED

    async def _read(self, place: Place, max_wait_s: float) -> Found:
        max_bytes = self.following.max_bytes
        read = read_once(place.positions, isolation=self._isolation, max_bytes=max_bytes, max_wait_s=max_wait_s)
        reading, batches = await self.driver.run(read)
        records: list[tuple[TopicPartition, Record]] = []
        for batch in batches:
            records += [(batch.partition, record) for record in batch.records()]
        served = {partition for partition, _ in records}
        if reading.lost and (current := await self.placed(place)) is not place:
            return Found((), current)  # another topic of that name
        moved = {each: await self._moved(each, place.positions[each], error) for each, error in reading.lost.items()}
        positions = {each: moved.get(each, reading.position(each)) for each in place.positions}
        order = sorted(positions, key=served.__contains__)  # stable: partitions without records come first next time
        return Found(records, Place({each: positions[each] for each in order}, place.topic_ids))

    async def _moved(self, partition: TopicPartition, offset: int, error: RequestError) -> int:
        """Return the next offset after a deletion of records or a truncation."""
        start = (await self._located([partition], AtTime(EARLIEST_TIMESTAMP)))[partition]
        return start if offset < start else (await self._located([partition], LATEST))[partition]

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        config = ConsumerConfig()
        return await self.driver.retried(attempt, config.retry_timeout_ms, config, passes=passes)
