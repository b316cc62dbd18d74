"""The call `describe_groups`: who is in a group right now, and who reads what. Members join over Kafka's protocol."""

from __future__ import annotations

from ... import limits
from ...errors import RequestError
from ...types import NO_OFFSET
from ..declaration import wire
from ..kinds import ERROR, INT32, INT64, INT64_OR_NONE, TEXT, note
from ..places import Partition
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
class Deliveries(Struct):
    """How many records that are not done were given so often."""

    delivery_count: int = wire(INT32)
    records: int = wire(INT64)


@struct
class SharedPartition(Partition):
    """A partition as a share group reads it; -1 where something is not known yet."""

    start_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    end_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    lag: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    in_flight: int = wire(INT64, default=0)
    deliveries: tuple[Deliveries, ...] = wire([Deliveries], default=(), max_count=limits.INT32_MAX)


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
    shared: tuple[SharedPartition, ...] = wire([SharedPartition], default=(), max_count=limits.INT32_MAX)


@struct
class DescribeGroupsResponse(ResponseMessage):
    """One entry per group, in the same order."""

    api = "describe_groups"

    groups: tuple[DescribedGroup, ...] = wire([DescribedGroup])
