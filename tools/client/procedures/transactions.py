"""Transactions and producers as administrators see them, as generators: requests out, answers in, as in `procedures`."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol.limits import DEFAULT_LISTED
from ....protocol.native.messages import (
    AbortHangingTransactionsRequest,
    AbortTransactionRequest,
    DescribedTransaction,
    DescribeProducersPartition,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    HangingTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ....protocol.types import TopicPartition
from .topics import Procedure, checked, partitions_of


def list_transactions(
    states: Iterable[str] | None = None, open_for_ms: int | None = None, max_transactions: int = DEFAULT_LISTED
) -> Procedure[ListTransactionsResponse]:
    """Transactional ids, those with an open transaction first, and how many more there are."""
    response: ListTransactionsResponse = yield ListTransactionsRequest(
        None if states is None else tuple(states), open_for_ms, max_transactions
    )
    return response


def describe_transactions(transactional_ids: Iterable[str]) -> Procedure[list[DescribedTransaction]]:
    """Transactional ids with their partitions, in order. One that cannot be described has an error."""
    response = yield DescribeTransactionsRequest(tuple(transactional_ids))
    return list(response.transactions)


def describe_producers(
    places: Iterable[str | TopicPartition], *, open_only: bool = False, max_producers: int = DEFAULT_LISTED
) -> Procedure[list[DescribeProducersPartitionResponse]]:
    """The producers that these partitions remember, and all of each topic that is named without one. A partition that cannot be
    described has an error."""
    partitions = yield from partitions_of(places)
    asked = tuple(DescribeProducersPartition(*partition) for partition in partitions)
    response = yield DescribeProducersRequest(asked, open_only, max_producers)
    return list(response.partitions)


def abort_transaction(transactional_id: str) -> Procedure[None]:
    """Abort what it has open, and fence its producer off. Raises RequestError."""
    yield AbortTransactionRequest(transactional_id)


def abort_hanging_transaction(partition: TopicPartition, producer_id: int) -> Procedure[int]:
    """Abort what the producer has open there and no transactional id has; answers where it began. Raises RequestError."""
    response = yield AbortHangingTransactionsRequest((HangingTransaction(*partition, producer_id),))
    (answer,) = checked(response.partitions)
    return int(answer.start_offset)
