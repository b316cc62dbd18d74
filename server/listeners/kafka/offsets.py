"""Offsets of groups: OffsetFetch, OffsetDelete, OffsetCommit, TxnOffsetCommit. Source: KIP-98, KIP-447 (stable offsets),
KIP-496 (deletion), KIP-709 (several groups), KIP-848 (member epochs), KIP-890, KIP-1319 (topic ids).

A group that nobody knows has no offsets, which is not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.messages import offsets as messages
from ....protocol.kafka.messages import transactions as in_transaction
from ....protocol.types import NO_OFFSET, TopicPartition
from ...broker import Commit, CommittingMember, GroupOffset
from ...loop.procedures import Procedure, Reply, in_turns, mapped
from ..access.rules import Steps, finish, map_steps
from .door import NO_TOPIC_ID, Call, error_code, topics_of_answer

FIRST_WITH_SEVERAL_GROUPS: Final = 8
FIRST_WITH_ERROR_OF_ALL: Final = 2
FIRST_WITH_TOPIC_IDS: Final = 10
NO_EPOCH: Final = -1
PARTITIONS_AT_ONCE: Final = 16
"""Of a fetch that is answered, or a commit that is enqueued, without a turn of the scheduler."""


# ---- fetch -------------------------------------------------------------------------------------------------------------------


PARTITIONS_PER_PAUSE: Final = 128

Named = tuple[str, bytes, Sequence[int]]
"""Name and id of a topic, and partitions of it."""
Offset = tuple[int, GroupOffset | ErrorCode]
"""Number of a partition, and what was found."""
P = TypeVar("P")


class _Found(NamedTuple):
    """A group's offsets by topic as asked for, or the error of all of them."""

    topics: list[tuple[str, bytes, list[Offset]]]
    error: ErrorCode = ErrorCode.NONE


def offset_fetch(call: Call, body: messages.OffsetFetchRequest) -> Procedure[messages.OffsetFetchResponse]:
    """Return the committed offsets of groups, for each group and partition once; without topics, of all partitions."""
    if call.version < FIRST_WITH_SEVERAL_GROUPS:
        asked: list[Any] = [body.topics]
        steps = _only_group_steps(call, body)
    else:
        asked = [group.topics for group in body.groups]
        steps = _groups_steps(call, body)
    lists = [each.partition_indexes for topics in asked for each in topics or ()]
    is_small = None not in asked and max(len(asked), len(lists), sum(map(len, lists))) <= PARTITIONS_AT_ONCE
    return finish(steps) if is_small else (yield partial(call.broker.in_steps, steps))


def _groups_steps(call: Call, body: messages.OffsetFetchRequest) -> Steps[messages.OffsetFetchResponse]:
    groups = []
    for group in {group.group_id: group for group in body.groups}.values():
        groups.append((yield from _group_steps(call, body, group)))
        yield
    return messages.OffsetFetchResponse(topics=[], groups=groups)


def _group_steps(
    call: Call, body: messages.OffsetFetchRequest, group: messages.OffsetFetchRequestGroup
) -> Steps[messages.OffsetFetchResponseGroup]:
    named = None
    if group.topics is not None:
        named = yield from _once_steps((each.name, each.topic_id, each.partition_indexes) for each in group.topics)
    found = yield from _find_steps(call, group.group_id, named, group.member_id, group.member_epoch)
    return (yield from _several_steps(group.group_id, found, stable=body.require_stable))


def _only_group_steps(call: Call, body: messages.OffsetFetchRequest) -> Steps[messages.OffsetFetchResponse]:
    named = None
    if body.topics is not None:
        named = yield from _once_steps((each.name, NO_TOPIC_ID, each.partition_indexes) for each in body.topics)
    found = yield from _find_steps(call, body.group_id, named)
    if found.error and call.version < FIRST_WITH_ERROR_OF_ALL:
        found = _Found(
            [(name, topic_id, [(number, found.error) for number in numbers]) for name, topic_id, numbers in named or ()]
        )
    topics = []
    for name, _, offsets in found.topics:
        partitions = yield from _partition_steps(messages.OffsetFetchResponsePartition, offsets, stable=body.require_stable)
        topics.append(messages.OffsetFetchResponseTopic(name=name, partitions=partitions))
    return messages.OffsetFetchResponse(topics=topics, error_code=found.error, groups=[])


def _once_steps(named: Iterable[Named]) -> Steps[list[Named]]:
    """Drop repeated partitions: asking takes 4 bytes, but a committed offset may have 4 KB of metadata."""
    seen: dict[tuple[str, bytes], set[int]] = {}
    found: list[Named] = []
    for name, topic_id, numbers in named:
        before = seen.setdefault((name, topic_id), set())
        different = dict.fromkeys(numbers) if not before else [each for each in dict.fromkeys(numbers) if each not in before]
        found.append((name, topic_id, list(different)))
        before.update(numbers)
        yield
    return found


def _find_steps(
    call: Call,
    group: str,
    named: Sequence[Named] | None,
    member_id: str | None = None,
    member_epoch: int = NO_EPOCH,
) -> Steps[_Found]:
    try:
        call.broker.groups.check_fetch(group, member_id, member_epoch)
        if named is None:
            return (yield from _all_steps(call, group))
        topics = []
        for name, topic_id, numbers in named:
            topics.append((name, topic_id, (yield from _topic_steps(call, group, name, topic_id, numbers))))
        return _Found(topics)
    except RequestError as exc:
        return _Found([], exc.code)


def _all_steps(call: Call, group: str) -> Steps[_Found]:
    topics: dict[str, list[Offset]] = {}
    places = call.broker.offsets.committed_partitions(group)
    for start in range(0, len(places), PARTITIONS_PER_PAUSE):
        for each in call.broker.offsets.committed(group, places[start : start + PARTITIONS_PER_PAUSE]):
            name, number = each.topic_partition
            if each.value is not None:  # otherwise only an open transaction has one, or it was deleted meanwhile
                topics.setdefault(name, []).append((number, each))
        yield
    return _Found([(name, _topic_id(call, name), offsets) for name, offsets in topics.items()])


def _topic_id(call: Call, name: str) -> bytes:
    try:
        return call.broker.topics.id_of(name)
    except RequestError:
        return NO_TOPIC_ID


def _topic_steps(call: Call, group: str, name: str, topic_id: bytes, numbers: Sequence[int]) -> Steps[list[Offset]]:
    try:
        topic = call.topic_name(name, topic_id, by_id=call.version >= FIRST_WITH_TOPIC_IDS)
    except RequestError as exc:
        return [(number, exc.code) for number in numbers]
    found: list[Offset] = []
    for start in range(0, len(numbers), PARTITIONS_PER_PAUSE):
        some = numbers[start : start + PARTITIONS_PER_PAUSE]
        committed = call.broker.offsets.committed(group, [TopicPartition(topic, number) for number in some])
        found += zip(some, committed, strict=True)
        yield
    return found


def _partition_steps(cls: Callable[..., P], offsets: Iterable[Offset], *, stable: bool) -> Steps[list[P]]:
    """The entries of an answer, of the class that the version has."""

    def entry(of_partition: Offset) -> P:
        number, offset = of_partition
        kept, code = (None, offset) if isinstance(offset, ErrorCode) else (offset.value, ErrorCode.NONE)
        if not isinstance(offset, ErrorCode) and stable and offset.is_pending:
            kept, code = None, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return cls(
            partition_index=number,
            committed_offset=NO_OFFSET if kept is None else kept.offset,
            committed_leader_epoch=NO_EPOCH if kept is None else kept.leader_epoch,
            metadata="" if kept is None else kept.metadata,
            error_code=code,
        )

    return (yield from map_steps(offsets, entry))


def _several_steps(group: str, found: _Found, *, stable: bool) -> Steps[messages.OffsetFetchResponseGroup]:
    topics = []
    for name, topic_id, offsets in found.topics:
        partitions = yield from _partition_steps(messages.OffsetFetchResponsePartitions, offsets, stable=stable)
        topics.append(messages.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return messages.OffsetFetchResponseGroup(group_id=group, topics=topics, error_code=found.error)


# ---- delete ------------------------------------------------------------------------------------------------------------------


async def offset_delete(call: Call, body: messages.OffsetDeleteRequest) -> messages.OffsetDeleteResponse:
    """Forget offsets, but for those of topics that the group's members read."""
    named = ((topic, each) for topic in body.topics for each in topic.partitions)
    partitions = [TopicPartition(topic.name, each.partition_index) async for topic, each in in_turns(named)]
    codes = map(error_code, await call.broker.offsets.delete(body.group_id, partitions))
    return messages.OffsetDeleteResponse(
        topics=[
            messages.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    messages.OffsetPartitionError(partition_index=each.partition_index, error_code=next(codes))
                    async for each in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(body.topics)
        ]
    )


FIRST_IN_TRANSACTION_WITH_TOPIC_IDS: Final = 6
FIRST_WITH_ABORTABLE: Final = 4
FIRST_THAT_JOINS: Final = 5
"""From this version on a commit in a transaction joins it; before it AddOffsetsToTxn does (KIP-890)."""
FIRST_WITH_MEMBER_EPOCH: Final = 6
"""Below it a commit in a transaction knows no errors of member epochs, and is told ILLEGAL_GENERATION."""
NO_RETENTION: Final = -1
"""Of its own: an offset stays as long as the server says."""

Transaction = tuple[str, int, int]
_Topic = messages.OffsetCommitRequestTopic | in_transaction.TxnOffsetCommitRequestTopic
_Partition = messages.OffsetCommitRequestPartition | in_transaction.TxnOffsetCommitRequestPartition


class _Asked(NamedTuple):
    """An offset to be committed, or why its topic cannot be."""

    commit: Commit
    error: RequestError | None


def offset_commit(call: Call, body: messages.OffsetCommitRequest) -> Procedure[messages.OffsetCommitResponse]:
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
    partition = partial(_partition, messages.OffsetPartitionError)
    topic = partial(_topic, messages.OffsetCommitResponseTopic)
    return messages.OffsetCommitResponse(topics=(yield from topics_of_answer(body.topics, codes, partition, topic)))


def _partition(cls: Callable[..., P], pair: tuple[_Partition, int]) -> P:
    return cls(partition_index=pair[0].partition_index, error_code=pair[1])


def _topic(cls: Callable[..., P], entries: Iterator[Any], topic: _Topic) -> P:
    return cls(name=topic.name, topic_id=topic.topic_id, partitions=list(islice(entries, len(topic.partitions))))


def txn_offset_commit(
    call: Call, body: in_transaction.TxnOffsetCommitRequest
) -> Procedure[in_transaction.TxnOffsetCommitResponse]:
    """Keep offsets once the producer's transaction commits."""
    transaction = body.transactional_id, body.producer_id, body.producer_epoch
    pairs = [(topic, each) for topic in body.topics for each in topic.partitions]
    asked = yield from mapped(partial(_asked, call, call.version >= FIRST_IN_TRANSACTION_WITH_TOPIC_IDS, NO_RETENTION), pairs)
    member = CommittingMember(generation=body.generation_id, member_id=body.member_id, group_instance_id=body.group_instance_id)
    codes = yield from _commit(call, body.group_id, asked, member, transaction)
    partition = partial(_partition, in_transaction.TxnPartitionError)
    topic = partial(_topic, in_transaction.TxnOffsetCommitResponseTopic)
    return in_transaction.TxnOffsetCommitResponse(topics=(yield from topics_of_answer(body.topics, codes, partition, topic)))


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
        if is_small and offsets.try_commit(group, wanted, member, reply.put):
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
