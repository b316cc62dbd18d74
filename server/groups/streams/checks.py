"""What a heartbeat has to say, whatever Streams group it is for, and what a member's request has to agree with (KIP-1071;
Kafka: throwIfStreamsGroupHeartbeatRequestIsInvalid, StreamsGroup.validateOffsetCommit, validateOffsetFetch). What KIP-1071 has
and Kafka 4.3 has not is refused as there: static members, offsets of tasks, warm-up tasks, patterns for source topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnsupportedVersionError
from ....protocol.types import TopicPartition
from ..consumer_values import LEAVE_STATIC_EPOCH, NO_TIMEOUT
from ..values import FIRST_COMMIT_WITH_EPOCHS
from .configured import ConfiguredSubtopology
from .group import StreamsGroup
from .member import StreamsMember
from .tasks import TaskId, TaskIds
from .topology import check_topology
from .values import StreamsHeartbeat

NO_EPOCH = -1


def check_heartbeat(request: StreamsHeartbeat) -> None:
    """Raises INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    _check_supported(request)
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
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
    """Raises INVALID_REQUEST for tasks that are none."""
    for task in sorted(tasks or ()):
        part = subtopologies.get(task.subtopology_id)
        if part is None:
            raise InvalidRequestError(f"Subtopology {task.subtopology_id} does not exist in the topology.")
        if not 0 <= task.partition < part.task_count:
            raise InvalidRequestError(
                f"Task {task.partition} for subtopology {task.subtopology_id} is invalid. Number of tasks for this "
                f"subtopology: {part.task_count}"
            )


def unknown_group(group_id: str) -> RequestError:
    return RequestError(f"Group {group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)


def other_kind(group_id: str) -> RequestError:
    """A group of that name is there, of another kind."""
    return RequestError(f"Group {group_id} is not a streams group.", ErrorCode.GROUP_ID_NOT_FOUND)


def unknown_member(group_id: str, member_id: str | None) -> RequestError:
    return RequestError(f"Member {member_id} is not a member of group {group_id}.", ErrorCode.UNKNOWN_MEMBER_ID)


# ---- offsets -----------------------------------------------------------------------------------------------------------------


def check_commit(
    group: StreamsGroup,
    member_id: str,
    member_epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    is_transactional: bool,
    version: int | None = None,
) -> None:
    """Whether offsets may be committed: by a member at its epoch, by one at an epoch since which it has had the tasks that read
    the partitions, by anybody while there are no members, and in a transaction by who does not say that he is a member.
    `version`: of OffsetCommit, None for any other way. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION."""
    if member_epoch < 0 and not group.members:
        return
    if is_transactional and member_epoch == NO_EPOCH and not member_id:
        return
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id)
    if not is_transactional and version is not None and version < FIRST_COMMIT_WITH_EPOCHS:
        raise UnsupportedVersionError(
            f"OffsetCommit version {FIRST_COMMIT_WITH_EPOCHS} or above must be used by members using the streams group protocol"
        )
    if member_epoch > member.epoch:
        raise _stale(f"Received member epoch {member_epoch} is newer than current member epoch {member.epoch}.")
    if member_epoch < member.epoch:
        for topic_partition in partitions:
            _check_task(group, member, member_epoch, topic_partition)


def _check_task(group: StreamsGroup, member: StreamsMember, member_epoch: int, topic_partition: TopicPartition) -> None:
    reader = None if group.topology is None else group.topology.readers.get(topic_partition.topic)
    if reader is None:
        raise _stale(f"Topic {topic_partition.topic} is not in the topology.")
    task = TaskId(reader, topic_partition.partition)
    since = member.assigned.active.get(task, member.revoking.active.get(task))
    if since is None:
        raise _stale(f"Task {task} is not assigned or pending revocation for member.")
    if member_epoch < since:
        raise _stale(f"Received member epoch {member_epoch} is older than assignment epoch {since} for task {task}.")


def check_fetch(group: StreamsGroup, member_id: str | None, member_epoch: int) -> None:
    """Whether committed offsets may be read: by a member at its epoch, or by somebody who does not say that he is one. Raises
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    if member_id is None and member_epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise unknown_member(group.group_id, member_id)
    if member_epoch != member.epoch:
        raise _stale(f"The received member epoch {member_epoch} does not match the expected member epoch {member.epoch}.")


def _stale(message: str) -> RequestError:
    return RequestError(message, ErrorCode.STALE_MEMBER_EPOCH)
