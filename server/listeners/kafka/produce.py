"""Produce: record batches to partitions. Source: KIP-98, KIP-467 (errors of single batches), KIP-890 (joining a transaction).

The partitions of a request are offered their records before the next request of the connection is taken up: in this turn where
that takes no long look at them. The partitions' actors answer, and the last answer makes the response. With acks 0 there is
none, so a failure ends the connection (as Kafka does).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from ....protocol.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    RequestError,
    UnsupportedCompressionTypeError,
)
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.connection import PRODUCED, PartitionProduced, TopicProduced
from ....protocol.kafka.messages.records import (
    ProduceBatchIndexAndErrorMessage,
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
    ProduceTopicResponse,
)
from ....protocol.records.batch import (
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    MAGIC,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    parse_header,
)
from ....protocol.types import Bytes, CompressionType, TopicPartition
from ...broker import PARTITIONS_AT_ONCE, PARTITIONS_PER_TURN, AppendResult, PendingProduce
from ...loop.reactor import Work
from .door import Call
from .session import Turn

ACKS: Final = (-1, 0, 1)
FIRST_WITH_ZSTD: Final = 7
ZSTD: Final = CompressionType.ZSTD.value
MAGIC_POSITION: Final = 16
LEAST_SIZE: Final = LOG_OVERHEAD + 14
"""Of what Kafka's reader takes for a batch, of whatever format: that is a record of version 0 without anything in it."""
FIRST_WITH_ABORTABLE: Final = 11
FIRST_THAT_JOINS: Final = 12
"""From this version on producing joins a transaction; before it AddPartitionsToTxn does (KIP-890)."""
FIRST_WITH_TOPIC_IDS: Final = 13
FLAGS_POSITION: Final = 22
"""The lower byte of the attributes."""
_FRAMING: Final = struct.Struct(">8xi4xb4xh")
"""Of a batch: its length, magic and attributes."""
ERRORS_WITH_LOG_START: Final = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    }
)

Entry = tuple[ProduceTopic, ProducePartition]
Checked = tuple[TopicPartition, Bytes]


def take_produce(call: Call, turn: Turn, request: ProduceRequest) -> Work | None:
    """Offer the partitions of a request their records, or return what does it."""
    entries = [(topic, asked) for topic in request.topic_data for asked in topic.partition_data]
    count = len(entries)
    produce = KafkaProduce(request, count, [None] * count, entries, count == 1, call, turn)
    work: Work | None = None
    if request.transactional_id is not None:
        work = partial(produce.join_and_offer, request.transactional_id)
    elif count > 1 and _has_transactional(entries):  # all are refused, or none: a single one when it is checked
        produce.refuse_all()
    elif count > PARTITIONS_AT_ONCE:
        work = partial(produce.offer_all, enumerate(entries), produce.offer)
    else:
        work = produce.offer_in_turn(enumerate(entries), produce.offer)
    if request.acks and not turn.is_answered:
        turn.expires = produce
        turn.session.deadlines.add(produce, request.timeout_ms / 1000)
    return work


@attrs.define(eq=False, repr=False)
class KafkaProduce(PendingProduce):
    """A produce that waits for its partitions' answers. Owner: its turn, until it is answered."""

    entries: Sequence[Entry]
    """By slot."""
    is_single: bool
    """Whether it has one partition."""
    call: Call
    turn: Turn
    _log_starts: dict[int, int] = attrs.field(factory=dict)
    """By slot, of logs that refused their records."""

    # ---- offers ----------------------------------------------------------------------------------------------------------

    def offer(self, slot: int, entry: Entry) -> Work | None:
        """Offer a partition its records, if the client may append them. Raises the RequestError of the log."""
        try:
            topic_partition, records = self._checked(*entry)
        except RequestError as exc:
            self.put(slot, exc.as_answer(), by_log=False)
            return None
        return self.call.broker.writer.offer(topic_partition, records, self.request.acks, partial(self.put, slot))

    def _offer_joined(self, slot: int, checked: Checked) -> Work | None:
        """The same for a partition whose producer names its transaction."""
        topic_partition, records = checked
        joins = self.call.version >= FIRST_THAT_JOINS and bool(records[FLAGS_POSITION] & TRANSACTIONAL_FLAG)
        answer, writer = partial(self.put, slot), self.call.broker.writer
        return writer.offer(topic_partition, records, self.request.acks, answer, joins_transaction=joins)

    def _checked(self, topic: ProduceTopic, asked: ProducePartition) -> Checked:
        """Return the partition and its records. Raises the RequestError that is its answer, in Kafka's order."""
        call, request, records = self.call, self.request, asked.records
        version = call.version
        is_one_batch = False
        if records and (size := len(records)) >= RECORD_BATCH_OVERHEAD:
            length, magic, attributes = _FRAMING.unpack_from(records)
            if attributes & TRANSACTIONAL_FLAG and request.transactional_id is None:
                raise _without_id()
            is_one_batch = magic == MAGIC and size == LOG_OVERHEAD + length
            is_one_batch &= attributes & COMPRESSION_MASK != ZSTD or version >= FIRST_WITH_ZSTD
        if version >= FIRST_WITH_TOPIC_IDS:
            try:
                name = call.broker.topics.named(topic.topic_id)
            except RequestError:
                _check_readable(f"{topic.topic_id.hex()}-{asked.index}", records or b"")
                raise
        else:
            name = topic.name
        # What TopicPartition(...) makes, without its Python-level call.
        topic_partition = tuple.__new__(TopicPartition, (name, asked.index))
        if call.guard is not None:
            if request.transactional_id is not None:
                call.check_authorized(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            call.check_authorized(AclOperation.WRITE, ResourceType.TOPIC, name)
        if not is_one_batch or request.acks not in ACKS:
            _check_odd_records(call, request.acks, topic_partition, records or b"")
        if request.transactional_id is not None:
            call.check_partition(topic_partition)  # before it joins
        return topic_partition, records or b""

    def refuse_all(self) -> None:
        """Refuse all partitions because one of them has a transactional batch, but the request no transactional id."""
        error = _without_id()
        for slot in range(len(self.results)):
            self.put(slot, error, by_log=False)

    async def join_and_offer(self, transactional_id: str) -> None:
        """Let the partitions join their producer's transaction, or check that they have: all do, or all are refused.

        Records that are not transactional are a matter of the log, as without an id.
        """
        wanted: dict[int, Checked] = {}
        for slot, entry in enumerate(self.entries):
            if not slot % PARTITIONS_PER_TURN and slot:
                await trio.lowlevel.checkpoint()
            try:
                wanted[slot] = self._checked(*entry)
            except RequestError as exc:
                self.put(slot, exc.as_answer(), by_log=False)
        try:
            await self._join(transactional_id, wanted.values())
        except RequestError as exc:
            error = self._error_of_transaction(exc)
            for slot in wanted:
                self.put(slot, error, by_log=False)
            wanted = {}
        await self.offer_all(wanted.items(), self._offer_joined)

    async def _join(self, transactional_id: str, wanted: Iterable[Checked]) -> None:
        joining: dict[tuple[int, int], list[TopicPartition]] = {}
        for topic_partition, records in wanted:
            header = parse_header(records)
            if header.is_transactional:
                joining.setdefault((header.producer_id, header.producer_epoch), []).append(topic_partition)
        transactions = self.call.broker.transactions
        for producer, partitions in joining.items():
            if self.call.version >= FIRST_THAT_JOINS:
                await transactions.add_partitions(transactional_id, *producer, partitions)
            else:
                transactions.check_joined(transactional_id, *producer, partitions)

    def _error_of_transaction(self, error: RequestError) -> RequestError:
        """The error of a transaction under the code that Produce uses for it."""
        code = error.code
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif code is ErrorCode.INVALID_TXN_STATE and self.call.version >= FIRST_WITH_ABORTABLE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        return RequestError(error.message, code)

    # ---- results ---------------------------------------------------------------------------------------------------------

    def note_refusal(self, slot: int, error: RequestError, *, by_log: bool) -> None:
        """Kafka says where the log begins with most of the errors that a log finds."""
        if by_log and error.code in ERRORS_WITH_LOG_START:
            topic, asked = self.entries[slot]
            with suppress(RequestError):
                name = self.call.topic_name(topic.name, topic.topic_id, by_id=self.call.version >= FIRST_WITH_TOPIC_IDS)
                snapshot = self.call.broker.reader.snapshot(TopicPartition(name, asked.index))
                self._log_starts[slot] = snapshot.log_start_offset
        if not self.request.acks:
            self.turn.session.fail(f"a produce with acks=0 failed: {error}")

    def respond(self) -> None:
        turn, results = self.turn, self.results
        if turn.is_answered:
            return
        result = results[0] if self.is_single else None
        if result.__class__ is AppendResult and not turn.needs_body:
            [(topic, asked)] = self.entries
            offset, _, append_time, log_start_offset = result
            throttle_ms = turn.charge() if turn.session.quotas.is_active else 0
            values = (throttle_ms, topic.name, topic.topic_id, asked.index, offset, append_time, log_start_offset)
            turn.leave(PRODUCED.single(turn.request, values))
        elif not turn.needs_body and (topics := self._topics_appended()) is not None:
            throttle_ms = turn.charge() if turn.session.quotas.is_active else 0
            turn.leave(PRODUCED.buffers(turn.request, (throttle_ms, topics)))
        else:
            codes = {result.code: None for result in results if isinstance(result, RequestError)}
            turn.answer(self._message(), errors=tuple(codes))

    def discard(self) -> None:
        self.turn.discard()

    def met_bug(self, error: Exception) -> None:
        self.turn.met_bug(error)

    def _topics_appended(self) -> list[TopicProduced] | None:
        """Return the results for the response if every append succeeded; None if one failed."""
        results, slot = self.results, 0
        topics: list[TopicProduced] = []
        for topic in self.request.topic_data:
            partitions: list[PartitionProduced] = []
            for asked in topic.partition_data:
                result = results[slot]
                slot += 1
                if result.__class__ is not AppendResult:
                    return None
                partitions.append((asked.index, result.base_offset, result.log_append_time, result.log_start_offset))
            topics.append((topic.name, topic.topic_id, partitions))
        return topics

    def _message(self) -> ProduceResponse:
        results = iter(enumerate(self.results))
        return ProduceResponse(
            responses=[
                ProduceTopicResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[self._partition(each, *next(results)) for each in topic.partition_data],
                )
                for topic in self.request.topic_data
            ]
        )

    def _partition(
        self, asked: ProducePartition, slot: int, result: AppendResult | RequestError | None
    ) -> ProducePartitionResponse:
        if isinstance(result, AppendResult):
            return ProducePartitionResponse(
                index=asked.index,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time,
                log_start_offset=result.log_start_offset,
                record_errors=[],
            )
        assert result is not None
        return ProducePartitionResponse(
            index=asked.index,
            error_code=result.code,
            base_offset=-1,
            log_start_offset=self._log_starts.get(slot, -1),
            record_errors=[
                ProduceBatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in result.record_errors
            ],
            error_message=result.message,
        )


def _has_transactional(entries: Iterable[Entry]) -> bool:
    """Return whether the batch of a partition belongs to a transaction."""
    return any(
        asked.records and len(asked.records) >= RECORD_BATCH_OVERHEAD and asked.records[FLAGS_POSITION] & TRANSACTIONAL_FLAG
        for _, asked in entries
    )


def _without_id() -> RequestError:
    """The authorization error that Kafka has for a missing transactional id."""
    return RequestError(
        "a batch is transactional, but the request names no transactional id",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def _check_odd_records(call: Call, acks: int, topic_partition: TopicPartition, records: Bytes) -> None:
    """Raise the RequestError for what is wrong with the records of a partition, in Kafka's order, if anything is."""
    _check_readable(topic_partition, records)
    try:
        if not records:
            raise InvalidRecordError(f"{topic_partition}: the request has no records")
        _check_format(call, topic_partition, records)
        if acks not in ACKS:
            raise RequestError(f"{topic_partition}: acks={acks}, expected one of {ACKS}", ErrorCode.INVALID_REQUIRED_ACKS)
    except RequestError:
        call.check_partition(topic_partition)  # Kafka says first that there is none
        raise


def _check_readable(topic_partition: TopicPartition | str, records: Bytes) -> None:
    """Raises CorruptRecordError for what Kafka cannot read at all. It says so even for a missing partition or topic id."""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] > MAGIC:
        raise CorruptRecordError(f"{topic_partition}: the records have magic {records[MAGIC_POSITION]}, expected {MAGIC}")
    if len(records) >= LOG_OVERHEAD and (size := _first_size(records)) < LEAST_SIZE:
        raise CorruptRecordError(f"{topic_partition}: a batch of {size} bytes, expected at least {LEAST_SIZE}")


def _check_format(call: Call, topic_partition: TopicPartition, records: Bytes) -> None:
    """Kafka calls older formats than that of the batches invalid, not damaged. The codec counts that the client chose."""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < MAGIC:
        raise InvalidRecordError(f"{topic_partition}: the records have magic {records[MAGIC_POSITION]}, expected {MAGIC}")
    size = _first_size(records)
    if len(records) < LOG_OVERHEAD or len(records) < size:
        raise InvalidRecordError(f"{topic_partition}: no whole batch in {len(records)} bytes")
    has_header = len(records) >= RECORD_BATCH_OVERHEAD
    if call.version < FIRST_WITH_ZSTD and has_header and parse_header(records).attributes & COMPRESSION_MASK == ZSTD:
        raise UnsupportedCompressionTypeError(f"{topic_partition}: zstd needs Produce v{FIRST_WITH_ZSTD}")
    if size < RECORD_BATCH_OVERHEAD:
        raise CorruptRecordError(f"{topic_partition}: a batch of {size} bytes has less than a batch's header")
    if len(records) >= size + LOG_OVERHEAD and len(records) - size >= _first_size(records[size:]):
        raise InvalidRecordError(
            f"{topic_partition}: a produce request may have one record batch for a partition, this one has more"
        )


def _first_size(records: Bytes) -> int:
    """Bytes of the first batch, as its header says."""
    return LOG_OVERHEAD + int.from_bytes(records[LOG_OVERHEAD - 4 : LOG_OVERHEAD], "big", signed=True)
