"""The administrators' view of groups, and the deletion of groups: DescribeGroups, ListGroups, DeleteGroups. Source: KIP-430,
KIP-518 (states), KIP-848 (types), KIP-1043 (an unknown group is an error of its own)."""

from __future__ import annotations

from typing import Final

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.kafka.authorization import ResourceType
from ....protocol.kafka.messages.groups import (
    DeleteGroupsDeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsDescribedGroup,
    DescribeGroupsDescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ....protocol.limits import INT32_MIN
from ...broker import GroupDescription, GroupState
from ...loop.procedures import in_turns
from .door import Call

FIRST_WITH_UNKNOWN_GROUP: Final = 6


async def describe_groups(call: Call, body: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """State and members, of each group once; one that nobody knows is Dead, and from version 6 on that is an error."""
    groups = in_turns(dict.fromkeys(body.groups))
    return DescribeGroupsResponse(
        groups=[_described(call, group, with_operations=body.include_authorized_operations) async for group in groups]
    )


def _described(call: Call, group: str, *, with_operations: bool) -> DescribeGroupsDescribedGroup:
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
    return DescribeGroupsDescribedGroup(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        group_id=group,
        group_state=description.state.value if is_shown else "",
        protocol_type=description.protocol_type,
        protocol_data=description.protocol,
        members=[
            DescribeGroupsDescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in description.members
        ],
        authorized_operations=call.authorized_operations(ResourceType.GROUP, group)
        if with_operations and error is None
        else INT32_MIN,
    )


async def list_groups(call: Call, body: ListGroupsRequest) -> ListGroupsResponse:
    """Every group, or those in some states and of some types."""
    listings = await call.broker.in_steps(call.broker.groups.listing_steps(body.states_filter, body.types_filter))
    return ListGroupsResponse(
        groups=[
            ListGroupsListedGroup(
                group_id=listing.group_id,
                protocol_type=listing.protocol_type,
                group_state=listing.state.value,
                group_type=listing.group_type,
            )
            async for listing in in_turns(listings)
        ]
    )


async def delete_groups(call: Call, body: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Forget groups without members, and their offsets."""
    return DeleteGroupsResponse(results=[await _deleted(call, group) async for group in in_turns(body.groups_names)])


async def _deleted(call: Call, group: str) -> DeleteGroupsDeletableGroupResult:
    try:
        if not group:
            raise RequestError("a group without a name has nothing here", ErrorCode.GROUP_ID_NOT_FOUND)
        await call.broker.groups.delete(group)
    except RequestError as exc:
        return DeleteGroupsDeletableGroupResult(group_id=group, error_code=exc.code, error_message=exc.message)
    return DeleteGroupsDeletableGroupResult(group_id=group)
