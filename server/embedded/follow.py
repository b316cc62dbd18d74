"""Reads for follows in the broker's thread. The follow itself, with its state, is `protocol.following`'s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from ...protocol.errors import ErrorCode, RequestError
from ...protocol.following import Following, Found, Place
from ...protocol.types import Isolation, Record, TopicPartition
from ..broker import Broker, FetchAnswer, FetchPartition, ReaderView

LOOK_S: Final = 0.5
"""How often a follow that waits looks for partitions that have come."""
UNSTABLE_S: Final = 0.01
"""How long it waits for a transaction that may still change where its group is."""


@attrs.frozen(eq=False, repr=False)
class ReadOn:
    """Reads for one follow, in the broker's thread."""

    core: Callable[[], Broker]
    following: Following

    async def __call__(self, place: Place) -> Found:
        """The records that come next; waits for the first, for at most `max_wait_s`. Raises RequestError."""
        await trio.lowlevel.checkpoint()
        deadline = trio.current_time() + self.following.max_wait_s
        while True:
            place = await self.placed(place)
            left_s = deadline - trio.current_time()
            found = await self._read(place, max(0.0, min(LOOK_S, left_s)))
            if found.records or (left_s <= 0 and found.place.positions == place.positions):
                return found
            place = found.place

    async def placed(self, place: Place) -> Place:
        """With the partitions that have come since. Raises RequestError for a topic that is not there (any more)."""
        topics = self.core().topics
        ids = {topic: topics.id_of(topic) for topic in self.following.topics}
        there = [TopicPartition(topic, number) for topic in ids for number in range(topics.partition_count(topic))]
        if ids == place.topic_ids and len(there) == len(place.positions):
            return place
        kept = {each: offset for each, offset in place.positions.items() if ids[each.topic] == place.topic_ids.get(each.topic)}
        return Place({**kept, **await self._starts([each for each in there if each not in kept], place)}, ids)

    async def _starts(self, partitions: Sequence[TopicPartition], place: Place) -> dict[TopicPartition, int]:
        """Return the start of each partition: the group's committed offset, or else the requested start. Partitions that are
        created later start at the beginning, so that the follow reads the records written meanwhile."""
        committed = await self._committed(partitions)
        starts = {}
        for each in partitions:
            offset = committed.get(each, -1)
            starts[each] = offset if offset >= 0 else await self._start(each, is_later=bool(place.topic_ids))
        return starts

    async def _committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.following.group is None:
            return {}
        while True:
            try:
                found = await self.core().offsets.fetch(self.following.group, partitions, require_stable=True)
            except RequestError as exc:
                if exc.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    raise
                await trio.sleep(UNSTABLE_S)
            else:
                return {each: offset for each, offset, _ in found}

    async def _start(self, partition: TopicPartition, *, is_later: bool) -> int:
        following, log = self.following, self.core().reader.snapshot(partition)
        end = log.last_stable_offset if following.committed_only else log.high_watermark
        if is_later:
            return log.log_start_offset
        if following.start_offset is not None:
            return following.start_offset
        if following.start_timestamp is not None:
            found = await self.core().reader.offset_for_time(partition, following.start_timestamp, self._view.isolation)
            return found.offset if found.offset >= 0 else end
        return end if following.start == "latest" else log.log_start_offset

    @property
    def _view(self) -> ReaderView:
        return ReaderView(Isolation.READ_COMMITTED if self.following.committed_only else Isolation.READ_UNCOMMITTED)

    async def _read(self, place: Place, max_wait_s: float) -> Found:
        reader, max_bytes = self.core().reader, self.following.max_bytes
        questions = [FetchPartition(each, offset, max_bytes) for each, offset in place.positions.items()]
        answers = await reader.fetch(questions, max_bytes=max_bytes, max_wait_s=max_wait_s, view=self._view)
        unpacked = await reader.unpack(answers, questions, max_bytes=max_bytes)
        records: list[tuple[TopicPartition, Record]] = []
        waiting, served = {}, {}
        for question, answer, plain in zip(questions, answers, unpacked, strict=True):
            partition = question.topic_partition
            if isinstance(plain, RequestError):
                raise plain
            if plain is None:
                waiting[partition] = self._moved(answer, question.offset)
            elif plain.records:
                records += [(partition, record) for record in plain.records]
                served[partition] = plain.next_offset
            else:
                waiting[partition] = plain.next_offset
        return Found(records, Place({**waiting, **served}, place.topic_ids))

    def _moved(self, answer: FetchAnswer, offset: int) -> int:
        """Return the next offset after a deletion of records or a truncation. Raises RequestError for any other error."""
        assert answer.error is not None
        if answer.error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise answer.error
        log = self.core().reader.snapshot(answer.topic_partition)
        return log.log_start_offset if offset < log.log_start_offset else log.high_watermark
