"""Produce: records to partitions, the answers that a produce waits for, and the transaction it belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import attrs

from ....protocol.errors import ExpectedOffsetError, InvalidTxnStateError, RequestError
from ....protocol.native import messages
from ....protocol.records.batch import TRANSACTIONAL_FLAG, BatchHeader
from ....protocol.types import Bytes, TopicPartition
from ...broker import PARTITIONS_AT_ONCE, AppendResult, Broker, PendingProduce, PreparedAppend
from ...loop.reactor import Work
from .session import NativeSession

FLAGS_POSITION = 22
"""The lower byte of a batch's attributes."""


def take_produce(session: NativeSession, broker: Broker, correlation_id: int, message: messages.ProduceRequest) -> Work | None:
    """Offer the partitions of a request their records, or return what does it. The answer comes with the last of theirs."""
    partitions = message.partitions
    count = len(partitions)
    produce = NativeProduce(message, count, [None] * count, session, broker, correlation_id)
    if message.acks:
        session.expire_after(correlation_id, produce, message.timeout_ms / 1000)
    if message.transactional_id is not None:
        return produce.join_and_offer
    if count > PARTITIONS_AT_ONCE:
        return partial(produce.offer_all, enumerate(partitions), produce.offer)
    return produce.offer_in_turn(enumerate(partitions), produce.offer)


@attrs.define(eq=False, repr=False)
class NativeProduce(PendingProduce):
    """A produce that waits for its partitions' answers. Owner: the partitions, until the last one has answered."""

    session: NativeSession
    broker: Broker
    correlation_id: int
    _is_answered: bool = attrs.field(init=False, default=False)

    # ---- offers ----------------------------------------------------------------------------------------------------------

    def offer(self, slot: int, asked: messages.ProducePartition) -> Work | None:
        """Offer a partition its records. Raises RequestError."""
        if _is_flagged(asked.records):
            return partial(self._offer_flagged, slot, asked)
        writer, answer = self.broker.writer, partial(self.put, slot)
        return writer.offer(asked.topic_partition, asked.records, self.request.acks, answer, asked.expected_offset)

    async def _offer_flagged(self, slot: int, asked: messages.ProducePartition) -> None:
        await self._submission(slot, await self._check(asked))()

    def _submission(self, slot: int, prepared: PreparedAppend) -> Work:
        asked, answer = self.request.partitions[slot], partial(self.put, slot)
        submit = self.broker.writer.submit
        return partial(submit, asked.topic_partition, prepared, self.request.acks, answer, asked.expected_offset)

    async def _check(self, asked: messages.ProducePartition) -> PreparedAppend:
        """Check a partition's records, and whether they are of the request's transaction. Raises RequestError."""
        prepared = await self.broker.writer.check(asked.topic_partition, asked.records)
        check_transaction(self.request.transactional_id, asked.topic_partition, prepared.batches[0][0])
        return prepared

    async def join_and_offer(self) -> None:
        """Check all records, then let the partitions of those that are sound join their producer's transaction: all do, or all
        are refused."""
        checked: dict[int, PreparedAppend] = {}
        for slot, asked in enumerate(self.request.partitions):
            try:
                checked[slot] = await self._check(asked)
            except RequestError as exc:
                self.put(slot, exc.as_answer())
        try:
            await self._join(checked.items())
        except RequestError as exc:
            for slot in checked:
                self.put(slot, exc.as_answer())
            checked = {}
        await self.offer_all(checked.items(), self._submission)

    async def _join(self, checked: Iterable[tuple[int, PreparedAppend]]) -> None:
        partitions: dict[tuple[int, int], list[TopicPartition]] = {}
        for slot, prepared in checked:
            header = prepared.batches[0][0]
            joining = partitions.setdefault((header.producer_id, header.producer_epoch), [])
            joining.append(self.request.partitions[slot].topic_partition)
        for producer, joining in partitions.items():
            await self.broker.transactions.add_partitions(self.request.transactional_id, *producer, joining)

    # ---- results ---------------------------------------------------------------------------------------------------------

    def respond(self) -> None:
        """Send the response, once; later answers of partitions find nobody: the id may belong to another request then."""
        if self._is_answered:
            return
        self._is_answered = True
        entries: list[messages.ProducePartitionResponse] = []
        codes: list[int] = []
        for each, result in zip(self.request.partitions, self.results, strict=True):
            if isinstance(result, AppendResult):
                response = messages.ProducePartitionResponse(
                    each.topic, each.partition, None, result.base_offset, result.log_append_time, result.log_start_offset
                )
            else:
                assert result is not None
                end = result.log_end_offset if isinstance(result, ExpectedOffsetError) else None
                response = messages.ProducePartitionResponse(each.topic, each.partition, result, log_end_offset=end)
                if result.code not in codes:
                    codes.append(result.code)
            entries.append(response)
        self.session.respond(self.correlation_id, None, messages.ProduceResponse(tuple(entries)).to_body(), codes)

    def discard(self) -> None:
        if not self.session.failed:
            self.session.discard(self.correlation_id)

    def note_refusal(self, slot: int, error: RequestError, *, by_log: bool) -> None:
        if not self.request.acks:
            self.session.fail(error)

    def met_bug(self, error: Exception) -> None:
        self.session.met_bug(error)


def _is_flagged(records: Bytes | tuple[messages.PlainRecord, ...]) -> bool:
    """Return whether the records claim to be transactional; the claim is not verified yet."""
    if isinstance(records, tuple):
        return False
    return len(records) > FLAGS_POSITION and bool(records[FLAGS_POSITION] & TRANSACTIONAL_FLAG)


def check_transaction(transactional_id: str | None, topic_partition: TopicPartition, header: BatchHeader) -> None:
    """InvalidTxnStateError when a batch is transactional and the request names no transactional id, or the other way round."""
    if header.is_transactional and transactional_id is None:
        raise InvalidTxnStateError(
            f"{topic_partition}: the batch of producer {header.producer_id} is transactional. Name its transactional_id"
        )
    if transactional_id is not None and not header.is_transactional:
        raise InvalidTxnStateError(
            f"{topic_partition}: the records are not transactional, but the request names transactional id "
            f"{transactional_id!r}. Batches of a transaction have attribute bit 4"
        )
