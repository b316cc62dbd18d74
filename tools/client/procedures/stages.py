"""Staged records and segment files as generators: requests out, answers in, as in `procedures`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....protocol.errors import RequestError
from ....protocol.native.messages import (
    NO_VERSION,
    AbortStageRequest,
    CommitStageRequest,
    CommitStageResponse,
    LastCommitRequest,
    LeasePartition,
    LeaseSegmentsRequest,
    LeaseSegmentsResponse,
    SplitPoint,
    SplitPointsPartition,
    SplitPointsRequest,
    StagedPartition,
    StagedTask,
    StagePartition,
    StageRequest,
)
from ....protocol.types import Bytes, TopicPartition
from .topics import Procedure, checked


def stage(
    application: str, version: int, task: str, records: Mapping[TopicPartition, Bytes]
) -> Procedure[tuple[StagedPartition, ...]]:
    """Keep record batches aside; answers what to commit of these partitions. Raises the first error, after all were tried."""
    parts = tuple(StagePartition(*partition, batches) for partition, batches in records.items())
    response = yield StageRequest(application, version, task, parts)
    return tuple(
        StagedPartition(each.topic, each.partition, each.size_bytes, each.crc) for each in checked(response.partitions)
    )


def commit_stage(
    application: str, version: int, tasks: Mapping[str, Sequence[StagedPartition]]
) -> Procedure[CommitStageResponse]:
    """Append what the tasks have staged, in this order, unless the version is committed already."""
    named = tuple(StagedTask(task, tuple(partitions)) for task, partitions in tasks.items())
    response = yield CommitStageRequest(application, version, named)
    return response  # type: ignore[no-any-return]


def abort_stage(application: str, version: int, tasks: Iterable[str] | None) -> Procedure[None]:
    """Throw away what these tasks, None for all, have staged."""
    yield AbortStageRequest(application, version, None if tasks is None else tuple(tasks))


def last_commit(application: str) -> Procedure[int | None]:
    """The last version that was committed."""
    response = yield LastCommitRequest(application)
    return None if response.version == NO_VERSION else int(response.version)


def split_points(
    ranges: Mapping[TopicPartition, tuple[int, int]], target_bytes: int
) -> Procedure[dict[TopicPartition, tuple[SplitPoint, ...]]]:
    """Cut ranges of offsets, their ends exclusive, into pieces of about so many bytes."""
    asked = tuple(SplitPointsPartition(*partition, start, end, target_bytes) for partition, (start, end) in ranges.items())
    response = yield SplitPointsRequest(asked)
    return {TopicPartition(each.topic, each.partition): each.points for each in checked(response.partitions)}


def lease_segments(
    partitions: Iterable[TopicPartition], lease_ms: int, lease_id: str | None
) -> Procedure[LeaseSegmentsResponse]:
    """Keep segment files for some time, or those of a lease for longer; 0 ms end it. Raises the first error of a partition:
    then a new lease is ended at once, because nobody learns its name."""
    response = yield LeaseSegmentsRequest(tuple(LeasePartition(*partition) for partition in partitions), lease_ms, lease_id)
    try:
        checked(response.partitions)
    except RequestError:
        if lease_id is None:
            yield LeaseSegmentsRequest((), 0, response.lease_id)
        raise
    return response  # type: ignore[no-any-return]
