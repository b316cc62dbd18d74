"""Consumer groups (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe. What they mean is in `server.groups.consumer`.
Source: KIP-848, KIP-1082 (the client makes the member id), KIP-1099 (the kind of each member).

`described_groups` makes the responses that describe groups whose assignments the server computes, for every kind of group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar

from ....protocol.errors import RequestError
from ....protocol.kafka.authorization import ResourceType
from ....protocol.kafka.messages import groups as messages
from ...broker import AssignedGroupDescription, AssignedMemberDescription, ConsumerHeartbeat, by_first
from ...loop.procedures import Procedure, in_turns
from .door import Call, check_subscription, filled, reported

FIRST_WITH_MEMBER_ID: Final = 1
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
"""The protocol that a member uses."""


def consumer_group_heartbeat(
    call: Call, body: messages.ConsumerGroupHeartbeatRequest
) -> Procedure[messages.ConsumerGroupHeartbeatResponse]:
    """Join, stay, or leave; the answer has what the member may read from now on, if that has changed."""
    news = body.subscribed_topic_names, body.subscribed_topic_regex, body.topic_partitions
    heartbeat = _heartbeat(call, body)
    answer = call.broker.groups.consumers.try_heartbeat(heartbeat) if news == (None, None, None) else None
    if body.subscribed_topic_regex:
        check_subscription()
    if answer is None:
        answer = yield partial(call.broker.groups.consumers.heartbeat, heartbeat)
    assignment = None
    if answer.assignment is not None:
        topics = [
            messages.ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_first(answer.assignment).items()
        ]
        assignment = messages.ConsumerGroupHeartbeatAssignment(topic_partitions=topics)
    return messages.ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def _heartbeat(call: Call, body: messages.ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return ConsumerHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topic_names=None if names is None else tuple(names),
        topic_regex=body.subscribed_topic_regex,
        server_assignor=body.server_assignor,
        owned=None if owned is None else frozenset((each.topic_id, number) for each in owned for number in each.partitions),
        client_id=call.session.client_id,
        client_host=f"/{call.session.transport.host}",
        makes_member_id=call.version >= FIRST_WITH_MEMBER_ID,
    )


async def consumer_group_describe(
    call: Call, body: messages.ConsumerGroupDescribeRequest
) -> messages.ConsumerGroupDescribeResponse:
    """State, epochs, members and their current and target assignments."""
    describe = call.broker.groups.consumers.describe
    return messages.ConsumerGroupDescribeResponse(
        groups=await described_groups(call, body, describe, _shown, messages.ConsumerGroupDescribedGroup)
    )


def _shown(call: Call, description: AssignedGroupDescription) -> messages.ConsumerGroupDescribedGroup:
    return filled(
        messages.ConsumerGroupDescribedGroup,
        description,
        group_state=description.state.value,
        assignor_name=description.assignor,
        members=[_member(call, each) for each in description.members],
    )


def _member(call: Call, member: AssignedMemberDescription) -> messages.ConsumerGroupDescribeMember:
    return filled(
        messages.ConsumerGroupDescribeMember,
        member,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        assignment=_assignment(call, member.assignment),
        target_assignment=_assignment(call, member.target_assignment),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(call: Call, partitions: Partitions) -> messages.ConsumerGroupDescribeAssignment:
    topics = [
        messages.ConsumerGroupDescribeTopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
        for topic_id, name, numbers in named_topics(call, partitions)
    ]
    return messages.ConsumerGroupDescribeAssignment(topic_partitions=topics)


D = TypeVar("D")


class DescribeRequest(Protocol):
    """ConsumerGroupDescribe, ShareGroupDescribe, StreamsGroupDescribe."""

    group_ids: list[str]
    include_authorized_operations: bool


class DescribedGroup(Protocol):
    """A group in the answer."""

    authorized_operations: int


G = TypeVar("G", bound=DescribedGroup)


async def described_groups(
    call: Call, body: DescribeRequest, describe: Callable[[str], D], shown: Callable[[Call, D], G], kind: type[G]
) -> list[G]:
    """Describe the requested groups. `describe` finds a group or raises RequestError, `shown` converts it for the response. A
    group named twice appears once."""
    answers = []
    async for group in in_turns(dict.fromkeys(body.group_ids)):
        try:
            answer = shown(call, describe(group))
        except RequestError as exc:
            answer = reported(kind, exc, group_id=group)
        else:
            if body.include_authorized_operations:
                answer.authorized_operations = call.authorized_operations(ResourceType.GROUP, group)
        answers.append(answer)
    return answers


Partitions = Iterable[tuple[bytes, int]]
"""(topic id, number)."""


def named_topics(call: Call, partitions: Partitions) -> Iterator[tuple[bytes, str, list[int]]]:
    """(topic id, name, partition numbers) for each topic, without deleted ones, which have no name."""
    for topic_id, numbers in by_first(partitions).items():
        try:
            yield topic_id, call.broker.topics.named(topic_id), numbers
        except RequestError:
            continue
