"""Heartbeats of consumer groups, and the check of their fields (KIP-848; Kafka: ConsumerGroupHeartbeat without its versions,
throwIfConsumerGroupHeartbeatRequestIsInvalid)."""

from __future__ import annotations

from typing import Final

import attrs

from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ..assigned.groups import check_names
from ..assigned.values import LEAVE_STATIC_EPOCH, NO_TIMEOUT, MemberHeartbeat, Partitions
from .assignors import ASSIGNORS

CONSUMER_TYPE: Final = "consumer"
"""What ListGroups calls groups of this kind."""


@attrs.frozen(kw_only=True)
class ConsumerHeartbeat(MemberHeartbeat):
    """A sign of life of a member, with its news; None for a field that has not changed."""

    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    """Empty: none any more."""
    server_assignor: str | None = None
    owned: Partitions | None = None
    """What it has at this moment. None confirms nothing."""
    makes_member_id: bool = True
    """Version 1 on (KIP-1082): the client makes its member id, so there has to be one."""

    @property
    def is_full(self) -> bool:
        """Return whether the heartbeat states everything, as a client does that has lost the last response."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and has_subscription and self.owned is not None


def check_heartbeat(request: ConsumerHeartbeat) -> None:
    """Check what a heartbeat has to state, whatever group it is for. Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    needs_member_id = request.makes_member_id or not request.is_joining
    check_names(
        MemberId=request.member_id if needs_member_id else None,
        GroupId=request.group_id,
        InstanceId=request.instance_id,
        RackId=request.rack_id,
    )
    if request.is_joining:
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
