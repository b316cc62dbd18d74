"""The calls of producers that are recognised: `init_producer`, `end_transaction`; and the identity they work with (KIP-98). And
those of administrators who end what a producer has left open: `abort_transaction`, `abort_hanging_transactions` (KIP-664).

A transaction has no call that begins it: the first batch produced in it does (KIP-890).
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..declaration import wire
from ..kinds import BOOL, INT16, INT32, INT64, INT64_OR_NONE, name
from ..places import Partition, PartitionAnswer
from ..structs import RequestMessage, ResponseMessage, Struct, struct

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Kafka's transaction.timeout.ms."""
TRANSACTIONAL_ID: Final = name(limits.MAX_TRANSACTIONAL_ID_CHARS)


@struct
class TransactionProducer(Struct):
    """Who acts in a transaction: a transactional id, and the producer id and epoch that `init_producer` gave it."""

    transactional_id: str = wire(TRANSACTIONAL_ID)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)


@struct
class InitProducerRequest(RequestMessage):
    """Give me a producer id and an epoch. With a transactional id: the same id again, under an epoch that fences off
    whoever had it before, whose open transaction is aborted first.

    `timeout_ms` is how long a transaction may stay open before the server aborts it.
    """

    api = "init_producer"

    transactional_id: str | None = wire(TRANSACTIONAL_ID, nullable=True, default=None)
    timeout_ms: int = wire(INT32, default=DEFAULT_TRANSACTION_TIMEOUT_MS)


@struct
class InitProducerResponse(ResponseMessage):
    """What the producer puts into its batches."""

    api = "init_producer"

    producer_id: int = wire(INT64, default=NO_PRODUCER_ID)
    producer_epoch: int = wire(INT16, default=NO_PRODUCER_EPOCH)


@struct
class EndTransactionRequest(RequestMessage):
    """Commit the producer's transaction, or abort it; answered when every partition of it has the marker."""

    api = "end_transaction"

    producer: TransactionProducer = wire(TransactionProducer, flat=True)
    commit: bool = wire(BOOL)


@struct
class EndTransactionResponse(ResponseMessage):
    """The transaction is over. That it is not, the answer's error says."""

    api = "end_transaction"


@struct
class AbortTransactionRequest(RequestMessage):
    """Abort the open transaction of a transactional id, as a timeout does."""

    api = "abort_transaction"

    transactional_id: str = wire(name(limits.MAX_STRING_CHARS))


@struct
class AbortTransactionResponse(ResponseMessage):
    """The transaction is aborted. That it is not, the answer's error says."""

    api = "abort_transaction"


@struct
class HangingTransaction(Partition):
    """What a producer has open on a partition, and no transactional id has."""

    producer_id: int = wire(INT64)


@struct
class AbortHangingTransactionsRequest(RequestMessage):
    """Hanging transactions to be aborted, each succeeds or fails alone."""

    api = "abort_hanging_transactions"

    partitions: tuple[HangingTransaction, ...] = wire([HangingTransaction])


@struct
class AbortedHangingTransaction(PartitionAnswer):
    """Where what is aborted had begun."""

    start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)


@struct
class AbortHangingTransactionsResponse(ResponseMessage):
    """One entry per transaction, in the same order."""

    api = "abort_hanging_transactions"

    partitions: tuple[AbortedHangingTransaction, ...] = wire([AbortedHangingTransaction])
