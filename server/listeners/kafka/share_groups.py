"""Share groups (KIP-932): ShareGroupHeartbeat and ShareGroupDescribe. What they mean is in `server.groups.share`."""

from __future__ import annotations

from functools import partial

from ....protocol.errors import RequestError
from ....protocol.kafka.messages.share_groups import (
    ShareGroupDescribeAssignment,
    ShareGroupDescribedGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareTopicPartitions,
)
from ...broker import ShareGroupDescription, ShareHeartbeat, ShareHeartbeatAnswer, ShareMemberDescription
from ...loop.procedures import Procedure
from .described_groups import by_topic, described_groups, named_topics
from .door import Call


def share_group_heartbeat(call: Call, body: ShareGroupHeartbeatRequest) -> Procedure[ShareGroupHeartbeatResponse]:
    """Join, stay, or leave; the answer has what the member may read from now on, if that has changed."""
    members, heartbeat = call.broker.groups.share, _heartbeat(call, body)
    try:
        answer = members.heartbeat_now(heartbeat) if body.subscribed_topic_names is None else None
        if answer is None:
            answer = yield partial(members.heartbeat, heartbeat)
    except RequestError as exc:
        return ShareGroupHeartbeatResponse(
            error_code=exc.code, error_message=exc.message, member_epoch=0, heartbeat_interval_ms=0
        )
    return _told(answer)


def _heartbeat(call: Call, body: ShareGroupHeartbeatRequest) -> ShareHeartbeat:
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


def _told(answer: ShareHeartbeatAnswer) -> ShareGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        topics = [
            ShareTopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_topic(answer.assignment)
        ]
        assignment = ShareGroupHeartbeatAssignment(topic_partitions=topics)
    return ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


async def share_group_describe(call: Call, body: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """State, epochs, members and what they read."""
    describe = call.broker.groups.share.describe
    return ShareGroupDescribeResponse(groups=await described_groups(call, body, describe, _shown, ShareGroupDescribedGroup))


def _shown(call: Call, description: ShareGroupDescription) -> ShareGroupDescribedGroup:
    return ShareGroupDescribedGroup(
        group_id=description.group_id,
        group_state=description.state.value,
        group_epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
        assignor_name=description.assignor,
        members=[_member(call, each) for each in description.members],
    )


def _member(call: Call, member: ShareMemberDescription) -> ShareGroupDescribeMember:
    topics = [
        ShareGroupDescribeTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        for topic_id, name, numbers in named_topics(call, member.assignment)
    ]
    return ShareGroupDescribeMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=ShareGroupDescribeAssignment(topic_partitions=topics),
    )
