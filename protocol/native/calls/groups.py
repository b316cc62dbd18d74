"""The calls on groups: `commit_offsets`, `fetch_offsets`, `list_groups`, `describe_groups`, `delete_groups`,
`alter_share_group_offsets`.

Clients of this protocol use groups without members: names under which offsets are kept in the log `__consumer_offsets`. A group
exists from its first commit on. A share group (KIP-932) commits none; the server stores which records it has not finished.
Members join over Kafka's protocol, and `describe_groups` shows them.
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...errors import RequestError
from ...types import NO_OFFSET
from ..kinds import BOOL, ERROR, INT32, INT64, INT64_OR_NONE, TEXT, name, names, note
from ..structs import Partition, PartitionAnswer, RequestMessage, ResponseMessage, Struct, struct, wire
from .transactions import TransactionProducer

GROUP: Final = name(limits.MAX_STRING_CHARS)
"""One that may be there: clients of Kafka's protocol make some with names longer than those of this one."""
GROUPS: Final = names(limits.MAX_STRING_CHARS)


@struct
class CommittedPartition(Partition):
    """An offset to keep for a partition: of the record to be read next. `metadata` is the group's own note."""

    offset: int = wire(INT64)
    metadata: str | None = wire(note(), default=None)


@struct
class CommitOffsetsRequest(RequestMessage):
    """Keep these offsets; with `transaction` they take effect when that commits, and never if it aborts."""

    group: str = wire(name(limits.MAX_GROUP_ID_CHARS))
    partitions: tuple[CommittedPartition, ...] = wire([CommittedPartition])
    transaction: TransactionProducer | None = wire(TransactionProducer, nullable=True, default=None)


@struct
class CommitOffsetsResponse(ResponseMessage):
    """The results of the partitions, in the same order."""

    partitions: tuple[PartitionAnswer, ...] = wire([PartitionAnswer])


@struct
class FetchOffsetsRequest(RequestMessage):
    """The offsets that a group has committed for these partitions; None: for all it has any for.

    With `require_stable` an offset that an open transaction may still change is UNSTABLE_OFFSET_COMMIT (KIP-447).
    """

    group: str = wire(GROUP)
    partitions: tuple[Partition, ...] | None = wire([Partition], nullable=True, default=None)
    require_stable: bool = wire(BOOL, default=False)


@struct
class FetchOffsetsPartitionResponse(PartitionAnswer):
    """The committed offset of one partition; -1 when there is none."""

    offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    metadata: str | None = wire(note(), default=None)


@struct
class FetchOffsetsResponse(ResponseMessage):
    """The requested partitions in the same order, or all partitions for which the group has offsets."""

    partitions: tuple[FetchOffsetsPartitionResponse, ...] = wire([FetchOffsetsPartitionResponse], max_count=limits.INT32_MAX)


@struct
class ListGroupsRequest(RequestMessage):
    """Name every group."""


@struct
class ListGroupsResponse(ResponseMessage):
    """Every group that has offsets, by name."""

    groups: tuple[str, ...] = wire(names(limits.MAX_STRING_CHARS, limits.INT32_MAX))


@struct
class DeleteGroupsRequest(RequestMessage):
    """Groups whose offsets are to go, each succeeds or fails alone."""

    groups: tuple[str, ...] = wire(GROUPS)


@struct
class DeletedGroup(Struct):
    """The result of one group's deletion."""

    group: str = wire(GROUP)
    error: RequestError | None = wire(ERROR, default=None)


@struct
class DeleteGroupsResponse(ResponseMessage):
    """The results of the groups, in the same order."""

    groups: tuple[DeletedGroup, ...] = wire([DeletedGroup])


@struct
class SharedStart(Partition):
    """The offset of the record that is given first; -1: as `share.auto.offset.reset` says."""

    start_offset: int = wire(INT64_OR_NONE)


@struct
class AlterShareGroupOffsetsRequest(RequestMessage):
    """Let a share group without members read from there. What was given to members before counts no more."""

    group: str = wire(GROUP)
    partitions: tuple[SharedStart, ...] = wire([SharedStart])


@struct
class AlterShareGroupOffsetsResponse(ResponseMessage):
    """The results of the partitions, in the same order."""

    partitions: tuple[PartitionAnswer, ...] = wire([PartitionAnswer])


@struct
class DescribeGroupsRequest(RequestMessage):
    """Groups to be described, each succeeds or fails alone."""

    groups: tuple[str, ...] = wire(GROUPS)


@struct
class GroupMember(Struct):
    """A member, and the partitions that it reads; none while the group rebalances, or when it is no consumer."""

    member_id: str = wire(TEXT)
    group_instance_id: str | None = wire(note())
    client_id: str = wire(TEXT)
    client_host: str = wire(TEXT)
    assignment: tuple[Partition, ...] = wire([Partition], default=(), max_count=limits.INT32_MAX)


@struct
class Deliveries(Struct):
    """The number of unfinished records that were delivered `delivery_count` times."""

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
    """A group, or the error of its description."""

    group: str = wire(GROUP)
    error: RequestError | None = wire(ERROR, default=None)
    state: str = wire(TEXT, default="")
    type: str = wire(TEXT, default="")
    protocol_type: str = wire(TEXT, default="")
    protocol: str = wire(TEXT, default="")
    members: tuple[GroupMember, ...] = wire([GroupMember], default=(), max_count=limits.INT32_MAX)
    shared: tuple[SharedPartition, ...] = wire([SharedPartition], default=(), later=True, max_count=limits.INT32_MAX)


@struct
class DescribeGroupsResponse(ResponseMessage):
    """The results of the groups, in the same order."""

    groups: tuple[DescribedGroup, ...] = wire([DescribedGroup])
