"""The transaction coordinator's APIs. Source: KIP-98, KIP-360, KIP-447, KIP-664 (what administrators see), KIP-890.

A client of transaction version 2 joins partitions by producing and goes on with another epoch after each transaction; one of
before sends AddPartitionsToTxn and AddOffsetsToTxn first. Which it is, the version of its EndTxn tells.

AddPartitionsToTxn asks by itself what the client may do, since what is denied keeps what is allowed from joining, and both are
told why. As in Kafka, a node that coordinates nothing of the transaction says so only when all partitions could join. The
transaction itself is the broker's.

DescribeProducers, DescribeTransactions and ListTransactions are for administrators. Source: KIP-664, KIP-994 (a duration),
KIP-1152 (a pattern).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ....protocol.coordinator.transactions import STATE_NAMES, TransactionLogValue
from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ....protocol.kafka.apis import ApiKey
from ....protocol.kafka.authorization import DENIED, AclOperation, ResourceType
from ....protocol.kafka.messages import transactions as messages
from ....protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from ...broker import is_internal
from ...loop.procedures import in_turns
from .door import Call, filled, pattern_of, reported
from .error_answers import known_code

FIRST_END_WITH_EPOCH: Final = 5
EPOCH_PER_TRANSACTION: Final = 2


async def init_producer_id(call: Call, body: messages.InitProducerIdRequest) -> messages.InitProducerIdResponse:
    """A fresh id, or that of the transactional id; without one the timeout means nothing, whatever clients send."""
    expected = None if body.producer_id == NO_PRODUCER_ID else (body.producer_id, body.producer_epoch)
    if (expected is None) != (body.producer_epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequestError(f"producer id {body.producer_id} and epoch {body.producer_epoch}: give both or neither")
    producer_id, epoch = await call.broker.producers.init(body.transactional_id, body.transaction_timeout_ms, expected)
    return messages.InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


async def add_offsets_to_txn(call: Call, body: messages.AddOffsetsToTxnRequest) -> messages.AddOffsetsToTxnResponse:
    """The partition in which the group's offsets are kept joins."""
    await call.broker.offsets.join_transaction(body.transactional_id, body.producer_id, body.producer_epoch, body.group_id)
    return messages.AddOffsetsToTxnResponse()


async def end_txn(call: Call, body: messages.EndTxnRequest) -> messages.EndTxnResponse:
    """Commit or abort; from version 5 on the answer has the id and epoch to go on with."""
    client_version = EPOCH_PER_TRANSACTION if call.version >= FIRST_END_WITH_EPOCH else 0
    producer_id, epoch = await call.broker.transactions.end(
        body.transactional_id, body.producer_id, body.producer_epoch, commit=body.committed, client_version=client_version
    )
    return messages.EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


async def write_txn_markers(call: Call, body: messages.WriteTxnMarkersRequest) -> messages.WriteTxnMarkersResponse:
    """End transactions on single partitions by hand: what an administrator does with one that hangs (KIP-664)."""
    return messages.WriteTxnMarkersResponse(
        markers=[
            messages.WriteTxnMarkersWritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    messages.WriteTxnMarkersWritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=await _write_markers(call, marker, topic.name, topic.partition_indexes),
                    )
                    async for topic in in_turns(marker.topics)
                ],
            )
            async for marker in in_turns(body.markers)
        ]
    )


async def _write_markers(
    call: Call, marker: messages.WriteTxnMarkersWritableTxnMarker, topic: str, partitions: Iterable[int]
) -> list[messages.TxnPartitionError]:
    results = []
    async for number in in_turns(partitions):
        error: RequestError | None = None
        try:
            await call.broker.transactions.write_marker(
                TopicPartition(topic, number),
                marker.producer_id,
                marker.producer_epoch,
                commit=marker.transaction_result,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        except RequestError as exc:
            error = exc.as_answer()
        results.append(reported(messages.TxnPartitionError, error, partition_index=number))
    return results


async def add_partitions_to_txn(call: Call, body: messages.AddPartitionsToTxnRequest) -> messages.AddPartitionsToTxnResponse:
    """All partitions join or none: where one may not or does not exist, the others are told OPERATION_NOT_ATTEMPTED."""
    named = ((topic.name, number) for topic in body.v3_and_below_topics for number in topic.partitions)
    asked = [TopicPartition(name, number) async for name, number in in_turns(named)]
    refused = await _refused(call, asked)
    code = ErrorCode.OPERATION_NOT_ATTEMPTED if refused else ErrorCode.NONE
    if not refused:
        try:
            call.door.check_coordinator(body.v3_and_below_transactional_id)
            await call.broker.transactions.add_partitions(
                body.v3_and_below_transactional_id,
                body.v3_and_below_producer_id,
                body.v3_and_below_producer_epoch,
                asked,
            )
        except RequestError as exc:
            code = known_code(ApiKey.ADD_PARTITIONS_TO_TXN, call.version, exc.code)
    return messages.AddPartitionsToTxnResponse(
        results_by_transaction=[],
        results_by_topic_v3_and_below=[
            messages.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    messages.AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=refused.get(TopicPartition(topic.name, number), code)
                    )
                    async for number in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(body.v3_and_below_topics)
        ],
    )


async def _refused(call: Call, asked: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """The partitions that cannot join, with their errors. Internal topics cannot: groups join by AddOffsetsToTxn."""
    names = dict.fromkeys(each.topic for each in asked)
    allowed = {name for name in names if not is_internal(name) and call.authorize(AclOperation.WRITE, ResourceType.TOPIC, name)}
    refused = {}
    async for each in in_turns(asked):
        try:
            if each.topic not in allowed:
                refused[each] = DENIED[ResourceType.TOPIC]
            else:
                call.broker.reader.snapshot(each)
        except RequestError as exc:
            refused[each] = exc.code
    return refused


KNOWN_FILTERS: Final = frozenset({*STATE_NAMES.values(), "PrepareEpochFence"})


async def describe_producers(call: Call, body: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
    """The producers that partitions remember, and where their open transactions begin; of each partition once, because it may
    remember a hundred thousand."""
    seen: set[TopicPartition] = set()
    return messages.DescribeProducersResponse(
        topics=[
            messages.DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[
                    _producers(call, each) async for each in in_turns(_unseen(topic.name, topic.partition_indexes, seen))
                ],
            )
            async for topic in in_turns(body.topics)
        ]
    )


def _unseen(topic: str, numbers: Iterable[int], seen: set[TopicPartition]) -> Iterator[TopicPartition]:
    for each in (TopicPartition(topic, number) for number in numbers):
        if each not in seen:
            seen.add(each)
            yield each


def _producers(call: Call, topic_partition: TopicPartition) -> messages.DescribeProducersPartitionResponse:
    try:
        producers = call.broker.producers.active(topic_partition)
    except RequestError as exc:
        return reported(messages.DescribeProducersPartitionResponse, exc, partition_index=topic_partition.partition)
    return messages.DescribeProducersPartitionResponse(
        partition_index=topic_partition.partition,
        active_producers=[
            filled(
                messages.DescribeProducersProducerState,
                each,
                producer_epoch=each.epoch,
                current_txn_start_offset=-1 if each.current_txn_first_offset is None else each.current_txn_first_offset,
            )
            for each in producers
        ],
    )


async def describe_transactions(
    call: Call, body: messages.DescribeTransactionsRequest
) -> messages.DescribeTransactionsResponse:
    """The state of transactional ids by name, of each once."""
    return messages.DescribeTransactionsResponse(
        transaction_states=[_described(call, name) async for name in in_turns(dict.fromkeys(body.transactional_ids))]
    )


def _described(call: Call, transactional_id: str) -> messages.DescribeTransactionsTransactionState:
    try:
        if not transactional_id:
            raise InvalidRequestError("a transactional id is empty")
        value = call.broker.transactions.ids.owner(transactional_id).value
        if value is None:
            raise RequestError(f"transactional id {transactional_id!r} is not known", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except RequestError as exc:
        return reported(messages.DescribeTransactionsTransactionState, exc, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        topics.setdefault(topic, []).append(partition)
    return filled(
        messages.DescribeTransactionsTransactionState,
        value,
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[value.state],
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.start_ms,
        topics=[messages.DescribeTransactionsTopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )


async def list_transactions(call: Call, body: messages.ListTransactionsRequest) -> messages.ListTransactionsResponse:
    """Transactional ids by state, producer id, how long they have been open, and a regular expression for their names."""
    unknown = sorted(set(body.state_filters) - KNOWN_FILTERS)
    try:
        pattern = pattern_of(body.transactional_id_pattern) if body.transactional_id_pattern else None
    except RequestError as exc:
        return messages.ListTransactionsResponse(error_code=exc.code, unknown_state_filters=unknown, transaction_states=[])
    now_ms = call.broker.now_ms()
    wanted = Filters(frozenset(body.state_filters), frozenset(body.producer_id_filters), body.duration_filter)
    found = [
        filled(
            messages.ListTransactionsTransactionState,
            value,
            transactional_id=name,
            transaction_state=STATE_NAMES[value.state],
        )
        async for name, value in in_turns(list(call.broker.transactions.ids.states()))
        if _is_asked_for(wanted, value, now_ms) and (pattern is None or pattern(name))
    ]
    return messages.ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


class Filters(NamedTuple):
    """The filters of a request; an empty filter matches everything."""

    states: frozenset[str]
    producer_ids: frozenset[int]
    duration_ms: int


def _is_asked_for(wanted: Filters, value: TransactionLogValue, now_ms: int) -> bool:
    if wanted.states and STATE_NAMES[value.state] not in wanted.states:
        return False
    if wanted.producer_ids and value.producer_id not in wanted.producer_ids:
        return False
    # One that has not begun anything has begun at -1: longer ago than any filter says, also for Kafka.
    return wanted.duration_ms < 0 or now_ms - value.start_ms >= wanted.duration_ms
