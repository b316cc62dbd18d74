"""Produce: record batches to partitions. Source: KIP-98, KIP-467 (errors of single batches), KIP-890 (joining a transaction).

The appends of a request are enqueued before the next request of the connection is looked at: at once where that takes no long
look at its records. The partitions' actors answer, and the last answer makes the response. With acks 0 there is none, so a
failure ends the connection (as Kafka does).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from ....protocol.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    InvalidRequestError,
    RequestError,
    RequestTimedOutError,
    UnsupportedCompressionTypeError,
)
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.given_answers import PRODUCED
from ....protocol.kafka.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
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
from ...broker import AppendResult, PartitionAppend
from ..connections.session import Work
from .door import Call
from .session import Turn

ACKS: Final = (-1, 0, 1)
FIRST_WITH_ZSTD: Final = 7
ZSTD: Final = CompressionType.ZSTD.value
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
FIRST_WITH_ABORTABLE: Final = 11
FIRST_THAT_JOINS: Final = 12
"""From this version on producing joins a transaction; before it AddPartitionsToTxn does (KIP-890)."""
FIRST_WITH_TOPIC_IDS: Final = 13
PARTITIONS_AT_ONCE: Final = 16
"""Of a request that may be enqueued without a turn of the scheduler."""
PARTITIONS_PER_TURN: Final = 128
"""Appends of a request that are enqueued before others have their turn."""
CHECKED_PER_TURN: Final = 64
"""Partitions of a request that are looked at before others have their turn. What one refuses costs most: 10 to 40 us."""
MAGIC_POSITION: Final = 16
FLAGS_POSITION: Final = 22
"""The lower byte of the attributes."""
_FRAMING: Final = struct.Struct(">8xi4xb4xh")
"""Of a batch: its length, magic and attributes."""
LEAST_SIZE: Final = LOG_OVERHEAD + 14
"""Of what Kafka's reader takes for a batch, of whatever format: that is a record of version 0 without anything in it."""

TopicProduced = tuple[str, bytes, list[tuple[int, int, int, int]]]
"""As `PRODUCED` has it."""
Wanted = tuple[TopicPartition, Bytes]
Append = tuple[int, TopicPartition, PartitionAppend]
"""(slot, partition, what is to be appended where)"""


@attrs.define(eq=False)
class PendingProduce:
    """A produce that waits for its partitions' answers, which come from their actors' tasks."""

    turn: Turn
    request: ProduceRequest
    _missing: int
    """Partitions without an answer."""
    _results: list[AppendResult | RequestError | None] = attrs.field(init=False)
    _log_starts: dict[int, int] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        request = self.request
        self._results = [None] * self._missing
        if request.acks:
            # Nothing is waited for but the device, so that a timeout of 0, which some clients send, must not be over before the
            # append was tried: the deadlines are not that exact.
            self.turn.expires = self
            self.turn.session.deadlines.add(self, max(0, request.timeout_ms) / 1000)

    @property
    def waits_for_anybody(self) -> bool:
        """Whether it names any partition."""
        return bool(self._results)

    def put(self, slot: int, result: AppendResult | RequestError, log_start_offset: int = -1) -> None:
        """One partition's answer, with the log's start where the log refused; the last one makes the response."""
        if log_start_offset >= 0:
            self._log_starts[slot] = log_start_offset
        self._results[slot] = result
        self._missing -= 1
        if self.request.acks:
            if not self._missing:
                self.answer()
        elif isinstance(result, RequestError):
            self.turn.session.fail(f"a produce with acks=0 failed: {result}")

    def expire(self) -> None:
        """Answer what is there; whether the rest is stored is unknown."""
        for slot, result in enumerate(self._results):
            if result is None:
                self._results[slot] = RequestTimedOutError(
                    f"no acknowledgement within timeout_ms={self.request.timeout_ms}; the outcome is unknown"
                )
        self.answer()

    def answer(self) -> None:
        """Its records are not kept any longer."""
        self.turn.session.deadlines.remove(self)
        turn = self.turn
        topics = None if turn.needs_body else self._produced()
        if topics is not None:
            turn.answer(None, PRODUCED.buffers(turn.request, (0, topics)), ())
        else:
            codes = {result.code: None for result in self._results if isinstance(result, RequestError)}
            turn.answer(self._message(), errors=tuple(codes))

    def _produced(self) -> list[TopicProduced] | None:
        """What is told where every partition was appended to; None where one was not."""
        results = iter(self._results)
        topics: list[TopicProduced] = []
        for topic in self.request.topic_data:
            partitions = []
            for asked in topic.partition_data:
                result = next(results)
                if not isinstance(result, AppendResult):
                    return None
                partitions.append((asked.index, result.base_offset, result.log_append_time, result.log_start_offset))
            topics.append((topic.name, topic.topic_id, partitions))
        return topics

    def _message(self) -> ProduceResponse:
        results = iter(enumerate(self._results))
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
            record_errors=[],
            error_message=result.message,
        )


def take_produce(call: Call, turn: Turn, request: ProduceRequest) -> Work | None:
    """Enqueue the appends of a request, or answer what does it."""
    count = 0
    for topic in request.topic_data:
        count += len(topic.partition_data)
    pending = PendingProduce(turn, request, count)
    is_quick = request.transactional_id is None and request.acks in ACKS and count <= PARTITIONS_AT_ONCE
    appends = _prepared_now(call, request) if is_quick else None
    if appends is None:
        return partial(_take_later, call, pending)
    while appends:
        slot, topic_partition, (actor, prepared) = appends[0]
        if not actor.try_append(prepared, request.acks, partial(_put_answer, call, pending, topic_partition, slot)):
            return partial(_enqueue, call, pending, appends)
        appends.popleft()
    if not count or not request.acks:
        _settle(pending)
    return None


def _prepared_now(call: Call, request: ProduceRequest) -> deque[Append] | None:
    """What the logs can take; None, and nothing has happened, where that takes a longer look, or something is to be refused."""
    appends: deque[Append] = deque()
    guard, prepare_now, by_id = call.door.guard, call.door.broker.writer.prepare_now, call.version >= FIRST_WITH_TOPIC_IDS
    slot = 0
    try:
        for topic in request.topic_data:
            name = call.topic_name(topic.name, topic.topic_id, by_id=True) if by_id else topic.name
            if guard is not None and not call.authorize(AclOperation.WRITE, ResourceType.TOPIC, name, quietly=True):
                return None
            for each in topic.partition_data:
                records = each.records
                if not records or not _is_one_batch(call, records) or records[FLAGS_POSITION] & TRANSACTIONAL_FLAG:
                    return None
                topic_partition = TopicPartition(name, each.index)
                append = prepare_now(topic_partition, records)
                if append is None:
                    return None
                appends.append((slot, topic_partition, append))
                slot += 1
    except (RequestError, ValueError):  # which is said by who looks longer
        return None
    return appends


async def _take_later(call: Call, pending: PendingProduce) -> None:
    """The same for what takes long to look at; waits for room in a mailbox, too."""
    request = pending.request
    wanted: dict[int, Wanted] = {}
    if request.transactional_id is None and _has_transactional_batch(request):
        _refuse_all(request, pending)
    else:
        wanted = await _wanted(call, request, pending)
    if request.transactional_id is not None:
        wanted = await _join_transaction(call, request.transactional_id, wanted, pending)
    # All are checked, however long it takes, before the first is enqueued: what waits for room does not come between.
    await _enqueue(call, pending, await _prepare(call, wanted, pending))


async def _enqueue(call: Call, pending: PendingProduce, appends: Iterable[Append]) -> None:
    for slot, topic_partition, (actor, prepared) in appends:
        answer = partial(_put_answer, call, pending, topic_partition, slot)
        await call.broker.writer.submit(actor, prepared, pending.request.acks, answer)
        if not slot % PARTITIONS_PER_TURN and slot:
            await trio.lowlevel.checkpoint()
    _settle(pending)


def _settle(pending: PendingProduce) -> None:
    """Everything is enqueued."""
    if not pending.request.acks:
        pending.turn.discard()
    elif not pending.waits_for_anybody:
        pending.answer()


def _named_partitions(call: Call, request: ProduceRequest) -> Iterator[tuple[ProducePartition, str | RequestError]]:
    """Every partition of a request with its topic's name, or why there is none."""
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    for topic in request.topic_data:
        name: str | RequestError = topic.name
        if by_id:
            try:
                name = call.topic_name(topic.name, topic.topic_id, by_id=True)
            except RequestError as exc:
                name = exc.as_answer()
        for each in topic.partition_data:
            yield each, name


async def _wanted(call: Call, request: ProduceRequest, pending: PendingProduce) -> dict[int, Wanted]:
    """What is to be appended, by slot; the other partitions have their answers."""
    wanted: dict[int, Wanted] = {}
    for slot, (each, name) in enumerate(_named_partitions(call, request)):
        if not slot % CHECKED_PER_TURN and slot:
            await trio.lowlevel.checkpoint()
        try:
            wanted[slot] = _wanted_one(call, request, each, name)
        except RequestError as exc:
            pending.put(slot, exc.as_answer())
    return wanted


def _wanted_one(call: Call, request: ProduceRequest, each: ProducePartition, name: str | RequestError) -> Wanted:
    """What is to be appended to one partition. Raises the RequestError that is its answer."""
    if isinstance(name, RequestError):
        raise name
    try:
        topic_partition = TopicPartition(name, each.index)
        return topic_partition, _checked_records(call, request, topic_partition, each)
    except ValueError as exc:
        raise InvalidRequestError(f"{name}-{each.index}: {exc}") from exc


async def _prepare(call: Call, wanted: Mapping[int, Wanted], pending: PendingProduce) -> list[Append]:
    """What the logs can take; the other partitions have their answers."""
    appends: list[Append] = []
    writer = call.broker.writer
    for count, (slot, (topic_partition, records)) in enumerate(wanted.items()):
        if not count % CHECKED_PER_TURN and count:
            await trio.lowlevel.checkpoint()
        try:
            now = writer.prepare_now(topic_partition, records)
            actor, prepared = now or await writer.prepare(topic_partition, records)
        except RequestError as exc:
            _put_answer_of_log(call, pending, topic_partition, slot, exc.as_answer())
            continue
        joins = call.version >= FIRST_THAT_JOINS and prepared.batches[0][0].is_transactional
        prepared = prepared._replace(joins_transaction=True) if joins else prepared
        appends.append((slot, topic_partition, (actor, prepared)))
    return appends


def _has_transactional_batch(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for each in topic.partition_data:
            records = each.records
            if records and len(records) >= RECORD_BATCH_OVERHEAD and records[FLAGS_POSITION] & TRANSACTIONAL_FLAG:
                return True
    return False


def _refuse_all(request: ProduceRequest, pending: PendingProduce) -> None:
    """Refuse all partitions, with the authorization error that Kafka has for a missing transactional id."""
    error = RequestError(
        "a batch is transactional, and the request names no transactional id", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    for slot in range(sum(len(topic.partition_data) for topic in request.topic_data)):
        pending.put(slot, error)


def _put_answer(
    call: Call, pending: PendingProduce, topic_partition: TopicPartition, slot: int, result: AppendResult | RequestError
) -> None:
    """Called by the log's actor. Raises nothing: the actor serves others too."""
    try:
        if isinstance(result, AppendResult):
            pending.put(slot, result)
        else:
            _put_answer_of_log(call, pending, topic_partition, slot, result)
    except Exception as exc:
        pending.turn.met_bug(exc)


def _put_answer_of_log(
    call: Call, pending: PendingProduce, topic_partition: TopicPartition, slot: int, result: AppendResult | RequestError
) -> None:
    """Kafka tells where a log begins also with most of the errors that a log finds."""
    log_start_offset = -1
    if isinstance(result, RequestError) and result.code in ERRORS_WITH_LOG_START:
        with suppress(RequestError):
            log_start_offset = call.broker.reader.snapshot(topic_partition).log_start_offset
    pending.put(slot, result, log_start_offset)


def _checked_records(call: Call, request: ProduceRequest, topic_partition: TopicPartition, asked: ProducePartition) -> Bytes:
    """What is to be appended. Raises the RequestError that is the partition's answer."""
    if call.door.guard is not None:
        if request.transactional_id is not None:
            call.check_authorized(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        call.check_authorized(AclOperation.WRITE, ResourceType.TOPIC, topic_partition.topic)
    records = asked.records
    if not records or request.acks not in ACKS or not _is_one_batch(call, records):
        _check_odd(call, request, topic_partition, records or b"")
    if request.transactional_id is not None:
        call.check_partition(topic_partition)  # before it joins
    return records or b""


def _is_one_batch(call: Call, records: Bytes) -> bool:
    """Whether all is well with the framing of the records: most of the time, and then nothing else is asked."""
    if len(records) < RECORD_BATCH_OVERHEAD:
        return False
    size, magic, attributes = _FRAMING.unpack_from(records)
    return (
        magic == MAGIC
        and len(records) == LOG_OVERHEAD + size
        and (attributes & COMPRESSION_MASK != ZSTD or call.version >= FIRST_WITH_ZSTD)
    )


def _check_odd(call: Call, request: ProduceRequest, topic_partition: TopicPartition, records: Bytes) -> None:
    """Say what is wrong with it, in Kafka's order, if anything is: raises RequestError."""
    _check_readable(topic_partition, records)
    try:
        if not records:
            raise InvalidRecordError(f"{topic_partition}: there are no records in the request")
        _check_format(call, topic_partition, records)
        if request.acks not in ACKS:
            raise RequestError(
                f"{topic_partition}: acks={request.acks}, expected one of {ACKS}", ErrorCode.INVALID_REQUIRED_ACKS
            )
    except RequestError:
        call.check_partition(topic_partition)  # Kafka says first that there is none
        raise


def _check_readable(topic_partition: TopicPartition, records: Bytes) -> None:
    """Raises CorruptRecordError for what Kafka cannot read at all; it says so even for a missing partition."""
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
        raise InvalidRecordError(f"{topic_partition}: there is no whole batch in {len(records)} bytes")
    has_header = len(records) >= RECORD_BATCH_OVERHEAD
    if call.version < FIRST_WITH_ZSTD and has_header and parse_header(records).attributes & COMPRESSION_MASK == ZSTD:
        raise UnsupportedCompressionTypeError(f"{topic_partition}: zstd needs Produce v{FIRST_WITH_ZSTD}")
    if size < RECORD_BATCH_OVERHEAD:
        raise CorruptRecordError(f"{topic_partition}: a batch of {size} bytes has less than a batch's header")
    if len(records) >= size + LOG_OVERHEAD and len(records) - size >= _first_size(records[size:]):
        raise InvalidRecordError(f"{topic_partition}: a produce has one record batch for a partition, there is more behind it")


def _first_size(records: Bytes) -> int:
    """Bytes of the first batch, as its header says."""
    return LOG_OVERHEAD + int.from_bytes(records[LOG_OVERHEAD - 4 : LOG_OVERHEAD], "big", signed=True)


async def _join_transaction(
    call: Call, transactional_id: str, wanted: dict[int, Wanted], pending: PendingProduce
) -> dict[int, Wanted]:
    """Let the partitions join their producer's transaction, or see to it that they have: all do, or the request is answered
    with why not. What is not transactional is a matter of the log, as without an id."""
    joining: dict[tuple[int, int], list[TopicPartition]] = {}
    for topic_partition, records in wanted.values():
        header = parse_header(records)
        if header.is_transactional:
            joining.setdefault((header.producer_id, header.producer_epoch), []).append(topic_partition)
    try:
        for producer, partitions in joining.items():
            if call.version >= FIRST_THAT_JOINS:
                await call.broker.transactions.add_partitions(transactional_id, *producer, partitions)
            else:
                call.broker.transactions.check_joined(transactional_id, *producer, partitions)
    except RequestError as exc:
        error = _error_of_transaction(call, exc)
        for slot in wanted:
            pending.put(slot, error)
        return {}
    return wanted


def _error_of_transaction(call: Call, error: RequestError) -> RequestError:
    """The error of a transaction under the code that Produce uses for it."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.INVALID_TXN_STATE and call.version >= FIRST_WITH_ABORTABLE:
        code = ErrorCode.TRANSACTION_ABORTABLE
    return RequestError(error.message, code)
