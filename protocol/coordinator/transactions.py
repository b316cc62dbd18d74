"""Records of `__transaction_state` (Kafka: TransactionLogKey, TransactionLogValue, TransactionLog; KIP-98, KIP-890).

The key is version 0 and the transactional id; a null value takes the id away.

| value | bytes | meaning |
|---|---:|---|
| producer id, epoch | 8 + 2 | who may work in the transaction |
| timeout, ms | 4 | how long it may stay open |
| status | 1 | see TransactionState |
| partitions | array | topic and its partition numbers; null while Empty |
| last update, start, ms | 8 + 8 | start is -1 before the first transaction |
| previous, next producer id | tagged 0, 1 | around a change of the id, when its epochs are used up |
| client transaction version | tagged 2 | 2: the client's epoch goes up with every transaction (KIP-890) |
| last producer epoch | tagged 1000 | of triolog, other readers skip it: see `TransactionLogValue` |

Version 0 is written, which every Kafka from 0.11 on reads; version 1, which has tagged fields (KIP-915), where one of them says
something.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from ..errors import InvalidRecordError
from ..schema.fields import INT8, INT16, INT32, INT64, STRING, wire
from ..schema.fields import struct as structure
from ..types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, Bytes, TopicPartition
from .fields import VERSION, check_version, decode, encode, encode_string, read_version

TRANSACTIONS_TOPIC: Final = "__transaction_state"

_HIGHEST_VALUE_VERSION: Final = 1
_FIRST_FLEXIBLE: Final = 1


class TransactionState(enum.IntEnum):
    """The state of a transactional id's transaction; the log stores these numbers (Kafka: TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id has expired. Never in the log: a null value says it."""


STATE_NAMES: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
}
"""As Kafka's clients and tools call them."""
_STATES: Final = {int(state): state for state in TransactionState if state is not TransactionState.DEAD}


@attrs.frozen(kw_only=True)
class TransactionLogValue:
    """The stored state of one transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    """Of the transaction before, when it was the last one that its epochs allowed."""
    next_producer_id: int = NO_PRODUCER_ID
    """Of the transaction to come, while the outcome of the last one of this id is decided."""
    client_version: int = 0
    """2: the client goes on with the next epoch after each transaction."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch with which a producer requested the current one, until it uses that: the request may come again (KIP-360)."""

    def encode(self) -> bytes:
        """Partitions in order of their names, so that equal values have equal bytes."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            by_topic.setdefault(topic, []).append(partition)
        topics = [_Topic(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()]
        value = _Value(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            timeout_ms=self.timeout_ms,
            status=self.state,
            topics=None if self.state is TransactionState.EMPTY else topics,
            last_update_ms=self.last_update_ms,
            start_ms=self.start_ms,
            client_version=self.client_version,
            last_producer_epoch=self.last_producer_epoch,
        )
        has_ids = not self.previous_producer_id == self.next_producer_id == NO_PRODUCER_ID
        has_tags = self.client_version or has_ids or self.last_producer_epoch != NO_PRODUCER_EPOCH
        version = 1 if has_tags else 0
        return encode(value, version, flexible=version >= _FIRST_FLEXIBLE)


@structure
class _Key:
    transactional_id: str = wire(STRING)


@structure
class _Topic:
    topic: str = wire(STRING)
    partitions: list[int] = wire([INT32])


@structure
class _Value:
    producer_id: int = wire(INT64)
    previous_producer_id: int = wire(INT64, "1+", tag=0, default=-1)
    next_producer_id: int = wire(INT64, "1+", tag=1, default=-1)
    producer_epoch: int = wire(INT16)
    timeout_ms: int = wire(INT32)
    status: int = wire(INT8)
    topics: list[_Topic] | None = wire([_Topic], nullable="0+")
    last_update_ms: int = wire(INT64)
    start_ms: int = wire(INT64)
    client_version: int = wire(INT16, "1+", tag=2)
    last_producer_epoch: int = wire(INT16, "1+", tag=1000, default=-1)


def encode_transaction_key(transactional_id: str) -> bytes:
    """ValueError for an id above 32,767 bytes."""
    return VERSION.pack(0) + encode_string(transactional_id)


def decode_transaction_key(data: Bytes) -> str | None:
    """The transactional id; None for kinds of records that are not known here. Raises InvalidRecordError."""
    what = "the key of a transaction's record"
    if read_version(what, data) != 0:
        return None
    return decode(_Key, what, data, 0).transactional_id


def decode_transaction_value(data: Bytes) -> TransactionLogValue:
    """Raises InvalidRecordError."""
    what = "a transaction's state"
    version = check_version(what, data, _HIGHEST_VALUE_VERSION)
    value = decode(_Value, what, data, version, flexible=version >= _FIRST_FLEXIBLE)
    if value.status not in _STATES:
        raise InvalidRecordError(f"{what} is {value.status}, {min(_STATES)} to {max(_STATES)} are known")
    return TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.timeout_ms,
        state=_STATES[value.status],
        partitions=frozenset(
            TopicPartition(topic.topic, partition) for topic in value.topics or () for partition in topic.partitions
        ),
        last_update_ms=value.last_update_ms,
        start_ms=value.start_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_version,
        last_producer_epoch=value.last_producer_epoch,
    )
