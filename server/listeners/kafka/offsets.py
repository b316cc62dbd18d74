"""Offsets of groups: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete. Source: KIP-98, KIP-447 (stable offsets),
KIP-496 (deletion), KIP-709 (several groups), KIP-848 (member epochs), KIP-890.

A group that nobody knows has no offsets, which is not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ....protocol.kafka.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ....protocol.types import NO_OFFSET, TopicPartition
from ...broker import Commit, CommittingMember, GroupOffset
from ..connections.in_turns import in_turns
from ..connections.session import Work
from .door import NO_TOPIC_ID, Call, error_code
from .session import Turn

FIRST_WITH_TOPIC_IDS: Final = 10
FIRST_WITH_SEVERAL_GROUPS: Final = 8
FIRST_WITH_ERROR_OF_ALL: Final = 2
NO_EPOCH: Final = -1
FIRST_WITH_ABORTABLE: Final = 4
FIRST_THAT_JOINS: Final = 5
"""From this version on a commit in a transaction joins it; before it AddOffsetsToTxn does (KIP-890)."""

PARTITIONS_AT_ONCE: Final = 16
"""Of a commit that may be enqueued without a turn of the scheduler."""

Transaction = tuple[str, int, int]


class _Asked(NamedTuple):
    """An offset to be committed, or why its topic cannot be."""

    commit: Commit
    error: RequestError | None


# ---- commit ------------------------------------------------------------------------------------------------------------------


def take_offset_commit(call: Call, turn: Turn, body: OffsetCommitRequest) -> Work | None:
    """Enqueue a commit of few offsets, or answer what does it. The answer comes from the log's actor."""
    if sum(len(topic.partitions) for topic in body.topics) > PARTITIONS_AT_ONCE:
        return partial(_take_offset_commit_later, call, turn, body)
    asked = [_asked_by(call, topic, each) for topic in body.topics for each in topic.partitions]
    wanted = [each.commit for each in asked if each.error is None]
    answer = partial(_answer_commit, turn, body, asked)
    if asked and not wanted:
        answer([])
        return None
    try:
        if call.broker.offsets.commit_now(body.group_id, wanted, _member(body), answer):
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
    asked = [_asked_by(call, topic, each) async for topic in in_turns(body.topics) async for each in in_turns(topic.partitions)]
    return _committed(body, await _commit(call, body.group_id, asked, _member(body)))


def _member(body: OffsetCommitRequest) -> CommittingMember:
    return CommittingMember(
        generation=body.generation_id_or_member_epoch, member_id=body.member_id, group_instance_id=body.group_instance_id
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
            NO_TOPIC_ID,
            Commit(
                TopicPartition(topic.name, each.partition_index),
                each.committed_offset,
                each.committed_metadata,
                each.committed_leader_epoch,
            ),
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
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=next(codes))
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _asked_by(call: Call, topic: OffsetCommitRequestTopic, each: OffsetCommitRequestPartition) -> _Asked:
    commit = Commit(
        TopicPartition(topic.name, each.partition_index),
        each.committed_offset,
        each.committed_metadata,
        each.committed_leader_epoch,
    )
    return _asked(call, topic.name, topic.topic_id, commit)


def _asked(call: Call, name: str, topic_id: bytes, commit: Commit) -> _Asked:
    """Look up the topics before the group is asked, as Kafka does."""
    try:
        topic = call.topic_name(name, topic_id, by_id=topic_id != NO_TOPIC_ID)
        topic_partition = TopicPartition(topic, commit.topic_partition.partition)
        call.check_partition(topic_partition)
        return _Asked(commit._replace(topic_partition=topic_partition), None)
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
        return _codes(asked, exc)


def _codes(asked: Sequence[_Asked], answers: Sequence[RequestError | None] | RequestError) -> list[int]:
    """An error code for each offset. `answers`: of those whose topics are there, or the error of them all."""
    if isinstance(answers, RequestError):
        code = ErrorCode.INVALID_PRODUCER_EPOCH if answers.code is ErrorCode.PRODUCER_FENCED else answers.code
        return [each.error.code if each.error else code for each in asked]
    left = iter(answers)
    return [error_code(next(left) if each.error is None else each.error) for each in asked]


# ---- fetch -------------------------------------------------------------------------------------------------------------------


Named = tuple[str, bytes, Sequence[int]]
"""Name and id of a topic, and partitions of it."""


class _Found(NamedTuple):
    """A group's offsets by topic as asked for, or the error of all of them."""

    topics: list[tuple[str, bytes, list[tuple[int, GroupOffset | ErrorCode]]]]
    error: ErrorCode = ErrorCode.NONE


async def offset_fetch(call: Call, body: OffsetFetchRequest) -> OffsetFetchResponse:
    """What groups have committed, for each group and partition once; no topics ask for all."""
    if call.version >= FIRST_WITH_SEVERAL_GROUPS:
        groups = []
        async for group in in_turns({group.group_id: group for group in body.groups}.values()):
            named = None
            if group.topics is not None:
                named = _once((each.name, each.topic_id, each.partition_indexes) for each in group.topics)
            found = _find(call, group.group_id, named, group.member_id, group.member_epoch)
            groups.append(_several(call, group.group_id, found, stable=body.require_stable))
        return OffsetFetchResponse(topics=[], groups=groups)
    named = None
    if body.topics is not None:
        named = _once((each.name, NO_TOPIC_ID, each.partition_indexes) for each in body.topics)
    found = _find(call, body.group_id, named)
    if found.error and call.version < FIRST_WITH_ERROR_OF_ALL:
        found = _Found(
            [(name, topic_id, [(number, found.error) for number in numbers]) for name, topic_id, numbers in named or ()]
        )
    topics = [
        OffsetFetchResponseTopic(
            name=name, partitions=[_only(number, offset, stable=body.require_stable) for number, offset in offsets]
        )
        for name, _, offsets in found.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=found.error, groups=[])


def _once(named: Iterable[Named]) -> list[Named]:
    """Drop repeated partitions: asking takes 4 bytes, but a committed offset may have 4 KB of metadata."""
    seen: dict[tuple[str, bytes], set[int]] = {}
    found: list[Named] = []
    for name, topic_id, numbers in named:
        before = seen.setdefault((name, topic_id), set())
        found.append((name, topic_id, [number for number in dict.fromkeys(numbers) if number not in before]))
        before.update(numbers)
    return found


def _find(
    call: Call,
    group: str,
    named: Sequence[Named] | None,
    member_id: str | None = None,
    member_epoch: int = NO_EPOCH,
) -> _Found:
    try:
        call.broker.groups.consumers.check_fetch(group, member_id, member_epoch)
        if named is None:
            return _all(call, group)
        return _Found([(name, topic_id, _of_topic(call, group, name, topic_id, numbers)) for name, topic_id, numbers in named])
    except RequestError as exc:
        return _Found([], exc.code)


def _all(call: Call, group: str) -> _Found:
    topics: dict[str, list[tuple[int, GroupOffset | ErrorCode]]] = {}
    for each in call.broker.offsets.committed(group):
        name, number = each.topic_partition
        if each.value is None:
            continue  # only an open transaction has one
        topics.setdefault(name, []).append((number, each))
    return _Found([(name, _topic_id(call, name), offsets) for name, offsets in topics.items()])


def _topic_id(call: Call, name: str) -> bytes:
    try:
        return call.broker.topics.id_of(name)
    except RequestError:
        return NO_TOPIC_ID


def _of_topic(
    call: Call, group: str, name: str, topic_id: bytes, numbers: Sequence[int]
) -> list[tuple[int, GroupOffset | ErrorCode]]:
    try:
        topic = call.topic_name(name, topic_id, by_id=topic_id != NO_TOPIC_ID)
    except RequestError as exc:
        return [(number, exc.code) for number in numbers]
    found = call.broker.offsets.committed(group, [TopicPartition(topic, number) for number in numbers])
    return list(zip(numbers, found, strict=True))


def _values(offset: GroupOffset | ErrorCode, *, stable: bool) -> tuple[int, int, str, ErrorCode]:
    """(offset, leader epoch, metadata, error code)."""
    if isinstance(offset, ErrorCode):
        return NO_OFFSET, -1, "", offset
    if stable and offset.is_pending:
        return NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT
    if offset.value is None:
        return NO_OFFSET, -1, "", ErrorCode.NONE
    return offset.value.offset, offset.value.leader_epoch, offset.value.metadata, ErrorCode.NONE


def _only(number: int, found: GroupOffset | ErrorCode, *, stable: bool) -> OffsetFetchResponsePartition:
    offset, leader_epoch, metadata, code = _values(found, stable=stable)
    return OffsetFetchResponsePartition(
        partition_index=number,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
        error_code=code,
    )


def _several(call: Call, group: str, found: _Found, *, stable: bool) -> OffsetFetchResponseGroup:
    topics = []
    for name, topic_id, offsets in found.topics:
        partitions = []
        for number, each in offsets:
            offset, leader_epoch, metadata, code = _values(each, stable=stable)
            partitions.append(
                OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    metadata=metadata,
                    error_code=code,
                )
            )
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group, topics=topics, error_code=found.error)


# ---- delete ------------------------------------------------------------------------------------------------------------------


async def offset_delete(call: Call, body: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Forget offsets, but for those of topics that the group's members read."""
    partitions = [TopicPartition(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions]
    try:
        answers = iter(await call.broker.offsets.delete(body.group_id, partitions))
    except RequestError as exc:
        return OffsetDeleteResponse(error_code=exc.code, topics=[])
    codes = map(error_code, answers)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=next(codes))
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
