"""Records of the internal topics, as replay, `triolog dump` and `triolog forward --from-dir` read them, and what consumers tell
each other in them.

Everything has a decoder here that a start depends on: `__consumer_offsets` (commits, groups of all four kinds),
`__transaction_state`, `__share_group_state` and the topic of stage commits. The first byte says which; a key of two bytes of
length follows, and the value. What is read is written as bytes that are read as the same; all that may be raised is
InvalidRecordError, RemoteProtocolError for what consumers tell each other.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any, Final

import attrs
from triolog.protocol.coordinator import (
    classic_group_records,
    consumer_group_records,
    fields,
    offsets,
    share_group_records,
    stage_commits,
    streams_group_records,
    transactions,
)
from triolog.protocol.errors import InvalidRecordError, RemoteProtocolError
from triolog.protocol.schema.codec import write
from triolog.protocol.types import TopicPartition

from tests.fuzzing.target import BrokenInvariantError, Target, check_repeatable, require
from tests.support.kafka_values import random_value

GROUP_KINDS: Final[tuple[fields.RecordKinds[Any, Any], ...]] = (
    consumer_group_records.CONSUMER_GROUP_RECORDS,
    share_group_records.SHARE_GROUP_RECORDS,
    streams_group_records.STREAMS_GROUP_RECORDS,
)
SEEDS_PER_KIND: Final = 4
_KEY_LENGTH: Final = struct.Struct(">H")


def feed(data: bytes) -> bool:
    """See `Target.feed`: whether key and value could be read."""
    if len(data) < 1 + _KEY_LENGTH.size:
        return False
    (size,) = _KEY_LENGTH.unpack_from(data, 1)
    key, value = data[3 : 3 + size], data[3 + size :]
    return TOPICS[data[0] % len(TOPICS)](key, value)


def _checked(
    data: bytes,
    decode: Callable[[bytes], Any],
    encode: Callable[[Any], bytes],
    allowed: type[Exception] = InvalidRecordError,
) -> Any:
    """What is read, None for what is refused or unknown. Raises BrokenInvariantError."""
    try:
        found = decode(data)
    except allowed:
        return None
    except Exception as exc:
        raise BrokenInvariantError(f"{exc!r} is not documented: {data.hex()}") from exc
    if found is None:
        return None
    check_repeatable(decode, encode, found, data)
    return found


def _feed_offsets(key: bytes, value: bytes) -> bool:
    known = _checked(key, offsets.decode_offsets_key, lambda found: bytes(found.encode()))
    if isinstance(known, offsets.GroupMetadataKey):
        return (
            _checked(value, classic_group_records.decode_group_metadata_value, classic_group_records.GroupMetadataValue.encode)
            is not None
        )
    if isinstance(known, offsets.OffsetCommitKey):
        return _checked(value, offsets.decode_offset_commit_value, offsets.OffsetCommitValue.encode) is not None
    for kinds in GROUP_KINDS:
        found = _checked(key, kinds.decode_key, kinds.encode_key)
        if found is not None:
            read = _decoder_of(kinds.decode_value, found)
            return _checked(value, read, kinds.encode_value) is not None
    return False


def _decoder_of(decode: Callable[[Any, bytes], Any], key: Any) -> Callable[[bytes], Any]:
    return lambda data: decode(key, data)


def _feed_transactions(key: bytes, value: bytes) -> bool:
    _checked(key, transactions.decode_transaction_key, transactions.encode_transaction_key)
    return _checked(value, _comparable_transaction, transactions.TransactionLogValue.encode) is not None


def _comparable_transaction(data: bytes) -> transactions.TransactionLogValue:
    """While it is empty its partitions are not written."""
    found = transactions.decode_transaction_value(data)
    return attrs.evolve(found, partitions=frozenset()) if found.state is transactions.TransactionState.EMPTY else found


def _feed_share_state(key: bytes, value: bytes) -> bool:
    found = _checked(
        key, share_group_records.SHARE_STATE_RECORDS.decode_key, share_group_records.SHARE_STATE_RECORDS.encode_key
    )
    read = _decoder_of(share_group_records.SHARE_STATE_RECORDS.decode_value, found)
    return found is not None and _checked(value, read, share_group_records.SHARE_STATE_RECORDS.encode_value) is not None


def _feed_stage_commits(key: bytes, value: bytes) -> bool:
    _checked(key, stage_commits.decode_stage_commit_key, stage_commits.encode_stage_commit_key)
    return _checked(value, stage_commits.decode_stage_commit_value, stage_commits.StageCommitValue.encode) is not None


def _feed_consumer_protocol(key: bytes, value: bytes) -> bool:
    def write(
        found: classic_group_records.ConsumerProtocolSubscription | classic_group_records.ConsumerProtocolAssignment,
    ) -> bytes:
        return classic_group_records.encode_consumer_protocol(found, classic_group_records.HIGHEST_VERSION)

    topics = _checked(
        value, lambda data: classic_group_records.subscribed_topics(data) or None, lambda _: value, RemoteProtocolError
    )
    subscription = _checked(value, classic_group_records.decode_subscription, write, RemoteProtocolError)
    require(
        subscription is None or not subscription.topics or topics == subscription.topics,
        f"topics alone are {topics}, with the rest {subscription}: {value.hex()}",
    )
    assignment = _checked(key, classic_group_records.decode_assignment, write, RemoteProtocolError)
    return subscription is not None and assignment is not None


TOPICS: Final[tuple[Callable[[bytes, bytes], bool], ...]] = (
    _feed_offsets,
    _feed_transactions,
    _feed_share_state,
    _feed_stage_commits,
    _feed_consumer_protocol,
)


def seeds() -> Iterator[bytes]:
    random = Random(0)
    partition = TopicPartition("readings", 3)
    commit = offsets.OffsetCommitValue(17, "note", 1_700_000_000_000, 2)
    flexible = struct.pack(">hqi", 4, 17, 2) + b"\5note" + struct.pack(">q", 5) + b"\0"
    of_topic = commit._replace(topic_id=bytes(range(16)))
    for value in (commit.encode(), of_topic.encode(), flexible, struct.pack(">hqh", 1, 17, 0) + struct.pack(">qq", 5, 9)):
        yield _record(0, offsets.OffsetCommitKey("group", partition).encode(), value)
    for _ in range(SEEDS_PER_KIND):
        for version in range(5):
            value = struct.pack(">h", version) + _written(
                classic_group_records.GroupMetadataValue, version, version >= 4, random
            )
            yield _record(0, offsets.GroupMetadataKey("group").encode(), value)
        for kinds in GROUP_KINDS:
            for key_class, value_class in kinds._values.items():
                key = kinds.encode_key(random_value(key_class, 0, random))
                yield _record(0, key, kinds.encode_value(random_value(value_class, 0, random)))
        for key_class, value_class in (
            (share_group_records.ShareSnapshotKey, share_group_records.ShareSnapshotValue),
            (share_group_records.ShareUpdateKey, share_group_records.ShareUpdateValue),
        ):
            key = share_group_records.SHARE_STATE_RECORDS.encode_key(random_value(key_class, 0, random))
            yield _record(2, key, share_group_records.SHARE_STATE_RECORDS.encode_value(random_value(value_class, 0, random)))
        for version in range(4):
            subscription, assignment = (
                classic_group_records.encode_consumer_protocol(random_value(cls, version, random), version)
                for cls in (
                    classic_group_records.ConsumerProtocolSubscription,
                    classic_group_records.ConsumerProtocolAssignment,
                )
            )
            yield _record(4, assignment, subscription)
    for state, (client_version, next_id) in product(list(transactions.TransactionState)[:-1], ((0, -1), (2, 9))):
        transaction = transactions.TransactionLogValue(
            producer_id=5,
            producer_epoch=1,
            timeout_ms=60_000,
            state=state,
            partitions=frozenset() if state is transactions.TransactionState.EMPTY else frozenset([partition]),
            last_update_ms=1_700_000_000_000,
            next_producer_id=next_id,
            client_version=client_version,
        )
        yield _record(1, transactions.encode_transaction_key("mover"), transaction.encode())
    files = (stage_commits.CommittedFile(task="1-2", size_bytes=400, crc=7, records_count=3),)
    stored = stage_commits.StageCommitPartition(
        topic_partition=partition, topic_id=uuid.UUID(int=5), start_offset=4, files=files
    )
    for stage in stage_commits.StageCommitState:
        staged = stage_commits.StageCommitValue(
            version=2, state=stage, producer_id=7, producer_epoch=0, update_ms=9, partitions=(stored,)
        )
        yield _record(3, stage_commits.encode_stage_commit_key("job"), staged.encode())


def _written(cls: type, version: int, flexible: bool, random: Random) -> bytes:
    return b"".join(write(random_value(cls, version, random), version, flexible=flexible))


def _record(topic: int, key: bytes, value: bytes) -> bytes:
    return bytes([topic]) + _KEY_LENGTH.pack(len(key)) + key + value


TARGET: Final = Target(
    name="coordinator-records",
    feed=feed,
    seeds=seeds,
    modules=("triolog.protocol.coordinator", "triolog.protocol.schema.codec", "triolog.protocol.schema.primitives"),
    max_bytes=1024,
)
