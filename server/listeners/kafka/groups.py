"""The classic groups' APIs: join, sync, heartbeat, leave. What they mean is in `server.groups`. Source: KIP-62, KIP-345,
KIP-394, KIP-559, KIP-814.

A join waits until the others have joined, a sync until the leader has brought the assignments: the connection is parked
meanwhile. When it is given up the member stays one until its session ends.

The administrators' view of groups, and the deletion of groups: DescribeGroups, ListGroups, DeleteGroups. Source: KIP-430,
KIP-518 (states), KIP-848 (types), KIP-1043 (an unknown group is an error of its own).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import ResourceType
from ....protocol.kafka.messages import groups as messages
from ....protocol.limits import INT32_MIN
from ...broker import GroupDescription, GroupState, Heartbeat, Join, JoinAnswer, LeavingMember, Sync, SyncAnswer
from ...loop.procedures import in_turns
from .door import Call, filled, reported
from .session import KEPT_PARTITION_BYTES

FIRST_WITH_REQUIRED_MEMBER_ID: Final = 4
FIRST_WITH_PROTOCOL_TYPE: Final = 7
FIRST_WITH_SKIPPED_ASSIGNMENT: Final = 9
FIRST_LEAVE_OF_SEVERAL: Final = 3
FIRST_SYNC_WITH_PROTOCOL: Final = 5
"""From here on a client has to say which protocol it took for chosen."""
LONGEST_WAIT_S: Final = 3600.0
"""Above every rebalance timeout that anybody uses; the group answers before."""


def _kept_bytes(parts: Iterable[tuple[str, bytes]]) -> int:
    """Return the size of the memory that a waiting request keeps: names with the content that belongs to each."""
    return sum(KEPT_PARTITION_BYTES + len(name) + len(content) for name, content in parts)


async def join_group(call: Call, body: messages.JoinGroupRequest) -> messages.JoinGroupResponse:
    """Become a member of the next generation."""
    request = Join(
        group_id=body.group_id,
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        client_id=call.session.client_id,
        client_host=f"/{call.session.transport.host}",
        requires_known_member_id=call.version >= FIRST_WITH_REQUIRED_MEMBER_ID,
        supports_skipping_assignment=call.version >= FIRST_WITH_SKIPPED_ASSIGNMENT,
        reason=body.reason,
    )
    answer = JoinAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id=body.member_id)
    try:
        with call.session.parked(LONGEST_WAIT_S, _kept_bytes(request.protocols)):
            answer = await call.broker.groups.join(request)
    except RequestError as exc:
        answer = JoinAnswer(error=exc.code, member_id=body.member_id)
    nothing = None if call.version >= FIRST_WITH_PROTOCOL_TYPE else ""
    return messages.JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=nothing if answer.protocol is None else answer.protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            messages.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in answer.members
        ],
    )


async def sync_group(call: Call, body: messages.SyncGroupRequest) -> messages.SyncGroupResponse:
    """Wait for the leader's assignment and answer this member's part; the leader's own request has it."""
    request = Sync(
        group_id=body.group_id,
        generation=body.generation_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        protocol_type=body.protocol_type,
        protocol=body.protocol_name,
        assignments=tuple((each.member_id, each.assignment) for each in body.assignments),
    )
    if call.version >= FIRST_SYNC_WITH_PROTOCOL and None in (body.protocol_type, body.protocol_name):
        raise RequestError("protocol type and name must both be given", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    answer = SyncAnswer(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with call.session.parked(LONGEST_WAIT_S, _kept_bytes(request.assignments)):
        answer = await call.broker.groups.sync(request)
    return messages.SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


def heartbeat(call: Call, body: messages.HeartbeatRequest) -> messages.HeartbeatResponse:
    """Keep a member's session alive."""
    asked = Heartbeat(
        group_id=body.group_id,
        generation=body.generation_id,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
    )
    return messages.HeartbeatResponse(error_code=call.broker.groups.heartbeat(asked))


async def leave_group(call: Call, body: messages.LeaveGroupRequest) -> messages.LeaveGroupResponse:
    """Leave a group; from version 3 on several members at once, each with its own error."""
    is_several = call.version >= FIRST_LEAVE_OF_SEVERAL
    leaving = [LeavingMember(body.member_id)]
    if is_several:
        leaving = [LeavingMember(each.member_id, each.group_instance_id, each.reason) for each in body.members]
    answer = await call.broker.groups.leave(body.group_id, leaving)
    code = answer.error
    if not is_several and not code and answer.members:
        code = answer.members[0].error
    return messages.LeaveGroupResponse(
        error_code=code,
        members=[filled(messages.LeaveGroupMemberResponse, each, error_code=each.error) for each in answer.members],
    )


FIRST_WITH_UNKNOWN_GROUP: Final = 6


async def describe_groups(call: Call, body: messages.DescribeGroupsRequest) -> messages.DescribeGroupsResponse:
    """State and members, of each group once; one that nobody knows is Dead, and from version 6 on that is an error."""
    groups = in_turns(dict.fromkeys(body.groups))
    return messages.DescribeGroupsResponse(
        groups=[_described(call, group, with_operations=body.include_authorized_operations) async for group in groups]
    )


def _described(call: Call, group: str, *, with_operations: bool) -> messages.DescribeGroupsDescribedGroup:
    error: RequestError | None = None
    description = GroupDescription(group_id=group)
    try:
        if group:  # clients may have committed for an empty name before KIP-289: here it has nothing
            description = call.broker.groups.describe(group)
        if description.state is GroupState.DEAD and call.version >= FIRST_WITH_UNKNOWN_GROUP:
            why = "is not a classic group" if call.broker.groups.is_managed(group) else "not found"
            raise RequestError(f"Group {group} {why}.", ErrorCode.GROUP_ID_NOT_FOUND)
    except RequestError as exc:
        error = exc
    is_shown = error is None or error.code is ErrorCode.GROUP_ID_NOT_FOUND
    members = [
        filled(
            messages.DescribeGroupsDescribedGroupMember,
            member,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in description.members
    ]
    return reported(
        messages.DescribeGroupsDescribedGroup,
        error,
        group_id=group,
        group_state=description.state.value if is_shown else "",
        protocol_type=description.protocol_type,
        protocol_data=description.protocol,
        members=members,
        authorized_operations=call.authorized_operations(ResourceType.GROUP, group)
        if with_operations and error is None
        else INT32_MIN,
    )


async def list_groups(call: Call, body: messages.ListGroupsRequest) -> messages.ListGroupsResponse:
    """Every group, or those in some states and of some types."""
    listings = await call.broker.in_steps(call.broker.groups.listing_steps(body.states_filter, body.types_filter))
    return messages.ListGroupsResponse(
        groups=[
            filled(messages.ListGroupsListedGroup, listing, group_state=listing.state.value)
            async for listing in in_turns(listings)
        ]
    )


async def delete_groups(call: Call, body: messages.DeleteGroupsRequest) -> messages.DeleteGroupsResponse:
    """Forget groups without members, and their offsets."""
    return messages.DeleteGroupsResponse(results=[await _deleted(call, group) async for group in in_turns(body.groups_names)])


async def _deleted(call: Call, group: str) -> messages.DeleteGroupsDeletableGroupResult:
    try:
        if not group:
            raise RequestError("a group needs a name here", ErrorCode.GROUP_ID_NOT_FOUND)
        await call.broker.groups.delete(group)
    except RequestError as exc:
        return reported(messages.DeleteGroupsDeletableGroupResult, exc, group_id=group)
    return messages.DeleteGroupsDeletableGroupResult(group_id=group)
