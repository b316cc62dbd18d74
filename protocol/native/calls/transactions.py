"""The calls of idempotent and transactional producers: `init_producer`, `end_transaction`, and their identity (KIP-98).

Administrators end open transactions with `abort_transaction` and `abort_hanging_transactions`, and see them with
`list_transactions`, `describe_transactions` by transactional id, and `describe_producers` by partition (KIP-664).

No call begins a transaction: its first batch does (KIP-890).
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...errors import RequestError
from ...types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ..kinds import BOOL, ERROR, INT16, INT32, INT64, INT64_OR_NONE, TEXT, integer, name, names
from ..structs import Partition, PartitionAnswer, RequestMessage, ResponseMessage, Struct, struct, wire

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Kafka's transaction.timeout.ms."""
TRANSACTIONAL_ID: Final = name(limits.MAX_TRANSACTIONAL_ID_CHARS)


@struct
class TransactionProducer(Struct):
    """The producer of a transaction: a transactional id, and the producer id and epoch from `init_producer`."""

    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)


@struct
class InitProducerRequest(RequestMessage):
    """Give me a producer id and an epoch. With a transactional id: the same id again, under an epoch that fences off
    whoever had it before, whose open transaction is aborted first.

    `timeout_ms` is how long a transaction may stay open before the server aborts it.
    """

    transactional_id: str | None = wire(TRANSACTIONAL_ID, nullable=True, default=None)
    timeout_ms: int = wire(INT32, default=DEFAULT_TRANSACTION_TIMEOUT_MS)


@struct
class InitProducerResponse(ResponseMessage):
    """The producer id and epoch that the producer puts into its batches."""

    producer_id: int = wire(INT64, default=NO_PRODUCER_ID)
    producer_epoch: int = wire(INT16, default=NO_PRODUCER_EPOCH)


@struct
class EndTransactionRequest(RequestMessage):
    """Commit the producer's transaction, or abort it; answered when every partition of it has the marker."""

    producer: TransactionProducer = wire(TransactionProducer, flat=True)
    commit: bool = wire(BOOL)


@struct
class EndTransactionResponse(ResponseMessage):
    """The transaction is over. That it is not, the answer's error says."""


@struct
class AbortTransactionRequest(RequestMessage):
    """Abort the open transaction of a transactional id, as a timeout does."""

    transactional_id: str = wire(name(limits.MAX_STRING_CHARS))


@struct
class AbortTransactionResponse(ResponseMessage):
    """The transaction is aborted. That it is not, the answer's error says."""


@struct
class HangingTransaction(Partition):
    """A transaction that a producer has open on a partition and that belongs to no transactional id."""

    producer_id: int = wire(INT64)


@struct
class AbortHangingTransactionsRequest(RequestMessage):
    """Hanging transactions to be aborted, each succeeds or fails alone."""

    partitions: tuple[HangingTransaction, ...] = wire([HangingTransaction])


@struct
class AbortedHangingTransaction(PartitionAnswer):
    """The offset at which the aborted transaction began."""

    start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)


@struct
class AbortHangingTransactionsResponse(ResponseMessage):
    """The results of the transactions, in the same order."""

    partitions: tuple[AbortedHangingTransaction, ...] = wire([AbortedHangingTransaction])


ANY_TRANSACTIONAL_ID: Final = name(limits.MAX_STRING_CHARS)
"""Clients of Kafka's protocol make longer ones than this protocol's own."""
EPOCH: Final = integer(NO_PRODUCER_EPOCH, limits.INT16_MAX)
INT32_OR_NONE: Final = integer(-1, limits.INT32_MAX)
COUNT: Final = integer(0, limits.MAX_LISTED)


@struct
class ListTransactionsRequest(RequestMessage):
    """Transactional ids in these states, None: in any; with `open_for_ms` those whose transaction is open for so long."""

    states: tuple[str, ...] | None = wire(names(limits.MAX_STRING_CHARS), nullable=True, default=None)
    open_for_ms: int | None = wire(INT64, nullable=True, default=None)
    max_transactions: int = wire(COUNT, default=limits.DEFAULT_LISTED)


@struct
class ListedTransaction(Struct):
    """A transactional id; `open_ms` is -1 while it has no transaction open, `start_timestamp` before its first one."""

    transactional_id: str = wire(ANY_TRANSACTIONAL_ID)
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

    transactions: tuple[ListedTransaction, ...] = wire([ListedTransaction])
    left_out: int = wire(INT32, default=0)


@struct
class DescribeTransactionsRequest(RequestMessage):
    """Transactional ids to be described, each succeeds or fails alone."""

    transactions: tuple[str, ...] = wire(names(limits.MAX_STRING_CHARS))


@struct
class DescribedTransaction(Struct):
    """A transactional id and the partitions of its transaction, or the error of its description."""

    transactional_id: str = wire(ANY_TRANSACTIONAL_ID)
    error: RequestError | None = wire(ERROR, default=None)
    state: str = wire(TEXT, default="")
    producer_id: int = wire(INT64_OR_NONE, default=NO_PRODUCER_ID)
    producer_epoch: int = wire(EPOCH, default=NO_PRODUCER_EPOCH)
    timeout_ms: int = wire(INT32, default=0)
    start_timestamp: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    last_update_timestamp: int = wire(INT64_OR_NONE, default=NO_TIMESTAMP)
    open_ms: int = wire(INT64_OR_NONE, default=-1)
    partitions: tuple[Partition, ...] = wire([Partition], default=(), max_count=limits.INT32_MAX)


@struct
class DescribeTransactionsResponse(ResponseMessage):
    """The results of the transactional ids, in the same order."""

    transactions: tuple[DescribedTransaction, ...] = wire([DescribedTransaction])


@struct
class DescribeProducersRequest(RequestMessage):
    """Requests the producer state of partitions, of at most `max_producers` producers in all. `open_only`: only producers
    that have a transaction open there."""

    partitions: tuple[Partition, ...] = wire([Partition])
    open_only: bool = wire(BOOL, default=False)
    max_producers: int = wire(COUNT, default=limits.DEFAULT_LISTED)


@struct
class DescribedProducer(Struct):
    """A partition's state of a producer; -1 for absent values. `is_hanging`: no transactional id has the transaction open, so
    that no client will end it."""

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
    """The results of the partitions, in the same order."""

    partitions: tuple[DescribeProducersPartitionResponse, ...] = wire([DescribeProducersPartitionResponse])
