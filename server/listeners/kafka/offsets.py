"""Offsets of groups: OffsetFetch, OffsetDelete. Source: KIP-447 (stable offsets), KIP-496 (deletion), KIP-709 (several groups),
KIP-848 (member epochs). They are committed in `offset_commits`.

A group that nobody knows has no offsets, which is not an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ....protocol.types import NO_OFFSET, TopicPartition
from ...broker import GroupOffset
from ..connections.in_turns import in_turns
from .door import NO_TOPIC_ID, Call, error_code

FIRST_WITH_SEVERAL_GROUPS: Final = 8
FIRST_WITH_ERROR_OF_ALL: Final = 2
FIRST_WITH_TOPIC_IDS: Final = 10
NO_EPOCH: Final = -1
PARTITIONS_AT_ONCE: Final = 16
"""Of a fetch that is answered without a turn of the scheduler."""


# ---- fetch -------------------------------------------------------------------------------------------------------------------


Named = tuple[str, bytes, Sequence[int]]
"""Name and id of a topic, and partitions of it."""


class _Found(NamedTuple):
    """A group's offsets by topic as asked for, or the error of all of them."""

    topics: list[tuple[str, bytes, list[tuple[int, GroupOffset | ErrorCode]]]]
    error: ErrorCode = ErrorCode.NONE


def offset_fetch_at_once(call: Call, body: OffsetFetchRequest) -> OffsetFetchResponse | None:
    """`offset_fetch` of few partitions that are named."""
    if call.version < FIRST_WITH_SEVERAL_GROUPS:
        numbers = None if body.topics is None else [each.partition_indexes for each in body.topics]
        return _of_only_group(call, body) if numbers is not None and _are_few(numbers) else None
    lists = [each.partition_indexes for group in body.groups for each in group.topics or ()]
    if any(group.topics is None for group in body.groups) or len(body.groups) > PARTITIONS_AT_ONCE or not _are_few(lists):
        return None
    return OffsetFetchResponse(topics=[], groups=[_of_group(call, body, group) for group in _different(body)])


def _are_few(numbers: Sequence[Sequence[int]]) -> bool:
    return len(numbers) <= PARTITIONS_AT_ONCE and sum(map(len, numbers)) <= PARTITIONS_AT_ONCE


async def offset_fetch(call: Call, body: OffsetFetchRequest) -> OffsetFetchResponse:
    """What groups have committed, for each group and partition once; no topics ask for all."""
    if call.version < FIRST_WITH_SEVERAL_GROUPS:
        return _of_only_group(call, body)
    groups = [_of_group(call, body, group) async for group in in_turns(_different(body))]
    return OffsetFetchResponse(topics=[], groups=groups)


def _different(body: OffsetFetchRequest) -> Collection[OffsetFetchRequestGroup]:
    return {group.group_id: group for group in body.groups}.values()


def _of_group(call: Call, body: OffsetFetchRequest, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    named = None
    if group.topics is not None:
        named = _once((each.name, each.topic_id, each.partition_indexes) for each in group.topics)
    found = _find(call, group.group_id, named, group.member_id, group.member_epoch)
    return _several(call, group.group_id, found, stable=body.require_stable)


def _of_only_group(call: Call, body: OffsetFetchRequest) -> OffsetFetchResponse:
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
        call.broker.groups.check_fetch(group, member_id, member_epoch)
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
        topic = call.topic_name(name, topic_id, by_id=call.version >= FIRST_WITH_TOPIC_IDS)
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
