"""Produce: record batches to partitions. Source: KIP-98, KIP-467 (errors of single batches), KIP-890 (joining a transaction).

The appends of a request are enqueued before the next request of the connection is looked at: at once where that takes no long
look at its records. The partitions' actors answer, and the last answer makes the response. With acks 0 there is none, so a
failure ends the connection (as Kafka does).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import trio

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.records import ProducePartition, ProduceRequest
from ....protocol.records.batch import RECORD_BATCH_OVERHEAD, TRANSACTIONAL_FLAG, parse_header
from ....protocol.types import Bytes, TopicPartition
from ...broker import PartitionAppend
from ..connections.connection_task import Work
from .door import Call
from .pending_produce import PendingProduce, put_answer, put_answer_of_log
from .produce_checks import ACKS, FIRST_WITH_ZSTD, checked_records, is_one_batch
from .session import Turn

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
FLAGS_POSITION: Final = 22
"""The lower byte of the attributes."""

Wanted = tuple[TopicPartition, Bytes]
Append = tuple[int, TopicPartition, PartitionAppend]
"""(slot, partition, what is to be appended where)"""


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
        if not actor.try_append(prepared, request.acks, partial(put_answer, call, pending, topic_partition, slot)):
            return partial(_enqueue, call, pending, appends)
        appends.popleft()
    if not count or not request.acks:
        _settle(pending)
    return None


def _prepared_now(call: Call, request: ProduceRequest) -> deque[Append] | None:
    """What the logs can take; None, and nothing has happened, where that takes a longer look, or something is to be refused."""
    appends: deque[Append] = deque()
    guard, broker, version = call.door.guard, call.door.broker, call.version
    prepare_now = broker.writer.prepare_now
    slot = 0
    try:
        for topic in request.topic_data:
            name = broker.topics.named(topic.topic_id) if version >= FIRST_WITH_TOPIC_IDS else topic.name
            if guard is not None and not call.authorize(AclOperation.WRITE, ResourceType.TOPIC, name, quietly=True):
                return None
            for each in topic.partition_data:
                records = each.records
                if not records or records[FLAGS_POSITION] & TRANSACTIONAL_FLAG:
                    return None
                if version < FIRST_WITH_ZSTD and not is_one_batch(call, records):
                    return None
                # What TopicPartition(...) makes, without its Python-level call.
                topic_partition = tuple.__new__(TopicPartition, (name, each.index))
                append = prepare_now(topic_partition, records)
                if append is None:
                    return None
                appends.append((slot, topic_partition, append))
                slot += 1
    except (RequestError, ValueError, IndexError):  # which is said by who looks longer
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
        answer = partial(put_answer, call, pending, topic_partition, slot)
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
        if call.door.guard is not None:
            if request.transactional_id is not None:
                call.check_authorized(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            call.check_authorized(AclOperation.WRITE, ResourceType.TOPIC, name)
        return topic_partition, checked_records(call, request, topic_partition, each)
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
            put_answer_of_log(call, pending, topic_partition, slot, exc.as_answer())
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
