"""The calls that show transactions: `list_transactions`, `describe_transactions` by transactional id, and `describe_producers`
by partition (KIP-664)."""

from __future__ import annotations

from typing import Final

from .... import limits
from ....errors import RequestError
from ....types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ...declaration import wire
from ...kinds import BOOL, ERROR, INT32, INT64, INT64_OR_NONE, TEXT, integer, name, names
from ...places import Partition, PartitionAnswer
from ...structs import RequestMessage, ResponseMessage, Struct, struct

TRANSACTIONAL_ID: Final = name(limits.MAX_STRING_CHARS)
"""Clients of Kafka's protocol make longer ones than this protocol's own."""
EPOCH: Final = integer(NO_PRODUCER_EPOCH, limits.INT16_MAX)
INT32_OR_NONE: Final = integer(-1, limits.INT32_MAX)
COUNT: Final = integer(0, limits.MAX_LISTED)


@struct
class ListTransactionsRequest(RequestMessage):
    """Transactional ids in these states, None: in any; with `open_for_ms` those whose transaction is open for so long."""

    api = "list_transactions"

    states: tuple[str, ...] | None = wire(names(limits.MAX_STRING_CHARS), nullable=True, default=None)
    open_for_ms: int | None = wire(INT64, nullable=True, default=None)
    max_transactions: int = wire(COUNT, default=limits.DEFAULT_LISTED)


@struct
class ListedTransaction(Struct):
    """A transactional id; `open_ms` is -1 while it has no transaction open, `start_timestamp` before its first one."""

    transactional_id: str = wire(TRANSACTIONAL_ID)
    state: str = wire(TEXT)
    producer_id: int = wire(INT64_OR_NONE)
    producer_epoch: int = wire(EPOCH)
    timeout_ms: int = wire(INT32)
    start_timestamp: int = wire(INT64_OR_NONE)
    last_update_timestamp: int = wire(INT64_OR_NONE)
    open_ms: int = wire(INT64_OR_NONE)
    partition_count: int = wire(INT32)


@struct
class ListTransactionsResponse(ResponseMessage):
    """Those that are open come first, the one that is open longest before the others; then those used last. `left_out` are
    not told."""

    api = "list_transactions"

    transactions: tuple[ListedTransaction, ...] = wire([ListedTransaction])
    left_out: int = wire(INT32, default=0)


@struct
class DescribeTransactionsRequest(RequestMessage):
    """Transactional ids to be described, each succeeds or fails alone."""

    api = "describe_transactions"

    transactions: tuple[str, ...] = wire(names(limits.MAX_STRING_CHARS))


@struct
class TransactionPartition(Partition):
    """A partition that has joined a transaction."""


@struct
class DescribedTransaction(Struct):
    """One transactional id and the partitions of its transaction, or why it cannot be described."""

    transactional_id: str = wire(TRANSACTIONAL_ID)
    error: RequestError | None = wire(ERROR, default=None)
    state: str = wire(TEXT, default="")
    producer_id: int = wire(INT64_OR_NONE, default=NO_PRODUCER_ID)
    producer_epoch: int = wire(EPOCH, default=NO_PRODUCER_EPOCH)
    timeout_ms: int = wire(INT32, default=0)
    start_timestamp: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    last_update_timestamp: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    open_ms: int = wire(INT64_OR_NONE, default=-1)
    partitions: tuple[TransactionPartition, ...] = wire([TransactionPartition], default=(), max_count=limits.INT32_MAX)


@struct
class DescribeTransactionsResponse(ResponseMessage):
    """One entry per transactional id, in the same order."""

    api = "describe_transactions"

    transactions: tuple[DescribedTransaction, ...] = wire([DescribedTransaction])


@struct
class DescribeProducersPartition(Partition):
    """A partition whose producers are asked for."""


@struct
class DescribeProducersRequest(RequestMessage):
    """What partitions remember of producers, of all of them at most `max_producers`; `open_only`: of those that have a
    transaction open there."""

    api = "describe_producers"

    partitions: tuple[DescribeProducersPartition, ...] = wire([DescribeProducersPartition])
    open_only: bool = wire(BOOL, default=False)
    max_producers: int = wire(COUNT, default=limits.DEFAULT_LISTED)


@struct
class DescribedProducer(Struct):
    """What a partition remembers of a producer; -1 where there is nothing. `is_hanging`: no transactional id has that
    transaction open, so that nobody would end it."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(EPOCH)
    last_sequence: int = wire(INT32_OR_NONE)
    last_timestamp: int = wire(INT64_OR_NONE)
    coordinator_epoch: int = wire(INT32_OR_NONE)
    transaction_start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    is_hanging: bool = wire(BOOL, default=False)


@struct
class DescribeProducersPartitionResponse(PartitionAnswer):
    """Those with an open transaction come first, the oldest before the others; then those that wrote last."""

    producers: tuple[DescribedProducer, ...] = wire([DescribedProducer], default=())
    left_out: int = wire(INT32, default=0)


@struct
class DescribeProducersResponse(ResponseMessage):
    """One entry per partition, in the same order."""

    api = "describe_producers"

    partitions: tuple[DescribeProducersPartitionResponse, ...] = wire([DescribeProducersPartitionResponse])
