"""Records on their way into a log: checked, enqueued, acknowledged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from ...protocol.errors import InvalidRecordError, InvalidRequestError, RequestError, RequestTimedOutError
from ...protocol.types import Bytes, TopicPartition
from ..actors.disk.disk import STEPS_PER_PROCEDURE
from ..actors.partition.appender import ACKS_ALL, Answer
from ..actors.partition.partition import PartitionActor
from ..logs.log_manager import LogManager
from ..storage.log.append import AppendResult
from ..storage.log.prepare import PreparedAppend, prepare_steps
from ..storage.log.prepare_one import (
    BYTES_PER_STEP,
    MOST_BYTES,
    SMALL_BYTES,
    PlainRecord,
    prepare_one,
    prepare_records,
    steps_of,
)
from ..system.clock import NowMs
from .topics import check_not_internal

STEPS_PER_APPEND: Final = 16
"""What an append takes beside looking at its records: a plan and a write."""
NOT_ACKNOWLEDGED: Final = AppendResult(-1, -1, -1, -1)
"""The result of an append whose acknowledgement nobody waits for."""

PartitionAppend = tuple[PartitionActor, PreparedAppend]
"""What `prepare` answers and `submit` takes: a partition, and what is to be appended there."""


def expecting(append: PartitionAppend, offset: int) -> PartitionAppend:
    """The append, but only if the log ends at this offset. Else it is refused, see ExpectedOffsetError, unless it is there
    already: a batch that comes again is answered as it was the first time. Raises InvalidRequestError for what is no offset."""
    actor, prepared = append
    if offset < 0:
        raise InvalidRequestError(f"{actor.topic_partition}: expected_offset is {offset}, expected 0 or more")
    return actor, prepared._replace(expected_offset=offset)


@attrs.frozen(eq=False, repr=False)
class LogWriter:
    """Listeners append in two steps, `prepare` and `submit`; embedders in one."""

    _manager: LogManager
    _now_ms: NowMs

    def prepare_now(self, topic_partition: TopicPartition, records: Bytes) -> PartitionAppend | None:
        """`prepare` of a batch such as most producers send, on the spot. None: await `prepare`, because the batch has
        more to look at or something to complain of, or others are to have their turn. Raises what `prepare` raises."""
        manager = self._manager
        check_not_internal(topic_partition.topic)
        actor = manager.topics.writable(topic_partition)
        size = len(records)
        steps = size // BYTES_PER_STEP if size <= SMALL_BYTES else steps_of(records)
        if size > MOST_BYTES or not manager.disk.turns.fit(STEPS_PER_PROCEDURE + steps):
            return None
        config, now_ms = actor.log.config, self._now_ms()
        prepared = prepare_one(records, config, now_ms, manager.batch_limits)
        if prepared is None:
            return None
        if 0 <= config.retention_ms < now_ms - prepared.max_timestamp:
            manager.topics.note_age(topic_partition, prepared.max_timestamp, now_ms)
        return actor, prepared

    async def prepare(self, topic_partition: TopicPartition, records: Bytes) -> PartitionAppend:
        """Check record batches for a partition; others have their turn where there is much to check. Raises the RequestError
        that is the partition's answer."""
        check_not_internal(topic_partition.topic)
        actor = self._manager.topics.writable(topic_partition)
        now_ms = self._now_ms()
        prepared = await self._manager.disk.compute(
            prepare_steps(records, topic_partition, actor.config, now_ms=now_ms, limits=self._manager.batch_limits)
        )
        self._manager.topics.note_age(topic_partition, prepared.max_timestamp, now_ms)
        return actor, prepared

    async def prepare_records(self, topic_partition: TopicPartition, records: Sequence[PlainRecord]) -> PartitionAppend:
        """Pack plain records into one batch, with the topic's codec, for a partition."""
        check_not_internal(topic_partition.topic)
        actor = self._manager.topics.writable(topic_partition)
        if not records:
            raise InvalidRecordError(f"{topic_partition}: there are no records in the request")
        now_ms = self._now_ms()
        prepared = await self._manager.disk.compute(
            prepare_records(records, topic_partition, actor.config, now_ms=now_ms, limits=self._manager.batch_limits)
        )
        self._manager.topics.note_age(topic_partition, prepared.max_timestamp, now_ms)
        return actor, prepared

    async def append(
        self,
        topic_partition: TopicPartition,
        records: Bytes | Sequence[PlainRecord],
        *,
        acks: int = ACKS_ALL,
        timeout_s: float | None = None,
        expected_offset: int | None = None,
    ) -> AppendResult:
        """Append record batches (bytes, stored as they are) or plain records, and wait for the acknowledgement; with
        `expected_offset` only if the log ends there (see `expecting`).

        `acks`: -1 when the high watermark passes, 1 after the write, 0 without waiting (the result is then all -1).
        Raises RequestError; RequestTimedOutError when it took longer than `timeout_s`. Cancelled before it is enqueued
        nothing happened; after that the outcome is unknown. Where the partition rests and a small write is enough it is
        answered on the spot; it can be cancelled all the same, and others have their turn after some of them (see
        `Turns.checkpoint`).
        """
        disk = self._manager.disk
        await disk.turns.checkpoint(STEPS_PER_APPEND)
        append = await self._prepared(topic_partition, records)
        actor, prepared = append if expected_offset is None else expecting(append, expected_offset)
        slot = _Slot()
        with disk.gathering:  # the write is made at its end, if no task is needed for it
            is_enqueued = actor.try_append(prepared, acks, slot.put)
        if slot.answer is None or not acks:
            with trio.move_on_after(math.inf if timeout_s is None else timeout_s) as waiting:
                if not is_enqueued:
                    await actor.append(prepared, acks, slot.put)
                if acks:
                    await slot.wait()
            if waiting.cancelled_caught:
                raise RequestTimedOutError(
                    f"{topic_partition}: no acknowledgement within {timeout_s} s; the outcome is unknown"
                )
        return slot.result() if acks else NOT_ACKNOWLEDGED

    async def _prepared(self, topic_partition: TopicPartition, records: Bytes | Sequence[PlainRecord]) -> PartitionAppend:
        if isinstance(records, bytes | bytearray | memoryview):
            return self.prepare_now(topic_partition, records) or await self.prepare(topic_partition, records)
        return await self.prepare_records(topic_partition, records)

    @staticmethod
    async def submit(actor: PartitionActor, prepared: PreparedAppend, acks: int, answer: Answer) -> None:
        """Enqueue a prepared append (this wait is the backpressure); `answer` is called once, later, in another task."""
        if not actor.try_append(prepared, acks, answer):
            await actor.append(prepared, acks, answer)


@attrs.define(eq=False, repr=False)
class _Slot:
    """Where one caller waits for one answer. Putting never raises, also when the caller is gone."""

    answer: AppendResult | RequestError | None = None
    _answered: trio.Event | None = None

    def put(self, answer: AppendResult | RequestError) -> None:
        self.answer = answer
        if self._answered is not None:
            self._answered.set()

    async def wait(self) -> None:
        if self.answer is None:
            self._answered = trio.Event()
            await self._answered.wait()

    def result(self) -> AppendResult:
        if isinstance(self.answer, RequestError):
            raise self.answer.as_answer()
        assert self.answer is not None
        return self.answer
