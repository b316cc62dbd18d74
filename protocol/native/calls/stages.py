"""The calls of exactly-once writers: `stage`, `commit_stage`, `abort_stage`, `last_commit`.

A writer gives its record batches to the server, which keeps them where no reader sees them, and later commits all of one
version of an application at once. The application says which tasks count; a commit of a version that is committed already
changes nothing, so whoever lost the answer asks again.
"""

from __future__ import annotations

from typing import Final

from ... import limits
from ...types import NO_OFFSET, Bytes
from ..kinds import BINARY, BOOL, INT64, INT64_OR_NONE, UINT32, integer, name, names
from ..structs import Partition, PartitionAnswer, RequestMessage, ResponseMessage, Struct, struct, wire

NO_VERSION: Final = -1
"""Of an application that has committed nothing."""

APPLICATION: Final = name(limits.MAX_APPLICATION_CHARS)
TASK: Final = name(limits.MAX_TASK_CHARS)
TASKS: Final = names(limits.MAX_TASK_CHARS, limits.MAX_TASKS_PER_COMMIT)


@struct
class StagePartition(Partition):
    """Whole record batches for one partition, without a producer: the commit gives them one."""

    records: Bytes = wire(BINARY)


@struct
class StageRequest(RequestMessage):
    """Keep batches of one task of a version aside, behind what the task has staged for the same partitions before."""

    application: str = wire(APPLICATION)
    version: int = wire(INT64)
    task: str = wire(TASK)
    partitions: tuple[StagePartition, ...] = wire([StagePartition])


@struct
class StagePartitionResponse(PartitionAnswer):
    """All that the task has staged for the partition so far: its size in bytes and its CRC-32C, for `commit_stage`."""

    size_bytes: int = wire(INT64, default=0, later=True)
    crc: int = wire(UINT32, default=0, later=True)


@struct
class StageResponse(ResponseMessage):
    """The results of the requested partitions, in the same order."""

    partitions: tuple[StagePartitionResponse, ...] = wire([StagePartitionResponse])


@struct
class StagedPartition(Partition):
    """The bytes that a task has staged for one partition, from the last response to its `stage`."""

    size_bytes: int = wire(integer(1, limits.INT64_MAX))
    crc: int = wire(UINT32)


@struct
class StagedTask(Struct):
    """A task whose batches count."""

    task: str = wire(TASK)
    partitions: tuple[StagedPartition, ...] = wire([StagedPartition])


@struct
class CommitStageRequest(RequestMessage):
    """Append what these tasks have staged to its partitions, unless the version is committed already. Of a partition the
    records come in the order of the tasks. What other tasks have staged for the version is thrown away."""

    application: str = wire(APPLICATION)
    version: int = wire(INT64)
    tasks: tuple[StagedTask, ...] = wire([StagedTask], max_count=limits.MAX_TASKS_PER_COMMIT)


@struct
class StageCommittedPartition(Partition):
    """The offset of the first record committed to a partition, and the one after the last. Records of others may be
    between them."""

    base_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)
    end_offset: int = wire(INT64_OR_NONE, default=NO_OFFSET)


@struct
class CommitStageResponse(ResponseMessage):
    """The version is committed: by this call, or it was before. Partitions by name; empty for a version below the last."""

    committed: bool = wire(BOOL)
    partitions: tuple[StageCommittedPartition, ...] = wire([StageCommittedPartition], default=())


@struct
class AbortStageRequest(RequestMessage):
    """Throw away what these tasks of a version have staged; None: what all of them have. Never undoes a commit."""

    application: str = wire(APPLICATION)
    version: int = wire(INT64)
    tasks: tuple[str, ...] | None = wire(TASKS, nullable=True, default=None)


@struct
class AbortStageResponse(ResponseMessage):
    """It is gone."""


@struct
class LastCommitRequest(RequestMessage):
    """Requests the version of an application that was committed last."""

    application: str = wire(APPLICATION)


@struct
class LastCommitResponse(ResponseMessage):
    """The version, -1 when there was none."""

    version: int = wire(INT64_OR_NONE, default=NO_VERSION)
