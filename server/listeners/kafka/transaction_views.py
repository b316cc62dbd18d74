"""The administrators' view of producers and transactions: DescribeProducers, DescribeTransactions, ListTransactions. Source:
KIP-664, KIP-994 (a duration), KIP-1152 (a pattern)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ....protocol.coordinator.transactions import STATE_NAMES, TransactionLogValue
from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.messages.transactions import (
    DescribeProducersPartitionResponse,
    DescribeProducersProducerState,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)
from ....protocol.types import TopicPartition
from ...loop.procedures import in_turns
from .door import Call
from .patterns import pattern_of

KNOWN_FILTERS: Final = frozenset({*STATE_NAMES.values(), "PrepareEpochFence"})


async def describe_producers(call: Call, body: DescribeProducersRequest) -> DescribeProducersResponse:
    """The producers that partitions remember, and where their open transactions begin; of each partition once, because it may
    remember a hundred thousand."""
    seen: set[TopicPartition] = set()
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
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


def _producers(call: Call, topic_partition: TopicPartition) -> DescribeProducersPartitionResponse:
    try:
        producers = call.broker.producers.active(topic_partition)
    except RequestError as exc:
        return DescribeProducersPartitionResponse(
            partition_index=topic_partition.partition, error_code=exc.code, error_message=exc.message, active_producers=[]
        )
    return DescribeProducersPartitionResponse(
        partition_index=topic_partition.partition,
        active_producers=[
            DescribeProducersProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=-1 if each.current_txn_first_offset is None else each.current_txn_first_offset,
            )
            for each in producers
        ],
    )


async def describe_transactions(call: Call, body: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """The state of transactional ids by name, of each once."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(call, name) async for name in in_turns(dict.fromkeys(body.transactional_ids))]
    )


def _described(call: Call, transactional_id: str) -> DescribeTransactionsTransactionState:
    code, value = ErrorCode.NONE, None
    if not transactional_id:
        code = ErrorCode.INVALID_REQUEST
    else:
        try:
            value = call.broker.transactions.state(transactional_id)
        except RequestError as exc:
            code = exc.code
        else:
            code = ErrorCode.NONE if value is not None else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if value is None:
        return DescribeTransactionsTransactionState(
            error_code=code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,  # as Kafka's message has it where nothing is said
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(value.partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribeTransactionsTransactionState(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[value.state],
        transaction_timeout_ms=value.timeout_ms,
        transaction_start_time_ms=value.start_ms,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=[DescribeTransactionsTopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )


async def list_transactions(call: Call, body: ListTransactionsRequest) -> ListTransactionsResponse:
    """Transactional ids by state, producer id, how long they have been open, and a regular expression for their names."""
    unknown = sorted(set(body.state_filters) - KNOWN_FILTERS)
    try:
        pattern = pattern_of(body.transactional_id_pattern) if body.transactional_id_pattern else None
    except RequestError as exc:
        return ListTransactionsResponse(error_code=exc.code, unknown_state_filters=unknown, transaction_states=[])
    now_ms = call.broker.now_ms()
    wanted = Filters(frozenset(body.state_filters), frozenset(body.producer_id_filters), body.duration_filter)
    found = [
        ListTransactionsTransactionState(
            transactional_id=name, producer_id=value.producer_id, transaction_state=STATE_NAMES[value.state]
        )
        async for name, value in in_turns(list(call.broker.transactions.states()))
        if _is_asked_for(wanted, value, now_ms) and (pattern is None or pattern(name))
    ]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)


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
