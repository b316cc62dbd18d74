"""What a heartbeat has to say, whatever share group it is for (KIP-932; Kafka: throwIfShareGroupHeartbeatRequestIsInvalid)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ..consumer_values import JOIN_EPOCH, LEAVE_EPOCH
from .member_values import MAX_MEMBER_ID_CHARS, ShareHeartbeat


def check_heartbeat(request: ShareHeartbeat) -> None:
    """Raises INVALID_REQUEST."""
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_CHARS:
        raise InvalidRequestError(
            f"a member id has 1 to {MAX_MEMBER_ID_CHARS} characters, this one has {len(request.member_id)}"
        )
    if not request.member_id.strip():
        raise InvalidRequestError("MemberId can't be empty.")
    if not request.group_id.strip():
        raise InvalidRequestError("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequestError("RackId can't be empty.")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.member_epoch == JOIN_EPOCH and not request.topic_names:
        raise InvalidRequestError("SubscribedTopicNames must be set in first request.")


def unknown_group(group_id: str) -> RequestError:
    return RequestError(f"Group {group_id} not found.", ErrorCode.GROUP_ID_NOT_FOUND)


def other_kind(group_id: str) -> RequestError:
    """A group of that name is there, of another kind: it is no share group until it is deleted."""
    return RequestError(f"Group {group_id} is not a share group.", ErrorCode.GROUP_ID_NOT_FOUND)


def unknown_member(group_id: str, member_id: str) -> RequestError:
    return RequestError(f"Member {member_id} is not a member of group {group_id}.", ErrorCode.UNKNOWN_MEMBER_ID)


def not_empty() -> RequestError:
    return RequestError("The group is not empty.", ErrorCode.NON_EMPTY_GROUP)
