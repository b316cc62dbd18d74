"""The produces of one connection: their appends, the answers that they wait for, and the transactions they belong to."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs
import trio

from ....protocol.errors import (
    ErrorCode,
    ExpectedOffsetError,
    InvalidRequestError,
    InvalidTxnStateError,
    RequestError,
    RequestTimedOutError,
)
from ....protocol.native import messages
from ....protocol.records.batch import BatchHeader
from ....protocol.types import TopicPartition
from ...broker import AppendResult, Broker, PartitionAppend, expecting
from ..connections.connection_task import Work
from .session import NativeSession

PARTITIONS_AT_ONCE: Final = 16
"""Of a request that may be enqueued without a turn of the scheduler."""
PARTITIONS_PER_TURN: Final = 128
"""Appends of a request that are enqueued before others have their turn."""


@attrs.define(eq=False, repr=False)
class UnansweredProduce:
    """A produce that waits for its partitions' answers, which come from their actors' tasks."""

    session: NativeSession
    correlation_id: int
    message: messages.ProduceRequest
    _results: list[AppendResult | RequestError | None] = attrs.field(init=False)
    _missing: int = attrs.field(init=False)
    _is_answered: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._missing = len(self.message.partitions)
        self._results = [None] * self._missing
        if self.message.acks:
            self.session.expire_after(self.correlation_id, self, self.message.timeout_ms / 1000)

    def put(self, slot: int, result: AppendResult | RequestError) -> None:
        """One partition's answer; the last one sends the response. With acks 0 there is none, so a failure ends the
        connection: a producer that never hears of errors must not go on as if all were well. Raises nothing: the actor that
        calls it serves others too."""
        self._results[slot] = result
        self._missing -= 1
        try:
            if self.message.acks:
                if not self._missing:
                    self.answer()
            elif isinstance(result, RequestError):
                self.session.fail(result)
        except Exception as exc:
            self.session.met_bug(exc)

    def expire(self) -> None:
        for slot, result in enumerate(self._results):
            if result is None:
                self._results[slot] = RequestTimedOutError(
                    f"no acknowledgement within timeout_ms={self.message.timeout_ms}; the outcome is unknown",
                    ErrorCode.REQUEST_TIMED_OUT,
                )
        try:
            self.answer()
        except Exception as exc:
            self.session.met_bug(exc)

    def answer(self) -> None:
        """Send the response, once; later answers of partitions find nobody: the id may belong to another request then."""
        if self._is_answered:
            return
        self._is_answered = True
        entries = []
        for each, result in zip(self.message.partitions, self._results, strict=True):
            if isinstance(result, AppendResult):
                response = messages.ProducePartitionResponse(
                    each.topic, each.partition, None, result.base_offset, result.log_append_time, result.log_start_offset
                )
            else:
                end = result.log_end_offset if isinstance(result, ExpectedOffsetError) else None
                response = messages.ProducePartitionResponse(each.topic, each.partition, result, log_end_offset=end)
            entries.append(response)
        self.session.respond(self.correlation_id, None, messages.ProduceResponse(tuple(entries)).to_body())


@attrs.define(eq=False, repr=False)
class Produces:
    """How the produces of a connection are taken up."""

    session: NativeSession
    broker: Broker

    def take(self, correlation_id: int, message: messages.ProduceRequest) -> Work | None:
        """Enqueue the appends, or answer what does it; that waits only for room in a mailbox. The answer comes with the last of
        theirs."""
        pending = UnansweredProduce(self.session, correlation_id, message)
        appends = self._prepared_now(message) if message.transactional_id is None else None
        if appends is None:
            return partial(self._take_later, pending)
        for slot, append in enumerate(appends):
            if isinstance(append, RequestError):
                pending.put(slot, append)
        waiting = {slot: append for slot, append in enumerate(appends) if not isinstance(append, RequestError)}
        while waiting:
            slot = next(iter(waiting))
            actor, prepared = waiting[slot]
            if not actor.try_append(prepared, message.acks, partial(pending.put, slot)):
                return partial(self._enqueue, pending, waiting)
            del waiting[slot]
        self._settle(pending)
        return None

    def _prepared_now(self, message: messages.ProduceRequest) -> list[PartitionAppend | RequestError] | None:
        """What can be appended, or why not, by slot. None, and nothing has happened: it takes a longer look."""
        if len(message.partitions) > PARTITIONS_AT_ONCE:
            return None
        appends: list[PartitionAppend | RequestError] = []
        for each in message.partitions:
            if isinstance(each.records, tuple):
                return None
            try:
                topic_partition = each.topic_partition
                append = self.broker.writer.prepare_now(topic_partition, each.records)
                if append is None:
                    return None
                check_transaction(None, topic_partition, append[1].batches[0][0])
                appends.append(append if each.expected_offset is None else expecting(append, each.expected_offset))
            except RequestError as exc:
                appends.append(exc.as_answer())
            except ValueError as exc:
                appends.append(InvalidRequestError(f"{each.topic}-{each.partition}: {exc}"))
        return appends

    async def _take_later(self, pending: UnansweredProduce) -> None:
        appends = await self._prepare(pending.message, pending)
        if pending.message.transactional_id is not None:
            appends = await self._join_transaction(pending.message.transactional_id, appends, pending)
        await self._enqueue(pending, appends)

    async def _enqueue(self, pending: UnansweredProduce, appends: dict[int, PartitionAppend]) -> None:
        for slot, (actor, prepared) in appends.items():
            await self.broker.writer.submit(actor, prepared, pending.message.acks, partial(pending.put, slot))
            if not slot % PARTITIONS_PER_TURN and slot:
                await trio.lowlevel.checkpoint()
        self._settle(pending)

    def _settle(self, pending: UnansweredProduce) -> None:
        """Everything is enqueued."""
        if not pending.message.acks:
            if not self.session.failed:
                self.session.discard(pending.correlation_id)
        elif not pending.message.partitions:
            pending.answer()

    async def _prepare(self, message: messages.ProduceRequest, pending: UnansweredProduce) -> dict[int, PartitionAppend]:
        """What can be appended, by slot; the other partitions have their answers."""
        appends: dict[int, PartitionAppend] = {}
        for slot, each in enumerate(message.partitions):
            try:
                topic_partition = each.topic_partition
                if isinstance(each.records, tuple):
                    append = await self.broker.writer.prepare_records(topic_partition, each.records)
                else:
                    now = self.broker.writer.prepare_now(topic_partition, each.records)
                    append = now or await self.broker.writer.prepare(topic_partition, each.records)
                check_transaction(message.transactional_id, topic_partition, append[1].batches[0][0])
                appends[slot] = append if each.expected_offset is None else expecting(append, each.expected_offset)
            except RequestError as exc:
                pending.put(slot, exc.as_answer())
            except ValueError as exc:
                pending.put(slot, InvalidRequestError(f"{each.topic}-{each.partition}: {exc}"))
        return appends

    async def _join_transaction(
        self, transactional_id: str, appends: dict[int, PartitionAppend], pending: UnansweredProduce
    ) -> dict[int, PartitionAppend]:
        """Let the partitions join their producer's transaction: all do, or the request is answered with why not."""
        partitions: dict[tuple[int, int], list[TopicPartition]] = {}
        for slot, (_, prepared) in appends.items():
            header = prepared.batches[0][0]
            each = pending.message.partitions[slot]
            producer = header.producer_id, header.producer_epoch
            partitions.setdefault(producer, []).append(each.topic_partition)
        try:
            for producer, joining in partitions.items():
                await self.broker.transactions.add_partitions(transactional_id, *producer, joining)
        except RequestError as exc:
            for slot in appends:
                pending.put(slot, exc.as_answer())
            return {}
        return appends


def check_transaction(transactional_id: str | None, topic_partition: TopicPartition, header: BatchHeader) -> None:
    """InvalidTxnStateError when a batch is transactional and the request names no transactional id, or the other way round."""
    if header.is_transactional and transactional_id is None:
        raise InvalidTxnStateError(
            f"{topic_partition}: the batch of producer {header.producer_id} is transactional; name its transactional_id"
        )
    if transactional_id is not None and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{topic_partition}: the records are not transactional, but the request names transactional id "
            f"{transactional_id!r}; batches of a transaction have attribute bit 4"
        )
