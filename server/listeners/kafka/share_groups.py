"""Share groups (KIP-932): ShareGroupHeartbeat, ShareGroupDescribe, and their start offsets: DescribeShareGroupOffsets,
AlterShareGroupOffsets and DeleteShareGroupOffsets. What they mean is in `server.groups.share`. Source: KIP-932, KIP-1226 (lag).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from ....protocol.errors import RequestError
from ....protocol.kafka.messages import share_groups as messages
from ....protocol.types import TopicPartition
from ...broker import (
    AssignedGroupDescription,
    AssignedMemberDescription,
    ShareHeartbeat,
    ShareOffset,
    by_first,
)
from ...loop.procedures import Procedure, in_turns
from .consumer_groups import described_groups, named_topics
from .door import NO_TOPIC_ID, Call, filled, reported


def share_group_heartbeat(
    call: Call, body: messages.ShareGroupHeartbeatRequest
) -> Procedure[messages.ShareGroupHeartbeatResponse]:
    """Join, stay, or leave; the answer has what the member may read from now on, if that has changed."""
    members, heartbeat = call.broker.groups.share, _heartbeat(call, body)
    answer = members.try_heartbeat(heartbeat) if body.subscribed_topic_names is None else None
    if answer is None:
        answer = yield partial(members.heartbeat, heartbeat)
    assignment = None
    if answer.assignment is not None:
        topics = [
            messages.ShareTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_first(answer.assignment).items()
        ]
        assignment = messages.ShareGroupHeartbeatAssignment(topic_partitions=topics)
    return messages.ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def _heartbeat(call: Call, body: messages.ShareGroupHeartbeatRequest) -> ShareHeartbeat:
    names = body.subscribed_topic_names
    return ShareHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        rack_id=body.rack_id,
        topic_names=None if names is None else tuple(names),
        client_id=call.session.client_id,
        client_host=f"/{call.session.transport.host}",
    )


async def share_group_describe(call: Call, body: messages.ShareGroupDescribeRequest) -> messages.ShareGroupDescribeResponse:
    """State, epochs, members and what they read."""
    describe = call.broker.groups.share.describe
    return messages.ShareGroupDescribeResponse(
        groups=await described_groups(call, body, describe, _shown, messages.ShareGroupDescribedGroup)
    )


def _shown(call: Call, description: AssignedGroupDescription) -> messages.ShareGroupDescribedGroup:
    return filled(
        messages.ShareGroupDescribedGroup,
        description,
        group_state=description.state.value,
        assignor_name=description.assignor,
        members=[_member(call, each) for each in description.members],
    )


def _member(call: Call, member: AssignedMemberDescription) -> messages.ShareGroupDescribeMember:
    topics = [
        messages.ShareGroupDescribeTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        for topic_id, name, numbers in named_topics(call, member.assignment)
    ]
    return filled(
        messages.ShareGroupDescribeMember,
        member,
        subscribed_topic_names=list(member.topic_names),
        assignment=messages.ShareGroupDescribeAssignment(topic_partitions=topics),
    )


NO_OFFSET: Final = -1


async def describe_share_group_offsets(
    call: Call, body: messages.DescribeShareGroupOffsetsRequest
) -> messages.DescribeShareGroupOffsetsResponse:
    """The start offset and lag of partitions, -1 where nobody has read yet. Who asks twice for all that a group has is answered
    once: an answer is a thousand times as long as its question."""
    groups = {(each.group_id, number if each.topics is not None else None): each for number, each in enumerate(body.groups)}
    return messages.DescribeShareGroupOffsetsResponse(
        groups=[await _group(call, each) async for each in in_turns(groups.values())]
    )


async def _group(
    call: Call, asked: messages.DescribeShareGroupOffsetsRequestGroup
) -> messages.DescribeShareGroupOffsetsResponseGroup:
    partitions = None
    if asked.topics is not None:
        named = ((topic.topic_name, number) for topic in asked.topics for number in topic.partitions)
        partitions = [TopicPartition(name, number) async for name, number in in_turns(named)]
    try:
        offsets = await call.broker.groups.share.offsets(asked.group_id, partitions)
    except RequestError as exc:
        return reported(messages.DescribeShareGroupOffsetsResponseGroup, exc, group_id=asked.group_id)
    return messages.DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, topics=await _topics(call, offsets))


async def _topics(call: Call, offsets: Iterable[ShareOffset]) -> list[messages.DescribeShareGroupOffsetsResponseTopic]:
    topics: dict[str, messages.DescribeShareGroupOffsetsResponseTopic] = {}
    async for offset in in_turns(offsets):
        name = offset.topic_partition.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = messages.DescribeShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=offset.topic_id or NO_TOPIC_ID, partitions=[]
            )
        topic.partitions.append(_partition(call, offset))
    return list(topics.values())


def _partition(call: Call, offset: ShareOffset) -> messages.DescribeShareGroupOffsetsResponsePartition:
    return reported(
        messages.DescribeShareGroupOffsetsResponsePartition,
        offset.error,
        partition_index=offset.topic_partition.partition,
        start_offset=offset.summary.start_offset,
        leader_epoch=offset.summary.leader_epoch,
        lag=_lag(call, offset),
    )


def _lag(call: Call, offset: ShareOffset) -> int:
    """Records behind the start offset whose delivery has not ended; -1 where that is not known."""
    summary = offset.summary
    if summary.start_offset == NO_OFFSET or summary.delivery_complete_count < 0:
        return messages.NO_LAG
    try:
        end_offset = call.broker.reader.snapshot(offset.topic_partition).high_watermark
    except RequestError:
        return messages.NO_LAG
    return end_offset - summary.start_offset - summary.delivery_complete_count


async def alter_share_group_offsets(
    call: Call, body: messages.AlterShareGroupOffsetsRequest
) -> messages.AlterShareGroupOffsetsResponse:
    """Let a group without members read from there."""
    asked = [
        (TopicPartition(topic.topic_name, each.partition_index), each.start_offset)
        for topic in body.topics
        for each in topic.partitions
    ]
    errors = iter(await call.broker.groups.share.alter_offsets(body.group_id, asked))
    return messages.AlterShareGroupOffsetsResponse(
        responses=[
            messages.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=_topic_id(call, topic.topic_name),
                partitions=[
                    reported(
                        messages.AlterShareGroupOffsetsResponsePartition, next(errors), partition_index=each.partition_index
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


async def delete_share_group_offsets(
    call: Call, body: messages.DeleteShareGroupOffsetsRequest
) -> messages.DeleteShareGroupOffsetsResponse:
    """Forget where a group without members reads topics."""
    names = [topic.topic_name for topic in body.topics]
    errors = await call.broker.groups.share.delete_offsets(body.group_id, names)
    return messages.DeleteShareGroupOffsetsResponse(
        responses=[
            reported(
                messages.DeleteShareGroupOffsetsResponseTopic,
                error,
                topic_name=name,
                topic_id=_topic_id(call, name) if error is None else NO_TOPIC_ID,
            )
            for name, error in zip(names, errors, strict=True)
        ]
    )


def _topic_id(call: Call, name: str) -> bytes:
    try:
        return call.broker.topics.id_of(name)
    except RequestError:
        return NO_TOPIC_ID
