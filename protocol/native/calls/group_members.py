"""The call `describe_groups`: who is in a group right now, and who reads what. Members join over Kafka's protocol."""

from __future__ import annotations

from ... import limits
from ...errors import RequestError
from ..declaration import wire
from ..kinds import ERROR, TEXT, note
from ..structs import RequestMessage, ResponseMessage, Struct, struct
from .groups import GROUP, GROUPS, OffsetsPartition


@struct
class DescribeGroupsRequest(RequestMessage):
    """Groups to be described, each succeeds or fails alone."""

    api = "describe_groups"

    groups: tuple[str, ...] = wire(GROUPS)


@struct
class GroupMember(Struct):
    """A member, and the partitions that it reads; none while the group rebalances, or when it is no consumer."""

    member_id: str = wire(TEXT)
    group_instance_id: str | None = wire(note())
    client_id: str = wire(TEXT)
    client_host: str = wire(TEXT)
    assignment: tuple[OffsetsPartition, ...] = wire([OffsetsPartition], default=(), max_count=limits.INT32_MAX)


@struct
class DescribedGroup(Struct):
    """One group, or why it cannot be described."""

    group: str = wire(GROUP)
    error: RequestError | None = wire(ERROR, default=None)
    state: str = wire(TEXT, default="")
    type: str = wire(TEXT, default="")
    protocol_type: str = wire(TEXT, default="")
    protocol: str = wire(TEXT, default="")
    members: tuple[GroupMember, ...] = wire([GroupMember], default=(), max_count=limits.INT32_MAX)


@struct
class DescribeGroupsResponse(ResponseMessage):
    """One entry per group, in the same order."""

    api = "describe_groups"

    groups: tuple[DescribedGroup, ...] = wire([DescribedGroup])
