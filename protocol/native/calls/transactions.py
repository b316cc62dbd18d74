"""The calls of producers that are recognised: `init_producer`, `end_transaction`; and the identity they work with (KIP-98).

A transaction has no call that begins it: the first batch produced in it does (KIP-890).
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ..declaration import wire
from ..kinds import BOOL, INT16, INT32, INT64, name
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
