"""The native call `describe_groups`: groups of all kinds, as one kind of answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from ....protocol.coordinator.classic_group_records import decode_assignment
from ....protocol.errors import ErrorCode, RemoteProtocolError, RequestError
from ....protocol.native import messages
from ....protocol.types import NO_OFFSET
from ...broker import (
    Broker,
    ConsumerGroupDescription,
    GroupDescription,
    GroupState,
    ShareGroupDescription,
    SharePartitionView,
    StreamsGroupDescription,
)
from ...loop.procedures import in_turns

CONSUMER: Final = "consumer"
"""Protocol type of the groups whose assignments can be read; also the type of those whose assignments the server makes."""
CLASSIC: Final = "classic"
SHARE: Final = "share"
STREAMS: Final = "streams"
STICKY: Final = "sticky"
"""The only assignor of Streams groups."""


async def describe_groups(broker: Broker, message: messages.DescribeGroupsRequest) -> messages.DescribeGroupsResponse:
    groups = [await _described(broker, group) async for group in in_turns(message.groups)]
    return messages.DescribeGroupsResponse(tuple(groups))


async def _described(broker: Broker, group: str) -> messages.DescribedGroup:
    try:
        if group in broker.groups.share:
            return await _share_group(broker, broker.groups.share.describe(group))
        if group in broker.groups.streams:
            return _streams_group(broker, broker.groups.streams.describe(group))
        found = _consumer_group(broker, group)
        return found or _classic_group(broker.groups.describe(group))
    except RequestError as exc:
        return messages.DescribedGroup(group, exc.as_answer())


def _consumer_group(broker: Broker, group: str) -> messages.DescribedGroup | None:
    """A group whose assignments the server makes; None when it is not one."""
    try:
        told: ConsumerGroupDescription = broker.groups.consumers.describe(group)
    except RequestError as exc:
        if exc.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return messages.DescribedGroup(
        group,
        None,
        told.state.value,
        CONSUMER,
        CONSUMER,
        told.assignor,
        tuple(
            messages.GroupMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                _partitions(broker, each.assignment),
            )
            for each in told.members
        ),
    )


async def _share_group(broker: Broker, told: ShareGroupDescription) -> messages.DescribedGroup:
    """With what it has begun, unless the topic went while others had their turn."""
    shared = []
    async for key in in_turns(broker.share_views.keys(told.group_id)):
        with contextlib.suppress(RequestError):
            shared.append(_shared(broker.share_views.view(key)))
    return messages.DescribedGroup(
        told.group_id,
        None,
        told.state.value,
        SHARE,
        SHARE,
        told.assignor,
        tuple(
            messages.GroupMember(each.member_id, None, each.client_id, each.client_host, _partitions(broker, each.assignment))
            for each in told.members
        ),
        tuple(shared),
    )


def _streams_group(broker: Broker, told: StreamsGroupDescription) -> messages.DescribedGroup:
    members = []
    for each in told.members:
        places = sorted(place for place in told.read_by(each) if broker.topics.has_partition(place))
        read = tuple(messages.Partition(*place) for place in places)
        members.append(messages.GroupMember(each.member_id, each.instance_id, each.client_id, each.client_host, read))
    return messages.DescribedGroup(told.group_id, None, told.state.value, STREAMS, STREAMS, STICKY, tuple(members))


def _shared(view: SharePartitionView) -> messages.SharedPartition:
    start_offset, end_offset, lag = (
        NO_OFFSET if value is None else value for value in (view.start_offset, view.end_offset, view.lag)
    )
    return messages.SharedPartition(
        *view.topic_partition,
        start_offset,
        end_offset,
        lag,
        view.acquired_count,
        tuple(messages.Deliveries(*each) for each in view.deliveries.items()),
    )


def _partitions(broker: Broker, assignment: Iterable[tuple[bytes, int]]) -> tuple[messages.Partition, ...]:
    return tuple(messages.Partition(*each) for each in broker.topics.named_partitions(assignment))


def _classic_group(told: GroupDescription) -> messages.DescribedGroup:
    if told.state is GroupState.DEAD:
        raise RequestError(
            f"there is no group {told.group_id!r}; `triolog groups list` shows those there are", ErrorCode.GROUP_ID_NOT_FOUND
        )
    return messages.DescribedGroup(
        told.group_id,
        None,
        told.state.value,
        CLASSIC,
        told.protocol_type,
        told.protocol,
        tuple(
            messages.GroupMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                _read(each.assignment) if told.protocol_type == CONSUMER else (),
            )
            for each in told.members
        ),
    )


def _read(assignment: bytes) -> tuple[messages.Partition, ...]:
    """Return the partitions that the leader has assigned to a member; empty if the assignment is not in the consumers' common
    format."""
    try:
        assigned = decode_assignment(assignment).assigned_partitions
    except RemoteProtocolError:
        return ()
    named = [messages.Partition(each.topic, partition) for each in assigned for partition in each.partitions]
    return tuple(sorted(named, key=lambda each: (each.topic, each.partition)))
