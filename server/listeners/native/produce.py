"""The produces of one connection: their appends, the answers that they wait for, and the transactions they belong to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import trio

from ....protocol.errors import ErrorCode, InvalidRequestError, InvalidTxnStateError, RequestError, RequestTimedOutError
from ....protocol.native import messages
from ....protocol.records.batch import BatchHeader
from ....protocol.types import TopicPartition
from ...broker import AppendResult, Broker, PartitionAppend
from .session import Session

TIMEOUT_CHECK_S: Final = 1.0
PARTITIONS_PER_TURN: Final = 128
"""Appends of a request that are enqueued before others have their turn."""


@attrs.define(eq=False)
class UnansweredProduce:
    """A produce that waits for its partitions' answers, which come from their actors' tasks."""

    session: Session
    forget: Callable[[int], None]
    correlation_id: int
    message: messages.ProduceRequest
    deadline: float = attrs.field(init=False)
    _results: list[AppendResult | RequestError | None] = attrs.field(init=False)
    _missing: int = attrs.field(init=False)
    _is_answered: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        self._missing = len(self.message.partitions)
        self._results = [None] * self._missing
        self.deadline = trio.current_time() + self.message.timeout_ms / 1000

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
        self.answer()

    def answer(self) -> None:
        """Send the response, once; later answers of partitions find nobody: the id may belong to another request then."""
        if self._is_answered:
            return
        self._is_answered = True
        self.forget(self.correlation_id)
        entries = []
        for each, result in zip(self.message.partitions, self._results, strict=True):
            if isinstance(result, AppendResult):
                response = messages.ProducePartitionResponse(
                    each.topic, each.partition, None, result.base_offset, result.log_append_time, result.log_start_offset
                )
            else:
                response = messages.ProducePartitionResponse(each.topic, each.partition, result)
            entries.append(response)
        self.session.respond(self.correlation_id, None, messages.ProduceResponse(tuple(entries)).to_body())


@attrs.define(eq=False)
class Produces:
    """Owner of a connection's produces that are not answered."""

    session: Session
    broker: Broker
    nursery: trio.Nursery
    _pending: dict[int, UnansweredProduce] = attrs.field(factory=dict)
    """By correlation id; those with acks."""
    _is_watching: bool = False

    async def produce(self, correlation_id: int, message: messages.ProduceRequest) -> None:
        """Enqueue the appends; waits only for room in a mailbox. The answer comes with the last of theirs."""
        pending = UnansweredProduce(self.session, self._forget, correlation_id, message)
        if message.acks:
            self._pending[correlation_id] = pending
            self._watch_timeouts()
        appends = await self._prepare(message, pending)
        if message.transactional_id is not None:
            appends = await self._join_transaction(message.transactional_id, appends, pending)
        for slot, (actor, prepared) in appends.items():
            await self.broker.writer.submit(actor, prepared, message.acks, partial(pending.put, slot))
            if not slot % PARTITIONS_PER_TURN and slot:
                await trio.lowlevel.checkpoint()
        if not message.acks:
            if not self.session.failed:
                self.session.discard(correlation_id)
        elif not message.partitions:
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
                appends[slot] = append
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

    def _forget(self, correlation_id: int) -> None:
        self._pending.pop(correlation_id, None)

    def _watch_timeouts(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self.nursery.start_soon(self._expire)

    async def _expire(self) -> None:
        """Answer produces whose timeout is over, while there are any. A connection that is idle is not woken."""
        while self._pending:
            now = trio.current_time()
            for pending in [each for each in self._pending.values() if each.deadline <= now]:
                pending.expire()
            await trio.sleep(TIMEOUT_CHECK_S)
        self._is_watching = False


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
