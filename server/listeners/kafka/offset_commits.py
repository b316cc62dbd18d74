"""Offsets that groups commit: OffsetCommit, TxnOffsetCommit. Source: KIP-98, KIP-447, KIP-848 (member epochs), KIP-890,
KIP-1319 (topic ids)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ....protocol.kafka.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ....protocol.types import TopicPartition
from ...broker import Commit, CommittingMember
from ..connections.connection_task import Work
from ..connections.in_turns import in_turns
from .door import Call, error_code
from .session import Turn

FIRST_WITH_TOPIC_IDS: Final = 10
FIRST_IN_TRANSACTION_WITH_TOPIC_IDS: Final = 6
FIRST_WITH_ABORTABLE: Final = 4
FIRST_THAT_JOINS: Final = 5
"""From this version on a commit in a transaction joins it; before it AddOffsetsToTxn does (KIP-890)."""
FIRST_WITH_MEMBER_EPOCH: Final = 6
"""Below it a commit in a transaction knows no errors of member epochs, and is told ILLEGAL_GENERATION."""
PARTITIONS_AT_ONCE: Final = 16
"""Of a commit that may be enqueued without a turn of the scheduler."""

Transaction = tuple[str, int, int]


class _Asked(NamedTuple):
    """An offset to be committed, or why its topic cannot be."""

    commit: Commit
    error: RequestError | None


def take_offset_commit(call: Call, turn: Turn, body: OffsetCommitRequest) -> Work | None:
    """Enqueue a commit of few offsets, or answer what does it. The answer comes from the log's actor."""
    if sum(len(topic.partitions) for topic in body.topics) > PARTITIONS_AT_ONCE:
        return partial(_take_offset_commit_later, call, turn, body)
    asked = [_asked_by(call, body, topic, each) for topic in body.topics for each in topic.partitions]
    wanted = [each.commit for each in asked if each.error is None]
    answer = partial(_answer_commit, turn, body, asked)
    if asked and not wanted:
        answer([])
        return None
    try:
        if call.broker.offsets.commit_now(body.group_id, wanted, _member(call, body), answer):
            return None
    except RequestError as exc:
        answer(exc)
        return None
    return partial(_take_offset_commit_later, call, turn, body)


def _answer_commit(
    turn: Turn, body: OffsetCommitRequest, asked: Sequence[_Asked], answers: list[RequestError | None] | RequestError
) -> None:
    """Called by the log's actor. Raises nothing: the actor serves others too."""
    try:
        turn.answer(_committed(body, _codes(asked, answers)))
    except Exception as exc:
        turn.met_bug(exc)


async def _take_offset_commit_later(call: Call, turn: Turn, body: OffsetCommitRequest) -> None:
    turn.answer(await offset_commit(call, body))


async def offset_commit(call: Call, body: OffsetCommitRequest) -> OffsetCommitResponse:
    """Keep offsets; each partition has an answer of its own."""
    asked = [
        _asked_by(call, body, topic, each) async for topic in in_turns(body.topics) async for each in in_turns(topic.partitions)
    ]
    codes = iter(await _commit(call, body.group_id, asked, _member(call, body)))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=next(codes))
                    async for each in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(body.topics)
        ]
    )


def _member(call: Call, body: OffsetCommitRequest) -> CommittingMember:
    return CommittingMember(
        generation=body.generation_id_or_member_epoch,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        version=call.version,
    )


def _committed(body: OffsetCommitRequest, codes: Sequence[int]) -> OffsetCommitResponse:
    left = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=next(left))
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


async def txn_offset_commit(call: Call, body: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Keep offsets once the producer's transaction commits."""
    transaction = body.transactional_id, body.producer_id, body.producer_epoch
    asked = [
        _asked(
            call,
            topic.name,
            topic.topic_id,
            Commit(
                TopicPartition(topic.name, each.partition_index),
                each.committed_offset,
                each.committed_metadata,
                each.committed_leader_epoch,
            ),
            by_id=call.version >= FIRST_IN_TRANSACTION_WITH_TOPIC_IDS,
        )
        async for topic in in_turns(body.topics)
        async for each in in_turns(topic.partitions)
    ]
    member = CommittingMember(generation=body.generation_id, member_id=body.member_id, group_instance_id=body.group_instance_id)
    codes = iter(await _commit(call, body.group_id, asked, member, transaction))
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=next(codes))
                    async for each in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(body.topics)
        ]
    )


def _asked_by(
    call: Call, body: OffsetCommitRequest, topic: OffsetCommitRequestTopic, each: OffsetCommitRequestPartition
) -> _Asked:
    commit = Commit(
        TopicPartition(topic.name, each.partition_index),
        each.committed_offset,
        each.committed_metadata,
        each.committed_leader_epoch,
        body.retention_time_ms,
    )
    return _asked(call, topic.name, topic.topic_id, commit, by_id=call.version >= FIRST_WITH_TOPIC_IDS)


def _asked(call: Call, name: str, topic_id: bytes, commit: Commit, *, by_id: bool) -> _Asked:
    """Look up the topics before the group is asked, as Kafka does."""
    try:
        topic = call.topic_name(name, topic_id, by_id=by_id)
        if topic != name:
            commit = commit._replace(topic_partition=TopicPartition(topic, commit.topic_partition.partition))
        call.check_partition(commit.topic_partition)
        return _Asked(commit, None)
    except RequestError as exc:
        return _Asked(commit, exc.as_answer())


async def _commit(
    call: Call, group: str, asked: Sequence[_Asked], member: CommittingMember, transaction: Transaction | None = None
) -> list[int]:
    """An error code for each offset."""
    wanted = [each.commit for each in asked if each.error is None]
    if asked and not wanted:
        return _codes(asked, [])
    try:
        if transaction is not None and call.version < FIRST_THAT_JOINS:
            call.broker.offsets.check_in_transaction(*transaction, group)
        return _codes(asked, await call.broker.offsets.commit(group, wanted, transaction=transaction, member=member))
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
    return [error_code(next(left) if each.error is None else each.error) for each in asked]
