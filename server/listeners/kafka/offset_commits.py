"""Offsets that groups commit: OffsetCommit, TxnOffsetCommit. Source: KIP-98, KIP-447, KIP-848 (member epochs), KIP-890,
KIP-1319 (topic ids)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetPartitionError,
)
from ....protocol.kafka.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
    TxnPartitionError,
)
from ....protocol.types import TopicPartition
from ...broker import Commit, CommittingMember
from ...loop.procedures import Procedure, Reply, mapped
from .door import Call, topics_of_answer

FIRST_WITH_TOPIC_IDS: Final = 10
FIRST_IN_TRANSACTION_WITH_TOPIC_IDS: Final = 6
FIRST_WITH_ABORTABLE: Final = 4
FIRST_THAT_JOINS: Final = 5
"""From this version on a commit in a transaction joins it; before it AddOffsetsToTxn does (KIP-890)."""
FIRST_WITH_MEMBER_EPOCH: Final = 6
"""Below it a commit in a transaction knows no errors of member epochs, and is told ILLEGAL_GENERATION."""
NO_RETENTION: Final = -1
"""Of its own: an offset stays as long as the server says."""
PARTITIONS_AT_ONCE: Final = 16
"""Of a commit that may be enqueued without a turn of the scheduler."""

Transaction = tuple[str, int, int]
_Topic = OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic
_Partition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


class _Asked(NamedTuple):
    """An offset to be committed, or why its topic cannot be."""

    commit: Commit
    error: RequestError | None


def offset_commit(call: Call, body: OffsetCommitRequest) -> Procedure[OffsetCommitResponse]:
    """Keep offsets; each partition has an answer of its own."""
    pairs = [(topic, each) for topic in body.topics for each in topic.partitions]
    asked = yield from mapped(partial(_asked, call, call.version >= FIRST_WITH_TOPIC_IDS, body.retention_time_ms), pairs)
    member = CommittingMember(
        generation=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        version=call.version,
    )
    codes = yield from _commit(call, body.group_id, asked, member)
    return OffsetCommitResponse(topics=(yield from topics_of_answer(body.topics, codes, _partition, _topic)))


def _partition(pair: tuple[OffsetCommitRequestPartition, int]) -> OffsetPartitionError:
    return OffsetPartitionError(partition_index=pair[0].partition_index, error_code=pair[1])


def _topic(entries: Iterator[OffsetPartitionError], topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    partitions = list(islice(entries, len(topic.partitions)))
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def txn_offset_commit(call: Call, body: TxnOffsetCommitRequest) -> Procedure[TxnOffsetCommitResponse]:
    """Keep offsets once the producer's transaction commits."""
    transaction = body.transactional_id, body.producer_id, body.producer_epoch
    pairs = [(topic, each) for topic in body.topics for each in topic.partitions]
    asked = yield from mapped(partial(_asked, call, call.version >= FIRST_IN_TRANSACTION_WITH_TOPIC_IDS, NO_RETENTION), pairs)
    member = CommittingMember(generation=body.generation_id, member_id=body.member_id, group_instance_id=body.group_instance_id)
    codes = yield from _commit(call, body.group_id, asked, member, transaction)
    topics = yield from topics_of_answer(body.topics, codes, _partition_in_transaction, _topic_in_transaction)
    return TxnOffsetCommitResponse(topics=topics)


def _partition_in_transaction(pair: tuple[TxnOffsetCommitRequestPartition, int]) -> TxnPartitionError:
    return TxnPartitionError(partition_index=pair[0].partition_index, error_code=pair[1])


def _topic_in_transaction(
    entries: Iterator[TxnPartitionError], topic: TxnOffsetCommitRequestTopic
) -> TxnOffsetCommitResponseTopic:
    partitions = list(islice(entries, len(topic.partitions)))
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _asked(call: Call, by_id: bool, retention_ms: int, pair: tuple[_Topic, _Partition]) -> _Asked:
    """Look up the topic before the group is asked, as Kafka does. `pair`: a topic of the request, and a partition."""
    topic, each = pair
    name = topic.name
    error: RequestError | None = None
    try:
        if by_id:
            name = call.topic_name(name, topic.topic_id, by_id=True)
        topic_partition = TopicPartition(name, each.partition_index)
        call.check_partition(topic_partition)
    except RequestError as exc:
        topic_partition, error = TopicPartition(name, each.partition_index), exc.as_answer()
    offset, metadata, leader_epoch = each.committed_offset, each.committed_metadata, each.committed_leader_epoch
    return _Asked(Commit(topic_partition, offset, metadata, leader_epoch, retention_ms), error)


def _commit(
    call: Call, group: str, asked: Sequence[_Asked], member: CommittingMember, transaction: Transaction | None = None
) -> Procedure[list[int]]:
    """An error code for each offset."""
    wanted = [each.commit for each in asked if each.error is None]
    if asked and not wanted:
        return _codes(asked, [])
    offsets, reply = call.broker.offsets, Reply()
    try:
        if transaction is not None and call.version < FIRST_THAT_JOINS:
            offsets.check_in_transaction(*transaction, group)
        is_small = transaction is None and len(wanted) <= PARTITIONS_AT_ONCE
        if is_small and offsets.commit_now(group, wanted, member, reply.put):
            return _codes(asked, (yield reply))
        return _codes(asked, (yield partial(offsets.commit, group, wanted, transaction=transaction, member=member)))
    except RequestError as exc:
        is_abortable = transaction is not None and call.version >= FIRST_WITH_ABORTABLE
        if is_abortable and exc.code is ErrorCode.INVALID_TXN_STATE:
            return _codes(asked, RequestError(exc.message, ErrorCode.TRANSACTION_ABORTABLE))
        knows_epochs = transaction is None or call.version >= FIRST_WITH_MEMBER_EPOCH
        if not knows_epochs and exc.code is ErrorCode.STALE_MEMBER_EPOCH:
            return _codes(asked, RequestError(exc.message, ErrorCode.ILLEGAL_GENERATION))
        return _codes(asked, exc)


def _codes(asked: Sequence[_Asked], answers: Sequence[RequestError | None] | RequestError) -> list[int]:
    """An error code for each offset. `answers`: of those whose topics are there, or the error of them all."""
    if isinstance(answers, RequestError):
        code = ErrorCode.INVALID_PRODUCER_EPOCH if answers.code is ErrorCode.PRODUCER_FENCED else answers.code
        return [each.error.code if each.error else code for each in asked]
    left = iter(answers)
    return [0 if (error := each.error or next(left)) is None else error.code for each in asked]
