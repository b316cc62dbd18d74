"""Records of `__transaction_state` (Kafka: TransactionLogKey, TransactionLogValue, TransactionLog; KIP-98).

The key is version 0 and the transactional id; a null value takes the id away.

| value | bytes | meaning |
|---|---:|---|
| producer id, epoch | 8 + 2 | who may work in the transaction |
| timeout, ms | 4 | how long it may stay open |
| status | 1 | see TransactionState |
| partitions | array | topic and its partition numbers; null while Empty |
| last update, start, ms | 8 + 8 | start is -1 before the first transaction |

Version 0 is written: every Kafka from 0.11 on reads it. Version 1 (KIP-915, KIP-890) is read; what its tagged fields say about
Kafka's second transaction protocol is not needed here.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

import attrs

from ..errors import InvalidRecordError
from ..types import NO_TIMESTAMP, Bytes, TopicPartition
from .fields import FieldReader, check_version, encode_count, encode_string, read_version

TRANSACTIONS_TOPIC: Final = "__transaction_state"

_HIGHEST_VALUE_VERSION: Final = 1
_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")
_START: Final = struct.Struct(">qhib")
_END: Final = struct.Struct(">qq")


class TransactionState(enum.IntEnum):
    """How far a transactional id's transaction is; the numbers stand in the log (Kafka: TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id has expired. Never in the log: a null value says it."""


_STATES: Final = {int(state): state for state in TransactionState if state is not TransactionState.DEAD}


@attrs.frozen(kw_only=True)
class TransactionLogValue:
    """What is kept of one transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP

    def encode(self) -> bytes:
        """Partitions in order of their names, so that equal values have equal bytes."""
        parts = [_VERSION.pack(0), _START.pack(self.producer_id, self.producer_epoch, self.timeout_ms, self.state)]
        if self.state is TransactionState.EMPTY:
            parts.append(encode_count(None))
        else:
            by_topic: dict[str, list[int]] = {}
            for topic, partition in sorted(self.partitions):
                by_topic.setdefault(topic, []).append(partition)
            parts.append(encode_count(len(by_topic)))
            for topic, partitions in by_topic.items():
                parts += (encode_string(topic), encode_count(len(partitions)), *map(_PARTITION.pack, partitions))
        parts.append(_END.pack(self.last_update_ms, self.start_ms))
        return b"".join(parts)


def encode_transaction_key(transactional_id: str) -> bytes:
    """ValueError for an id above 32,767 bytes."""
    return _VERSION.pack(0) + encode_string(transactional_id)


def decode_transaction_key(data: Bytes) -> str | None:
    """The transactional id; None for kinds of records that are not known here. Raises InvalidRecordError."""
    what = "the key of a transaction's record"
    if read_version(what, data) != 0:
        return None
    reader = FieldReader(what, data, position=_VERSION.size)
    transactional_id = reader.string()
    reader.end()
    return transactional_id


def decode_transaction_value(data: Bytes) -> TransactionLogValue:
    """Raises InvalidRecordError."""
    what = "a transaction's state"
    version = check_version(what, data, _HIGHEST_VALUE_VERSION)
    reader = FieldReader(what, data, flexible=version >= 1, position=_VERSION.size)
    producer_id, producer_epoch, timeout_ms, status = reader.numbers(_START)
    if status not in _STATES:
        raise InvalidRecordError(f"{what} is {status}, {min(_STATES)} to {max(_STATES)} are known")

    def read_topic() -> list[TopicPartition]:
        topic = reader.string()
        partitions = reader.array(lambda: reader.numbers(_PARTITION)[0], _PARTITION.size) or []
        reader.end_structure()
        return [TopicPartition(topic, partition) for partition in partitions]

    topics = reader.array(read_topic, 2) or []
    last_update_ms, start_ms = reader.numbers(_END)
    reader.end()
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=_STATES[status],
        partitions=frozenset(each for topic in topics for each in topic),
        last_update_ms=last_update_ms,
        start_ms=start_ms,
    )
