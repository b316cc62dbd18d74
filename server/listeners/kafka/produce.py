"""Produce: record batches to partitions. Source: KIP-98, KIP-467 (errors of single batches), KIP-890 (joining a transaction).

The appends of a request are enqueued before the next request of the connection is looked at; the partitions' actors answer, and
the last answer makes the response. With acks 0 there is none, so a failure ends the connection (as Kafka does).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import attrs
import trio

from ....protocol.errors import (
    ErrorCode,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTxnStateError,
    RequestError,
    RequestTimedOutError,
    UnsupportedCompressionTypeError,
)
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ....protocol.records.batch import MAGIC
from ....protocol.types import Bytes, CompressionType, TopicPartition
from ...broker import Append, AppendResult
from .door import Call
from .session import Turn

ACKS: Final = (-1, 0, 1)
FIRST_WITH_ZSTD: Final = 7
FIRST_WITH_ABORTABLE: Final = 11
FIRST_THAT_JOINS: Final = 12
"""From this version on producing joins a transaction; before it AddPartitionsToTxn does (KIP-890)."""
FIRST_WITH_TOPIC_IDS: Final = 13
TIMEOUT_CHECK_S: Final = 1.0
"""How exact a timeout is, and the shortest: nothing is waited for but the device, so that 0, which some clients send, must not
be over before the append was tried."""
MAGIC_POSITION: Final = 16


@attrs.define(eq=False)
class PendingProduce:
    """A produce that waits for its partitions' answers, which come from their actors' tasks."""

    turn: Turn
    request: ProduceRequest
    forget: Callable[[PendingProduce], None]
    """Called when it is answered: its records are not to be kept any longer."""
    _results: list[AppendResult | RequestError | None] = attrs.field(init=False)
    _missing: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._missing = sum(len(topic.partition_data) for topic in self.request.topic_data)
        self._results = [None] * self._missing

    def put(self, slot: int, result: AppendResult | RequestError) -> None:
        """One partition's answer; the last one makes the response."""
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
        self.forget(self)
        results = iter(self._results)
        self.turn.answer(
            ProduceResponse(
                responses=[
                    ProduceTopicResponse(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partition_responses=[_partition(each, next(results)) for each in topic.partition_data],
                    )
                    for topic in self.request.topic_data
                ]
            )
        )


def _partition(asked: ProducePartition, result: AppendResult | RequestError | None) -> ProducePartitionResponse:
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
        index=asked.index, error_code=result.code, base_offset=-1, record_errors=[], error_message=result.message
    )


@attrs.define(eq=False)
class Produces:
    """The produce requests of one connection that wait for their answers. Owner: the connection's calls."""

    nursery: trio.Nursery
    _pending: dict[PendingProduce, float] = attrs.field(factory=dict)
    _watching: bool = False

    async def take(self, call: Call, turn: Turn, request: ProduceRequest) -> None:
        """Enqueue the appends of a request; waits only for room in a mailbox."""
        pending = PendingProduce(turn, request, self._forget)
        if request.acks:
            self._watch(pending)
        appends = _prepare(call, request, pending)
        if request.transactional_id is not None:
            appends = await _join_transaction(call, request.transactional_id, appends, pending)
        for slot, (_, (actor, prepared)) in appends.items():
            await call.broker.submit(actor, prepared, request.acks, partial(pending.put, slot))
        if not request.acks:
            turn.discard()
        elif not any(topic.partition_data for topic in request.topic_data):
            pending.answer()

    def _watch(self, pending: PendingProduce) -> None:
        self._pending[pending] = trio.current_time() + max(0, pending.request.timeout_ms) / 1000
        if not self._watching:
            self._watching = True
            self.nursery.start_soon(self._expire_produces)

    def _forget(self, pending: PendingProduce) -> None:
        self._pending.pop(pending, None)

    async def _expire_produces(self) -> None:
        """Answer produces whose timeout is over, while there are any. A connection that is idle is not woken."""
        while self._pending:
            await trio.sleep(TIMEOUT_CHECK_S)
            now = trio.current_time()
            for pending in [each for each, deadline in self._pending.items() if deadline <= now]:
                pending.expire()
        self._watching = False


def _named_partitions(call: Call, request: ProduceRequest) -> Iterator[tuple[ProducePartition, str | RequestError]]:
    """Every partition of a request with its topic's name, or why there is none."""
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    for topic in request.topic_data:
        name: str | RequestError
        try:
            name = call.topic_name(topic.name, topic.topic_id, by_id=by_id)
        except RequestError as exc:
            name = exc.as_answer()
        for each in topic.partition_data:
            yield each, name


def _prepare(call: Call, request: ProduceRequest, pending: PendingProduce) -> dict[int, tuple[TopicPartition, Append]]:
    """What can be appended, by slot; the other partitions have their answers."""
    appends: dict[int, tuple[TopicPartition, Append]] = {}
    for slot, (each, name) in enumerate(_named_partitions(call, request)):
        try:
            if isinstance(name, RequestError):
                raise name
            topic_partition = TopicPartition(name, each.index)
            appends[slot] = topic_partition, _checked_append(call, request, topic_partition, each)
        except RequestError as exc:
            pending.put(slot, exc.as_answer())
        except ValueError as exc:
            pending.put(slot, InvalidRequestError(f"{name}-{each.index}: {exc}"))
    return appends


def _checked_append(call: Call, request: ProduceRequest, topic_partition: TopicPartition, asked: ProducePartition) -> Append:
    """Raises the RequestError that is the partition's answer."""
    if call.door.guard is not None:
        if request.transactional_id is not None:
            call.check_authorized(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        call.check_authorized(AclOperation.WRITE, ResourceType.TOPIC, topic_partition.topic)
    if request.acks not in ACKS:
        raise RequestError(f"{topic_partition}: acks={request.acks}, expected one of {ACKS}", ErrorCode.INVALID_REQUIRED_ACKS)
    if not asked.records:
        raise InvalidRecordError(f"{topic_partition}: there are no records in the request")
    _check_magic(topic_partition, asked.records)
    append = call.broker.prepare(topic_partition, asked.records)
    batches = append[1].batches
    if len(batches) != 1:
        raise InvalidRecordError(f"{topic_partition}: a produce has one record batch for a partition, this one {len(batches)}")
    header = batches[0][0]
    if call.version < FIRST_WITH_ZSTD and header.compression_type is CompressionType.ZSTD:
        raise UnsupportedCompressionTypeError(f"{topic_partition}: zstd needs Produce v{FIRST_WITH_ZSTD}")
    is_transactional = header.is_transactional
    if is_transactional != (request.transactional_id is not None):
        raise InvalidTxnStateError(
            f"{topic_partition}: the batch is {'' if is_transactional else 'not '}transactional, and the request names "
            f"{'no transactional id' if is_transactional else 'one'}"
        )
    return append


def _check_magic(topic_partition: TopicPartition, records: Bytes) -> None:
    """Kafka calls another format than that of the batches invalid, not damaged."""
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != MAGIC:
        raise InvalidRecordError(f"{topic_partition}: the records have magic {records[MAGIC_POSITION]}, expected {MAGIC}")


async def _join_transaction(
    call: Call, transactional_id: str, appends: dict[int, tuple[TopicPartition, Append]], pending: PendingProduce
) -> dict[int, tuple[TopicPartition, Append]]:
    """Let the partitions join their producer's transaction, or see to it that they have: all do, or the request is answered
    with why not."""
    joining: dict[tuple[int, int], list[TopicPartition]] = {}
    for topic_partition, (_, prepared) in appends.values():
        header = prepared.batches[0][0]
        joining.setdefault((header.producer_id, header.producer_epoch), []).append(topic_partition)
    try:
        for producer, partitions in joining.items():
            if call.version >= FIRST_THAT_JOINS:
                await call.broker.add_partitions_to_transaction(transactional_id, *producer, partitions)
            else:
                call.broker.check_in_transaction(transactional_id, *producer, partitions)
    except RequestError as exc:
        error = _error_of_transaction(call, exc)
        for slot in appends:
            pending.put(slot, error)
        return {}
    return appends


def _error_of_transaction(call: Call, error: RequestError) -> RequestError:
    """Under the code that clients of Produce know."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.INVALID_TXN_STATE and call.version >= FIRST_WITH_ABORTABLE:
        code = ErrorCode.TRANSACTION_ABORTABLE
    return RequestError(error.message, code)
