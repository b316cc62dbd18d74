"""The start offsets of share groups: DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets. Source:
KIP-932, KIP-1226 (lag)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....protocol.errors import RequestError
from ....protocol.kafka.messages.share_groups import (
    NO_LAG,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ....protocol.types import TopicPartition
from ...broker import ShareOffset
from ...loop.procedures import in_turns
from .door import NO_TOPIC_ID, Call, error_code, error_message

NO_OFFSET: Final = -1


async def describe_share_group_offsets(call: Call, body: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    """The start offset and lag of partitions, -1 where nobody has read yet. Who asks twice for all that a group has is answered
    once: an answer is a thousand times as long as its question."""
    groups = {(each.group_id, number if each.topics is not None else None): each for number, each in enumerate(body.groups)}
    return DescribeShareGroupOffsetsResponse(groups=[await _group(call, each) async for each in in_turns(groups.values())])


async def _group(call: Call, asked: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
    partitions = None
    if asked.topics is not None:
        named = ((topic.topic_name, number) for topic in asked.topics for number in topic.partitions)
        partitions = [TopicPartition(name, number) async for name, number in in_turns(named)]
    try:
        offsets = await call.broker.groups.share.offsets(asked.group_id, partitions)
    except RequestError as exc:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=[], error_code=exc.code, error_message=exc.message
        )
    return DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=await _topics(call, offsets))


async def _topics(call: Call, offsets: Iterable[ShareOffset]) -> list[DescribeShareGroupOffsetsResponseTopic]:
    topics: dict[str, DescribeShareGroupOffsetsResponseTopic] = {}
    async for offset in in_turns(offsets):
        name = offset.topic_partition.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DescribeShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=offset.topic_id or NO_TOPIC_ID, partitions=[]
            )
        topic.partitions.append(_partition(call, offset))
    return list(topics.values())


def _partition(call: Call, offset: ShareOffset) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=offset.topic_partition.partition,
        start_offset=offset.summary.start_offset,
        leader_epoch=offset.summary.leader_epoch,
        lag=_lag(call, offset),
        error_code=error_code(offset.error),
        error_message=error_message(offset.error),
    )


def _lag(call: Call, offset: ShareOffset) -> int:
    """Records behind the start offset whose delivery has not ended; -1 where that is not known."""
    summary = offset.summary
    if summary.start_offset == NO_OFFSET or summary.delivery_complete_count < 0:
        return NO_LAG
    try:
        end_offset = call.broker.reader.snapshot(offset.topic_partition).high_watermark
    except RequestError:
        return NO_LAG
    return end_offset - summary.start_offset - summary.delivery_complete_count


async def alter_share_group_offsets(call: Call, body: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    """Let a group without members read from there."""
    asked = [
        (TopicPartition(topic.topic_name, each.partition_index), each.start_offset)
        for topic in body.topics
        for each in topic.partitions
    ]
    try:
        errors = iter(await call.broker.groups.share.alter_offsets(body.group_id, asked))
    except RequestError as exc:
        return AlterShareGroupOffsetsResponse(error_code=exc.code, error_message=exc.message, responses=[])
    return AlterShareGroupOffsetsResponse(
        responses=[
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=_topic_id(call, topic.topic_name),
                partitions=[_altered(each.partition_index, next(errors)) for each in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _altered(number: int, error: RequestError | None) -> AlterShareGroupOffsetsResponsePartition:
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=number, error_code=error_code(error), error_message=error_message(error)
    )


async def delete_share_group_offsets(call: Call, body: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    """Forget where a group without members reads topics."""
    names = [topic.topic_name for topic in body.topics]
    try:
        errors = await call.broker.groups.share.delete_offsets(body.group_id, names)
    except RequestError as exc:
        return DeleteShareGroupOffsetsResponse(error_code=exc.code, error_message=exc.message, responses=[])
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=_topic_id(call, name) if error is None else NO_TOPIC_ID,
                error_code=error_code(error),
                error_message=error_message(error),
            )
            for name, error in zip(names, errors, strict=True)
        ]
    )


def _topic_id(call: Call, name: str) -> bytes:
    try:
        return call.broker.topics.id_of(name)
    except RequestError:
        return NO_TOPIC_ID
