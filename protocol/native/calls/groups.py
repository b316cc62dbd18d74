"""The calls on groups without members: `commit_offsets`, `fetch_offsets`, `list_groups`, `delete_groups`,
`alter_share_group_offsets`.

A group is a name under which offsets are kept, in the log `__consumer_offsets`; it exists from its first commit on. A share
group (KIP-932) commits none: what it has not done is kept.
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...errors import RequestError
from ...types import NO_OFFSET
from ..declaration import wire
from ..kinds import BOOL, ERROR, INT64, INT64_OR_NONE, name, names, note
from ..places import Partition, PartitionAnswer
from ..structs import RequestMessage, ResponseMessage, Struct, struct
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

    api = "commit_offsets"

    group: str = wire(name(limits.MAX_GROUP_ID_CHARS))
    partitions: tuple[CommittedPartition, ...] = wire([CommittedPartition])
    transaction: TransactionProducer | None = wire(TransactionProducer, nullable=True, default=None)


@struct
class CommitOffsetsPartitionResponse(PartitionAnswer):
    """What became of one partition's offset."""


@struct
class CommitOffsetsResponse(ResponseMessage):
    """One entry per partition, in the same order."""

    api = "commit_offsets"

    partitions: tuple[CommitOffsetsPartitionResponse, ...] = wire([CommitOffsetsPartitionResponse])


@struct
class OffsetsPartition(Partition):
    """A partition whose committed offset is asked for."""


@struct
class FetchOffsetsRequest(RequestMessage):
    """The offsets that a group has committed for these partitions; None: for all it has any for.

    With `require_stable` an offset that an open transaction may still change is UNSTABLE_OFFSET_COMMIT (KIP-447).
    """

    api = "fetch_offsets"

    group: str = wire(GROUP)
    partitions: tuple[OffsetsPartition, ...] | None = wire([OffsetsPartition], nullable=True, default=None)
    require_stable: bool = wire(BOOL, default=False)


@struct
class FetchOffsetsPartitionResponse(PartitionAnswer):
    """The committed offset of one partition; -1 when there is none."""

    offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    metadata: str | None = wire(note(), default=None)


@struct
class FetchOffsetsResponse(ResponseMessage):
    """One entry per partition asked for in the same order, or for all that the group has offsets for."""

    api = "fetch_offsets"

    partitions: tuple[FetchOffsetsPartitionResponse, ...] = wire([FetchOffsetsPartitionResponse], max_count=limits.INT32_MAX)


@struct
class ListGroupsRequest(RequestMessage):
    """Name every group."""

    api = "list_groups"


@struct
class ListGroupsResponse(ResponseMessage):
    """Every group that has offsets, by name."""

    api = "list_groups"

    groups: tuple[str, ...] = wire(names(limits.MAX_STRING_CHARS, limits.INT32_MAX))


@struct
class DeleteGroupsRequest(RequestMessage):
    """Groups whose offsets are to go, each succeeds or fails alone."""

    api = "delete_groups"

    groups: tuple[str, ...] = wire(GROUPS)


@struct
class DeletedGroup(Struct):
    """What became of one group."""

    group: str = wire(GROUP)
    error: RequestError | None = wire(ERROR, default=None)


@struct
class DeleteGroupsResponse(ResponseMessage):
    """One entry per group, in the same order."""

    api = "delete_groups"

    groups: tuple[DeletedGroup, ...] = wire([DeletedGroup])


@struct
class SharedStart(Partition):
    """The offset of the record that is given first; -1: as `share.auto.offset.reset` says."""

    start_offset: int = wire(INT64_OR_NONE)


@struct
class AlterShareGroupOffsetsRequest(RequestMessage):
    """Let a share group without members read from there. What was given to members before counts no more."""

    api = "alter_share_group_offsets"

    group: str = wire(GROUP)
    partitions: tuple[SharedStart, ...] = wire([SharedStart])


@struct
class AlterShareGroupOffsetsPartitionResponse(PartitionAnswer):
    """What became of one partition's start."""


@struct
class AlterShareGroupOffsetsResponse(ResponseMessage):
    """One entry per partition, in the same order."""

    api = "alter_share_group_offsets"

    partitions: tuple[AlterShareGroupOffsetsPartitionResponse, ...] = wire([AlterShareGroupOffsetsPartitionResponse])
