"""What a heartbeat has to say, whatever group it is for, and what a member's request has to agree with (KIP-848; Kafka:
throwIfConsumerGroupHeartbeatRequestIsInvalid, ConsumerGroup.validateOffsetCommit, validateOffsetFetch).
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, InvalidRequestError, RequestError, UnsupportedVersionError
from .consumer_assignors import ASSIGNORS
from .consumer_group import ConsumerGroup
from .consumer_values import JOIN_EPOCH, LEAVE_STATIC_EPOCH, NO_TIMEOUT, ConsumerGroupSettings, ConsumerHeartbeat

FIRST_COMMIT_WITH_EPOCHS = 9
"""The version of OffsetCommit from which on members of these groups may use it."""


def check_heartbeat(request: ConsumerHeartbeat) -> None:
    """Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    needs_member_id = request.makes_member_id or request.member_epoch != JOIN_EPOCH
    if needs_member_id and not request.member_id.strip():
        raise InvalidRequestError("MemberId can't be empty.")
    if not request.group_id.strip():
        raise InvalidRequestError("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise InvalidRequestError("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequestError("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise RequestError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
            ErrorCode.UNSUPPORTED_ASSIGNOR,
        )


def _check_join(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == NO_TIMEOUT:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    if request.owned is None or request.owned:
        raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
    if request.topic_names is None and request.topic_regex is None:
        raise InvalidRequestError("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def check_room(group: ConsumerGroup, member_id: str, settings: ConsumerGroupSettings) -> None:
    """Raises GROUP_MAX_SIZE_REACHED for one who is not in yet."""
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise RequestError(
            f"group {group.group_id!r} has {len(group.members)} members, {settings.max_size} are allowed",
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        )


def unknown_member(group_id: str, who: str) -> RequestError:
    return RequestError(f"{who} is not a member of group {group_id!r}", ErrorCode.UNKNOWN_MEMBER_ID)


def check_commit(
    group: ConsumerGroup, member_id: str, member_epoch: int, *, is_transactional: bool, version: int | None
) -> None:
    """Whether offsets may be committed: by a member at its epoch, or by anybody while there are no members. `version`: of
    OffsetCommit, None where it does not matter. Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION."""
    if member_epoch < 0 and not group.members:
        return
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, f"{member_id!r}")
    if not is_transactional and version is not None and version < FIRST_COMMIT_WITH_EPOCHS:
        raise UnsupportedVersionError(
            f"OffsetCommit version {version}: members of group {group.group_id!r} need {FIRST_COMMIT_WITH_EPOCHS} or above"
        )
    _check_epoch(group.group_id, member_id, member_epoch, member.epoch)


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> None:
    """Whether committed offsets may be read: by a member at its epoch, or by somebody who does not say that he is one. Raises
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH."""
    if member_id is None and member_epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise unknown_member(group.group_id, f"{member_id!r}")
    _check_epoch(group.group_id, member.member_id, member_epoch, member.epoch)


def _check_epoch(group_id: str, member_id: str, said: int, known: int) -> None:
    if said != known:
        raise RequestError(
            f"member {member_id!r} of group {group_id!r} comes with epoch {said}, its epoch is {known}; it has to look at the "
            "answer to its next heartbeat",
            ErrorCode.STALE_MEMBER_EPOCH,
        )
