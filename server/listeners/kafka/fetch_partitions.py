"""A partition of a fetch: a lookup before the read, then a response with the data read. Source: KIP-320, KIP-516, KIP-595."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ....protocol.errors import (
    ErrorCode,
    InvalidRequestError,
    OffsetOutOfRangeError,
    RequestError,
    UnsupportedCompressionTypeError,
)
from ....protocol.kafka.authorization import AclOperation, ResourceType
from ....protocol.kafka.messages.records import (
    FetchAbortedTransaction,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchPartitionData,
    FetchRequest,
    FetchSnapshotId,
)
from ....protocol.types import CompressionType, TopicPartition
from ...broker import FetchAnswer
from .door import Call
from .fetch_sessions import Asked, FetchSession, Key
from .list_offsets import NOT_CHECKED, check_leader_epoch

FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_ZSTD: Final = 10
"""Before, only a topic whose configuration says zstd is refused (Kafka: KafkaApis.handleFetchRequest)."""
CONSUMER: Final = -1
_NO_DIVERGENCE: Final = FetchEpochEndOffset()
_NO_LEADER: Final = FetchLeaderIdAndEpoch()
_NO_SNAPSHOT: Final = FetchSnapshotId()


class WantedPartition(NamedTuple):
    """A partition that the client requests: with its name, or with an error that already is its result."""

    key: Key
    asked: Asked
    topic_partition: TopicPartition | None = None
    error: RequestError | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) where the log went another way than what the client read."""

    @property
    def can_be_read(self) -> bool:
        return self.error is None and self.diverging is None


def resolve(call: Call, body: FetchRequest, session: FetchSession | None, wanted: tuple[Key, Asked]) -> WantedPartition:
    """Look up one partition; one that cannot be read gets its error."""
    key, asked = wanted
    topic_partition = None
    try:
        name = key.topic if call.version < FIRST_WITH_TOPIC_IDS else _topic_name(call, session, key)
        topic_partition = TopicPartition(name, key.partition)
        call.check_authorized(AclOperation.READ, ResourceType.TOPIC, name)
        replica_id = max(body.replica_id, body.replica_state.replica_id)
        if replica_id > CONSUMER:
            raise InvalidRequestError(f"{topic_partition}: replica {replica_id} cannot fetch here: there is one broker")
        if asked.partition_max_bytes < 0 or body.max_bytes < 0:
            raise InvalidRequestError(f"{topic_partition}: the most bytes to be answered are negative")
        if asked.current_leader_epoch != NOT_CHECKED:
            check_leader_epoch(call.broker, topic_partition, asked.current_leader_epoch)
        if asked.last_fetched_epoch < 0:
            return WantedPartition(key, asked, topic_partition)
        return WantedPartition(key, asked, topic_partition, None, _diverging(call, topic_partition, asked))
    except RequestError as exc:
        return WantedPartition(key, asked, topic_partition, exc.as_answer())


def _topic_name(call: Call, session: FetchSession | None, key: Key) -> str:
    """The name of what is asked for by its id. In a session the id keeps its name: when a topic of that name was made anew it
    is told so, and when there is none that it is unknown (Kafka: CachedPartition). Raises RequestError."""
    if session is None:
        return call.topic_name(key.topic, key.topic_id, by_id=True)
    known = session.names.get(key)
    try:
        name = session.names[key] = call.topic_name(key.topic, key.topic_id, by_id=True)
    except RequestError:
        if known is None:
            raise
        call.check_partition(TopicPartition(known, key.partition))
        raise RequestError(
            f"{known}-{key.partition}: the topic was made anew and has another id than in the session; ask for metadata",
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ) from None
    return name


def _diverging(call: Call, topic_partition: TopicPartition, asked: Asked) -> tuple[int, int] | None:
    """Return the point where the log diverges from the records that the client has read (KIP-595); None if it does not. Raises
    RequestError, also for an epoch that the log never had."""
    epoch, end_offset = call.broker.reader.end_offset_for_epoch(topic_partition, asked.last_fetched_epoch)
    if epoch < 0:
        raise OffsetOutOfRangeError(f"{topic_partition}: where leader epoch {asked.last_fetched_epoch} ends is not known")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        return epoch, end_offset
    return None


def partition_data(
    call: Call, body: FetchRequest, each: WantedPartition, answers: Mapping[TopicPartition, FetchAnswer]
) -> FetchPartitionData:
    """Return the response for one partition. `answers`: the results of the reads, for every partition that can be read."""
    number = each.key.partition
    if each.error is not None:
        return _failed(number, each.error)
    assert each.topic_partition is not None
    if each.diverging is not None:
        try:
            return _diverged(call, number, each.topic_partition, each.diverging)
        except RequestError as exc:  # the topic was deleted meanwhile
            return _failed(number, exc)
    answer = answers[each.topic_partition]
    fetched = answer.fetched
    if fetched is None:
        assert answer.error is not None
        return _failed(number, answer.error)
    if call.version < FIRST_WITH_ZSTD and call.broker.topics.compression_type(each.key.topic) is CompressionType.ZSTD:
        error = UnsupportedCompressionTypeError(
            f"{each.topic_partition} is configured with compression.type=zstd, which needs Fetch v{FIRST_WITH_ZSTD}"
        )
        return _failed(number, error)
    aborted = None
    if body.isolation_level:
        pairs = sorted((transaction.first_offset, transaction.producer_id) for transaction in fetched.aborted or ())
        aborted = [FetchAbortedTransaction(producer_id=producer, first_offset=first) for first, producer in pairs]
    return FetchPartitionData(
        partition_index=number,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        diverging_epoch=_NO_DIVERGENCE,
        current_leader=_NO_LEADER,
        snapshot_id=_NO_SNAPSHOT,
        aborted_transactions=aborted,
        records=fetched.records,
    )


def _failed(number: int, error: RequestError) -> FetchPartitionData:
    """A partition's error as Kafka answers it: without watermarks, even if they are known."""
    return FetchPartitionData(
        partition_index=number,
        error_code=error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def _diverged(call: Call, number: int, topic_partition: TopicPartition, at: tuple[int, int]) -> FetchPartitionData:
    snapshot = call.broker.reader.snapshot(topic_partition)
    return FetchPartitionData(
        partition_index=number,
        high_watermark=snapshot.high_watermark,
        last_stable_offset=snapshot.last_stable_offset,
        log_start_offset=snapshot.log_start_offset,
        diverging_epoch=FetchEpochEndOffset(epoch=at[0], end_offset=at[1]),
        aborted_transactions=None,
        records=b"",
    )
