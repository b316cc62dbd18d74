"""The calls of producers that are recognised: `init_producer`, `end_transaction`; and the identity they work with (KIP-98).

A transaction has no call that begins it: the first batch produced in it does (KIP-890).
"""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from .. import limits
from ..types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from . import fields
from .fields import Body

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Kafka's transaction.timeout.ms."""


def read_transactional_id(body: Body) -> str | None:
    """The transactional id, or None for a producer without transactions."""
    if body.get("transactional_id") is None:
        return None
    return fields.string(body, "transactional_id", limits.MAX_TRANSACTIONAL_ID_CHARS)


@attrs.frozen
class TransactionProducer:
    """Who acts in a transaction: a transactional id, and the producer id and epoch that `init_producer` gave it."""

    keys: ClassVar[frozenset[str]] = fields.names("transactional_id", "producer_id", "producer_epoch")

    transactional_id: str
    producer_id: int
    producer_epoch: int

    @classmethod
    def from_body(cls, entry: Body) -> TransactionProducer:
        """Read the three keys; FieldError for what is wrong in them."""
        return cls(
            fields.string(entry, "transactional_id", limits.MAX_TRANSACTIONAL_ID_CHARS),
            fields.int64(entry, "producer_id"),
            fields.integer(entry, "producer_epoch", 0, limits.INT16_MAX),
        )

    def to_body(self) -> Body:
        """What msgpack packs."""
        return attrs.asdict(self)


@attrs.frozen
class InitProducerRequest:
    """Give me a producer id and an epoch. With a transactional id: the same id again, under an epoch that fences off
    whoever had it before, whose open transaction is aborted first.

    `timeout_ms` is how long a transaction may stay open before the server aborts it.
    """

    api: ClassVar[str] = "init_producer"
    keys: ClassVar[frozenset[str]] = fields.names("transactional_id", "timeout_ms")

    transactional_id: str | None = None
    timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS

    @classmethod
    def from_body(cls, body: Body) -> InitProducerRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(read_transactional_id(body), fields.int32(body, "timeout_ms", 0, DEFAULT_TRANSACTION_TIMEOUT_MS))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"transactional_id": self.transactional_id, "timeout_ms": self.timeout_ms}


@attrs.frozen
class InitProducerResponse:
    """What the producer puts into its batches."""

    api: ClassVar[str] = "init_producer"

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @classmethod
    def from_body(cls, body: Body) -> InitProducerResponse:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(fields.int64(body, "producer_id"), fields.integer(body, "producer_epoch", 0, limits.INT16_MAX))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch}


@attrs.frozen
class EndTransactionRequest:
    """Commit the producer's transaction, or abort it; answered when every partition of it has the marker."""

    api: ClassVar[str] = "end_transaction"
    keys: ClassVar[frozenset[str]] = TransactionProducer.keys | {"commit"}

    producer: TransactionProducer
    commit: bool

    @classmethod
    def from_body(cls, body: Body) -> EndTransactionRequest:
        """Read what msgpack yielded; FieldError for what is wrong in it."""
        return cls(TransactionProducer.from_body(body), fields.boolean(body, "commit"))

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {**self.producer.to_body(), "commit": self.commit}


@attrs.frozen
class EndTransactionResponse:
    """The transaction is over. That it is not, the answer's error says."""

    api: ClassVar[str] = "end_transaction"

    @classmethod
    def from_body(cls, body: Body) -> EndTransactionResponse:
        """Nothing is in it."""
        return cls()

    def to_body(self) -> Body:
        """What msgpack packs."""
        return {}
