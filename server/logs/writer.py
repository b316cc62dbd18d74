"""Records on their way into a log: offered to a partition, checked, enqueued, acknowledged."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import trio

from ...protocol.errors import InvalidRecordError, InvalidRequestError, RequestError, RequestTimedOutError
from ...protocol.types import AppendResult, Bytes, TopicPartition
from ..partitions.appender import ACKS_ALL, Answer
from ..partitions.disk import STEPS_PER_PROCEDURE
from ..partitions.partition import PartitionActor
from ..storage.disk.diskops import Procedure
from ..storage.disk.paths import INTERNAL_TOPICS
from ..storage.log.prepare import (
    BYTES_PER_STEP,
    MOST_BYTES,
    SMALL_BYTES,
    PlainRecord,
    PreparedAppend,
    prepare_one,
    prepare_records,
    prepare_steps,
    steps_of,
)
from ..storage.producers.producer_state import FIRST_KEYED_ID
from ..system.clock import NowMs
from .log_manager import LogManager
from .topics import check_not_internal

T = TypeVar("T")


def producer_of_key(*names: str) -> int:
    """Return the producer id of an idempotency key, of the principal that sent it and so on. Its appends are found in the log
    again after a restart, as those of every producer."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return FIRST_KEYED_ID | int.from_bytes(digest) >> 2


STEPS_PER_APPEND: Final = 16
"""What an append takes beside looking at its records: a plan and a write."""
PARTITIONS_AT_ONCE: Final = 16
"""A produce with more partitions is not begun before others have had their turn."""
PARTITIONS_PER_TURN: Final = 64
"""Partitions of a produce that are offered their records before others have their turn. A refusal costs most: 10 to 40 us. At
most twice as many wait for the device, so that a record of another client is not behind thousands of them."""
NOT_ACKNOWLEDGED: Final = AppendResult(-1, -1, -1, -1)
"""The result of an append whose acknowledgement nobody waits for."""

BATCHES: Final = (memoryview, bytes, bytearray)
Records = Bytes | Sequence[PlainRecord]
"""Record batches, stored as they are, or records that the server packs into one batch."""
Work = Callable[[], Awaitable[None]]
"""What is left of an offer: to be awaited before anything else is offered over the same connection."""


@attrs.frozen(eq=False, repr=False)
class LogWriter:
    """The way of records into a partition: `offer` for listeners, `append` for embedders."""

    _manager: LogManager
    _now_ms: NowMs

    def offer(
        self,
        topic_partition: TopicPartition,
        records: Records,
        acks: int,
        answer: Answer,
        expected_offset: int | None = None,
        *,
        joins_transaction: bool = False,
    ) -> Work | None:
        """Check records and enqueue them in their partition, in this turn if that takes little. Otherwise return the rest as
        work, which also waits for space in the partition's mailbox: that wait is the backpressure.

        Once they are enqueued `answer` is called, once, at the end of this turn or later. `expected_offset`: append them only
        if the log ends there; a batch that is sent again is answered as it was the first time. `joins_transaction`: their
        partition joins the transaction of their producer (KIP-890). Offer and work raise the RequestError with which the
        records are refused; `answer` is not called then. Cancelling the work before they are enqueued undoes the offer.
        """
        if topic_partition.topic in INTERNAL_TOPICS:
            check_not_internal(topic_partition.topic)
        # What `writable` does, without its call.
        hosted = self._manager.topics.partition(topic_partition)
        if (refusal := hosted.refusal or hosted.hold_refusal) is not None:
            raise refusal.as_answer()
        partition = hosted.actor
        prepared = self._check_in_turn(partition, records)
        if prepared is None:
            return partial(self._check_and_append, partition, records, acks, answer, expected_offset, joins_transaction)
        if expected_offset is not None or joins_transaction:
            prepared = _with_conditions(partition, prepared, expected_offset, joins_transaction)
        return None if partition.try_append(prepared, acks, answer) else partial(partition.append, prepared, acks, answer)

    async def _check_and_append(
        self,
        partition: PartitionActor,
        records: Records,
        acks: int,
        answer: Answer,
        expected_offset: int | None,
        joins_transaction: bool,
    ) -> None:
        prepared = await self._check_for_client(partition, records)
        prepared = _with_conditions(partition, prepared, expected_offset, joins_transaction)
        await partition.append(prepared, acks, answer)

    def _writable(self, topic_partition: TopicPartition) -> PartitionActor:
        """Return the partition, if clients may append to it. Raises RequestError."""
        check_not_internal(topic_partition.topic)
        return self._manager.topics.writable(topic_partition)

    def _check_in_turn(self, partition: PartitionActor, records: Records) -> PreparedAppend | None:
        """Check one batch such as most producers send. None: await `check`, because the records are of another kind, or need a
        longer look, or are to be refused, or others are to have their turn."""
        if records.__class__ not in BATCHES:
            return None
        manager, size = self._manager, len(records)
        steps = size // BYTES_PER_STEP if size <= SMALL_BYTES else steps_of(records)
        if size > MOST_BYTES or not manager.disk.turns.fit(STEPS_PER_PROCEDURE + steps):
            return None
        config, now_ms = partition.log.config, self._now_ms()
        if not manager.clock.is_plausible:
            config = manager.accepted_by(config)
        prepared = prepare_one(records, config, now_ms, manager.batch_limits)
        is_old = prepared is not None and 0 <= config.retention_ms < now_ms - prepared.max_timestamp
        if is_old and prepared is not None and manager.clock.is_trusted:
            manager.topics.note_age(partition.topic_partition, prepared.max_timestamp, now_ms)
        return prepared

    async def _check(
        self, partition: PartitionActor, records: Records, producer: tuple[int, int] | None = None
    ) -> PreparedAppend:
        """Check record batches, or pack plain records into one with the topic's codec; others have their turn where there is
        much to do. Raises RequestError, and ValueError for a record that cannot be packed."""
        manager, topic_partition, now_ms = self._manager, partition.topic_partition, self._now_ms()
        if not isinstance(records, BATCHES) and not records:
            raise InvalidRecordError(f"{topic_partition}: the request has no records")
        steps: Callable[..., Procedure[PreparedAppend]] = prepare_steps if isinstance(records, BATCHES) else prepare_records
        if producer is not None:
            steps = partial(steps, producer=producer)
        config = manager.accepted_by(partition.config)
        checks = steps(records, topic_partition, config, now_ms=now_ms, limits=manager.batch_limits)
        prepared = await manager.disk.compute(checks)
        if manager.clock.is_trusted:
            manager.topics.note_age(topic_partition, prepared.max_timestamp, now_ms)
        return prepared

    async def check(self, topic_partition: TopicPartition, records: Records) -> PreparedAppend:
        """Check records that are submitted when others are checked too. Raises the RequestError that refuses them."""
        return await self._check_for_client(self._writable(topic_partition), records)

    async def submit(
        self, topic_partition: TopicPartition, prepared: PreparedAppend, acks: int, answer: Answer, expected_offset: int | None
    ) -> None:
        """Enqueue checked records, as `offer` does."""
        partition = self._writable(topic_partition)
        prepared = _with_conditions(partition, prepared, expected_offset, joins_transaction=False)
        await partition.append(prepared, acks, answer)

    async def _check_for_client(self, partition: PartitionActor, records: Records) -> PreparedAppend:
        try:
            return await self._check(partition, records)
        except ValueError as exc:
            raise InvalidRequestError(f"{partition.topic_partition}: {exc}") from exc

    def largest_batch(self, topic_partition: TopicPartition) -> int:
        """Return the size of the largest batch that a partition accepts from clients. Raises RequestError."""
        config = self._writable(topic_partition).config
        return min(config.max_message_bytes, config.segment_bytes)

    def keyed_count(self, topic_partition: TopicPartition, producer_id: int) -> int:
        """Return how many records the producer of an idempotency key has appended, if it began with sequence 0. Raises
        RequestError, also while the last of them are not durable."""
        log = self._writable(topic_partition).log
        entry = log.producers.entries.get(producer_id)
        if entry is None:
            return 0
        if entry.last_data_offset >= log.high_watermark:
            raise RequestTimedOutError(f"{topic_partition}: records of this Idempotency-Key are being stored. Try again")
        return entry.last_sequence + 1

    async def append(
        self,
        topic_partition: TopicPartition,
        records: Records,
        *,
        acks: int = ACKS_ALL,
        timeout_s: float | None = None,
        expected_offset: int | None = None,
        producer: tuple[int, int] | None = None,
    ) -> AppendResult:
        """Append record batches (bytes, stored as they are) or plain records, and wait for the acknowledgement; with
        `expected_offset` only if the log ends there (see `offer`). `producer`: for plain records the id of an idempotent
        producer, and the sequence of the first record.

        `acks`: -1 when the high watermark passes, 1 after the write, 0 without waiting (the result is then all -1).
        Raises RequestError; RequestTimedOutError when it took longer than `timeout_s`. Cancelled before it is enqueued
        nothing happened; after that the outcome is unknown. Where the partition rests and a small write is enough it is
        answered on the spot; it can be cancelled all the same, and others have their turn after some of them (see
        `Turns.checkpoint`).
        """
        disk = self._manager.disk
        await disk.turns.checkpoint(STEPS_PER_APPEND)
        partition = self._writable(topic_partition)
        prepared = self._check_in_turn(partition, records) or await self._check(partition, records, producer)
        prepared = _with_conditions(partition, prepared, expected_offset, joins_transaction=False)
        slot = _Slot()
        with disk.gathering:  # the write is made at its end, if no task is needed for it
            is_enqueued = partition.try_append(prepared, acks, slot.put)
        if slot.answer is None or not acks:
            with trio.move_on_after(math.inf if timeout_s is None else timeout_s) as waiting:
                if not is_enqueued:
                    await partition.append(prepared, acks, slot.put)
                if acks:
                    await slot.wait()
            if waiting.cancelled_caught:
                raise RequestTimedOutError(
                    f"{topic_partition}: no acknowledgement within {timeout_s} s. The outcome is unknown"
                )
        return slot.result() if acks else NOT_ACKNOWLEDGED


def _with_conditions(
    partition: PartitionActor, prepared: PreparedAppend, expected_offset: int | None, joins_transaction: bool
) -> PreparedAppend:
    """The append under the conditions of its offer. Raises InvalidRequestError for an impossible offset."""
    if expected_offset is not None:
        if expected_offset < 0:
            raise InvalidRequestError(f"{partition.topic_partition}: expected_offset is {expected_offset}, expected 0 or more")
        prepared = prepared._replace(expected_offset=expected_offset)
    return prepared._replace(joins_transaction=True) if joins_transaction else prepared


@attrs.define(eq=False, repr=False)
class _Slot:
    """A slot in which one caller waits for one result. `put` never raises, even when the caller is gone."""

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


@attrs.define(eq=False, repr=False)
class PendingProduce(ABC):
    """A produce of either protocol whose partitions are offered their records and answer one by one. The last answer makes the
    response.

    A slot is the place of a partition in the request. With acks 0 there is no response, so a failure ends the connection: a
    producer that hears of no error must not continue as if all were well.
    """

    request: Any
    """The protocol's, with `acks` and `timeout_ms`."""
    _missing: int
    """Partitions without a result."""
    results: list[AppendResult | RequestError | None]
    """By slot."""
    _goes_on_at: int = attrs.field(init=False, default=-1)
    """The number of missing results at which the next partitions are offered their records."""
    _has_room: trio.Event = attrs.field(init=False, factory=trio.Event)

    # ---- what a protocol says --------------------------------------------------------------------------------------------

    @abstractmethod
    def respond(self) -> None:
        """Answer the request, unless it is answered already or its connection was given up."""

    @abstractmethod
    def discard(self) -> None:
        """Everything is enqueued, and the request has no response."""

    @abstractmethod
    def note_refusal(self, slot: int, error: RequestError, *, by_log: bool) -> None:
        """Note that records were refused, by the log or before it saw them. With acks 0 end the connection."""

    @abstractmethod
    def met_bug(self, error: Exception) -> None:
        """End the connection: there is no answer, for a reason that nobody expected."""

    # ---- offers ----------------------------------------------------------------------------------------------------------

    def offer_in_turn(self, entries: Iterator[tuple[int, T]], offer: Callable[[int, T], Work | None]) -> Work | None:
        """Offer the entries, each with its slot, in this turn as far as that goes, and return the rest as work.

        `offer` raises RequestError when records are refused.
        """
        for slot, entry in entries:
            try:
                work = offer(slot, entry)
            except RequestError as exc:
                self.put(slot, exc.as_answer())
                continue
            if work is not None:
                return partial(self._offer_rest, slot, work, entries, offer)
        if not self.request.acks or not self.results:
            self._settle()
        return None

    async def _offer_rest(
        self, slot: int, work: Work, entries: Iterator[tuple[int, T]], offer: Callable[[int, T], Work | None]
    ) -> None:
        try:
            await work()
        except RequestError as exc:
            self.put(slot, exc.as_answer())
        await self.offer_all(entries, offer)

    async def offer_all(self, entries: Iterable[tuple[int, T]], offer: Callable[[int, T], Work | None]) -> None:
        """Do what `offer_in_turn` does for any number of entries. Others have their turn in between, at the device too."""
        missing = self._missing
        for count, (slot, entry) in enumerate(entries, 1):
            try:
                work = offer(slot, entry)
                if work is not None:
                    await work()
            except RequestError as exc:
                self.put(slot, exc.as_answer())
            if not count % PARTITIONS_PER_TURN:
                await trio.lowlevel.checkpoint()
                goes_on_at = missing - count + PARTITIONS_PER_TURN
                if self._missing > goes_on_at:
                    self._goes_on_at, self._has_room = goes_on_at, trio.Event()
                    await self._has_room.wait()
        self._settle()

    def _settle(self) -> None:
        """Everything is enqueued."""
        if not self.request.acks:
            self.discard()
        elif not self.results:
            self.respond()

    # ---- results ---------------------------------------------------------------------------------------------------------

    def put(self, slot: int, result: AppendResult | RequestError, *, by_log: bool = True) -> None:
        """Take the result of a partition. Raises nothing: the actor that calls it serves others too."""
        self.results[slot] = result
        self._missing -= 1
        if self._missing == self._goes_on_at:
            self._has_room.set()
        try:
            if result.__class__ is not AppendResult:
                assert isinstance(result, RequestError)
                self.note_refusal(slot, result, by_log=by_log)
            if not self._missing and self.request.acks:
                self.respond()
        except Exception as exc:
            self.met_bug(exc)

    def expire(self) -> None:
        """Answer what is known; whether the rest is stored is unknown."""
        for slot, result in enumerate(self.results):
            if result is None:
                self.results[slot] = RequestTimedOutError(
                    f"no acknowledgement within timeout_ms={self.request.timeout_ms}. The outcome is unknown"
                )
        try:
            self.respond()
        except Exception as exc:
            self.met_bug(exc)
