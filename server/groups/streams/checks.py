"""Checks of heartbeats that do not depend on the Streams group (KIP-1071; Kafka: throwIfStreamsGroupHeartbeatRequestIsInvalid).
They refuse parts of KIP-1071 that Kafka 4.3 refuses too: static members, offsets of tasks, warm-up tasks, patterns for source
topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....protocol.errors import InvalidRequestError
from ..assigned.groups import check_names
from ..assigned.values import LEAVE_STATIC_EPOCH, NO_TIMEOUT
from .configured import ConfiguredSubtopology
from .tasks import TaskIds
from .topology import check_topology
from .values import StreamsHeartbeat


def check_heartbeat(request: StreamsHeartbeat) -> None:
    """Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    _check_supported(request)
    check_names(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id)
    if request.is_joining:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    owned = request.active, request.standby, request.warmup
    if any(each is not None for each in owned) and any(each is None for each in owned):
        raise InvalidRequestError("If one task-type is non-null, all must be non-null.")
    if not request.is_joining and request.topology is not None:
        raise InvalidRequestError("Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsHeartbeat) -> None:
    for is_there, refusal in (
        (request.instance_id is not None, "Static membership is not yet supported."),
        (request.has_task_offsets, "TaskOffsets are not supported yet."),
        (request.has_task_end_offsets, "TaskEndOffsets are not supported yet."),
        (bool(request.warmup), "WarmupTasks are not supported yet."),
    ):
        if is_there:
            raise InvalidRequestError(refusal)
    parts = request.topology.subtopologies if request.topology is not None else ()
    if any(part.source_topic_regex for part in parts):
        raise InvalidRequestError("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    for name, owned in (("Active", request.active), ("Standby", request.standby), ("Warmup", request.warmup)):
        if owned is None or owned:
            raise InvalidRequestError(f"{name}Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidRequestError("Topology must be non-null when (re-)joining.")
    check_topology(request.topology)


def check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology], tasks: TaskIds | None) -> None:
    """Raises INVALID_REQUEST for tasks that do not exist."""
    for task in sorted(tasks or ()):
        part = subtopologies.get(task.subtopology_id)
        if part is None:
            raise InvalidRequestError(f"Subtopology {task.subtopology_id} does not exist in the topology.")
        if not 0 <= task.partition < part.task_count:
            raise InvalidRequestError(
                f"Task {task.partition} for subtopology {task.subtopology_id} is invalid. Number of tasks for this "
                f"subtopology: {part.task_count}"
            )
