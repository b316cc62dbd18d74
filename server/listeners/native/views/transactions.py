"""The native calls that show transactions and producers: values in, values out."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from .....protocol.coordinator.transactions import STATE_NAMES, TransactionLogValue, TransactionState
from .....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from .....protocol.native import messages
from .....protocol.types import NO_OFFSET, TopicPartition
from ....broker import Broker, ProducerEntry
from ....loop.procedures import in_turns

OPEN_STATES: Final = frozenset({TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
IDS_PER_TURN: Final = 256
PARTITIONS_PER_TURN: Final = 4
NOT_OPEN: Final = -1

MaySee = Callable[[str], bool]
MayHaveOwner = Callable[[int, TopicPartition], bool]
"""(producer id, partition): whether what is open there may belong to a transactional id."""


async def list_transactions(
    broker: Broker, message: messages.ListTransactionsRequest, may_see: MaySee | None = None
) -> messages.ListTransactionsResponse:
    """Those that `may_see` says, None: all."""
    now_ms, states = broker.now_ms(), _states(message.states)
    found = []
    async for name, value in in_turns(list(broker.transactions.states()), IDS_PER_TURN):
        if states is not None and value.state not in states:
            continue
        if message.open_for_ms is not None and not 0 <= message.open_for_ms <= _open_ms(value, now_ms):
            continue
        if may_see is None or may_see(name):
            found.append((name, value))
    told = heapq.nsmallest(message.max_transactions, found, key=_rank)
    return messages.ListTransactionsResponse(
        tuple(
            messages.ListedTransaction(
                name,
                STATE_NAMES[value.state],
                value.producer_id,
                value.producer_epoch,
                value.timeout_ms,
                value.start_ms,
                value.last_update_ms,
                _open_ms(value, now_ms),
                len(value.partitions),
            )
            for name, value in told
        ),
        len(found) - len(told),
    )


def _states(names: tuple[str, ...] | None) -> frozenset[TransactionState] | None:
    if names is None:
        return None
    by_name = {name: state for state, name in STATE_NAMES.items()}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is no state of a transaction; there are {', '.join(by_name)}")
    return frozenset(by_name[name] for name in names)


def _open_ms(value: TransactionLogValue, now_ms: int) -> int:
    return max(0, now_ms - value.start_ms) if value.state in OPEN_STATES else NOT_OPEN


def _rank(found: tuple[str, TransactionLogValue]) -> tuple[bool, int, str]:
    name, value = found
    is_open = value.state in OPEN_STATES
    return not is_open, value.start_ms if is_open else -value.last_update_ms, name


async def describe_transactions(
    broker: Broker, message: messages.DescribeTransactionsRequest
) -> messages.DescribeTransactionsResponse:
    now_ms = broker.now_ms()
    return messages.DescribeTransactionsResponse(
        tuple([_described(broker, name, now_ms) async for name in in_turns(message.transactions)])
    )


def _described(broker: Broker, name: str, now_ms: int) -> messages.DescribedTransaction:
    try:
        value = broker.transactions.state(name)
        if value is None:
            raise RequestError(f"transactional id {name!r} is not known", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except RequestError as exc:
        return messages.DescribedTransaction(name, exc.as_answer())
    return messages.DescribedTransaction(
        name,
        None,
        STATE_NAMES[value.state],
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        value.start_ms,
        value.last_update_ms,
        _open_ms(value, now_ms),
        tuple(messages.Partition(*each) for each in sorted(value.partitions)),
    )


async def describe_producers(broker: Broker, message: messages.DescribeProducersRequest) -> messages.DescribeProducersResponse:
    may_have_owner = broker.producers.may_have_owner
    left, answers = message.max_producers, []
    async for each in in_turns(message.partitions, PARTITIONS_PER_TURN):
        try:
            producers = broker.producers.active(each.topic_partition, open_only=message.open_only)
        except RequestError as exc:
            answers.append(messages.DescribeProducersPartitionResponse(*each.topic_partition, exc.as_answer()))
            continue
        told = heapq.nsmallest(left, producers, key=_producer_rank)
        left -= len(told)
        answers.append(
            messages.DescribeProducersPartitionResponse(
                *each.topic_partition,
                None,
                tuple(_producer(each.topic_partition, entry, may_have_owner) for entry in told),
                len(producers) - len(told),
            )
        )
    return messages.DescribeProducersResponse(tuple(answers))


def _producer_rank(entry: ProducerEntry) -> tuple[bool, int, int]:
    start = entry.current_txn_first_offset
    return start is None, -entry.last_timestamp if start is None else start, entry.producer_id


def _producer(
    topic_partition: TopicPartition, entry: ProducerEntry, may_have_owner: MayHaveOwner
) -> messages.DescribedProducer:
    start = entry.current_txn_first_offset
    return messages.DescribedProducer(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_timestamp,
        entry.coordinator_epoch,
        NO_OFFSET if start is None else start,
        start is not None and not may_have_owner(entry.producer_id, topic_partition),
    )
