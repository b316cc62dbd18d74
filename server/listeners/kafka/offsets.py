"""Offsets of groups: OffsetFetch, OffsetDelete. Source: KIP-447 (stable offsets), KIP-496 (deletion), KIP-709 (several groups),
KIP-848 (member epochs). They are committed in `offset_commits`.

A group that nobody knows has no offsets, which is not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    OffsetPartitionError,
)
from ....protocol.types import NO_OFFSET, TopicPartition
from ...broker import GroupOffset
from ...loop.procedures import Procedure, in_turns
from ..access.judging import Steps, finish, map_steps
from .door import NO_TOPIC_ID, Call, error_code

FIRST_WITH_SEVERAL_GROUPS: Final = 8
FIRST_WITH_ERROR_OF_ALL: Final = 2
FIRST_WITH_TOPIC_IDS: Final = 10
NO_EPOCH: Final = -1
PARTITIONS_AT_ONCE: Final = 16
"""Of a fetch that is answered without a turn of the scheduler."""


# ---- fetch -------------------------------------------------------------------------------------------------------------------


PARTITIONS_PER_PAUSE: Final = 128

Named = tuple[str, bytes, Sequence[int]]
"""Name and id of a topic, and partitions of it."""


class _Found(NamedTuple):
    """A group's offsets by topic as asked for, or the error of all of them."""

    topics: list[tuple[str, bytes, list[tuple[int, GroupOffset | ErrorCode]]]]
    error: ErrorCode = ErrorCode.NONE


def offset_fetch(call: Call, body: OffsetFetchRequest) -> Procedure[OffsetFetchResponse]:
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


def _groups_steps(call: Call, body: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    groups = []
    for group in {group.group_id: group for group in body.groups}.values():
        groups.append((yield from _group_steps(call, body, group)))
        yield
    return OffsetFetchResponse(topics=[], groups=groups)


def _group_steps(call: Call, body: OffsetFetchRequest, group: OffsetFetchRequestGroup) -> Steps[OffsetFetchResponseGroup]:
    named = None
    if group.topics is not None:
        named = yield from _once_steps((each.name, each.topic_id, each.partition_indexes) for each in group.topics)
    found = yield from _find_steps(call, group.group_id, named, group.member_id, group.member_epoch)
    return (yield from _several_steps(group.group_id, found, stable=body.require_stable))


def _only_group_steps(call: Call, body: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
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
        partitions = yield from map_steps(offsets, lambda each: _only(*each, stable=body.require_stable))
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return OffsetFetchResponse(topics=topics, error_code=found.error, groups=[])


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
    topics: dict[str, list[tuple[int, GroupOffset | ErrorCode]]] = {}
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


def _topic_steps(
    call: Call, group: str, name: str, topic_id: bytes, numbers: Sequence[int]
) -> Steps[list[tuple[int, GroupOffset | ErrorCode]]]:
    try:
        topic = call.topic_name(name, topic_id, by_id=call.version >= FIRST_WITH_TOPIC_IDS)
    except RequestError as exc:
        return [(number, exc.code) for number in numbers]
    found: list[tuple[int, GroupOffset | ErrorCode]] = []
    for start in range(0, len(numbers), PARTITIONS_PER_PAUSE):
        some = numbers[start : start + PARTITIONS_PER_PAUSE]
        committed = call.broker.offsets.committed(group, [TopicPartition(topic, number) for number in some])
        found += zip(some, committed, strict=True)
        yield
    return found


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


def _one_of_several(number: int, found: GroupOffset | ErrorCode, *, stable: bool) -> OffsetFetchResponsePartitions:
    offset, leader_epoch, metadata, code = _values(found, stable=stable)
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
        error_code=code,
    )


def _several_steps(group: str, found: _Found, *, stable: bool) -> Steps[OffsetFetchResponseGroup]:
    topics = []
    for name, topic_id, offsets in found.topics:
        partitions = yield from map_steps(offsets, lambda each: _one_of_several(*each, stable=stable))
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group, topics=topics, error_code=found.error)


# ---- delete ------------------------------------------------------------------------------------------------------------------


async def offset_delete(call: Call, body: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Forget offsets, but for those of topics that the group's members read."""
    named = ((topic, each) for topic in body.topics for each in topic.partitions)
    partitions = [TopicPartition(topic.name, each.partition_index) async for topic, each in in_turns(named)]
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
                    OffsetPartitionError(partition_index=each.partition_index, error_code=next(codes))
                    async for each in in_turns(topic.partitions)
                ],
            )
            async for topic in in_turns(body.topics)
        ]
    )
