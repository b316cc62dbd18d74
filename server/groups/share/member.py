"""A member of a share group: its subscription and its partitions (KIP-932; Kafka: ShareGroupMember). A member reaches its
target at once: another member need not give a partition up first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import attrs

from ....protocol.coordinator.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)
from ....protocol.errors import InvalidRequestError
from ..assigned.group import AssignedMember, from_record, recorded
from ..assigned.groups import check_names
from ..assigned.values import JOIN_EPOCH, LEAVE_EPOCH, NO_PARTITIONS, MemberHeartbeat, Partitions

SHARE_TYPE: Final = "share"
"""What ListGroups calls groups of this kind, and their protocol type."""
MAX_MEMBER_ID_CHARS: Final = 36
"""Kafka's limit: as long as a UUID is."""
STABLE: Final = 0
"""The only state of a member that Kafka writes."""


@attrs.frozen(kw_only=True)
class ShareHeartbeat(MemberHeartbeat):
    """A sign of life of a member, with its news; None for a field that has not changed."""

    topic_names: tuple[str, ...] | None = None

    @property
    def is_full(self) -> bool:
        """Return whether the heartbeat states everything, as a client does that has lost the last response."""
        return self.is_joining or self.topic_names is not None


def check_heartbeat(request: ShareHeartbeat) -> None:
    """Check what a heartbeat has to state, whatever group it is for (Kafka: throwIfShareGroupHeartbeatRequestIsInvalid). Raises
    INVALID_REQUEST."""
    if not request.member_id or len(request.member_id) > MAX_MEMBER_ID_CHARS:
        raise InvalidRequestError(
            f"a member id has 1 to {MAX_MEMBER_ID_CHARS} characters, this one has {len(request.member_id)}"
        )
    check_names(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id)
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.is_joining and not request.topic_names:
        raise InvalidRequestError("SubscribedTopicNames must be set in first request.")


@attrs.frozen(kw_only=True)
class ShareMember(AssignedMember):
    """See the module."""

    KIND: ClassVar[str] = SHARE_TYPE
    PLAIN: ClassVar[tuple[str, ...]] = ("rack_id", "client_id", "client_host")
    METADATA: ClassVar[type[Any]] = ShareGroupMemberMetadataValue
    UNASSIGNED: ClassVar[Mapping[str, Any]] = {"assigned": NO_PARTITIONS}

    topic_names: tuple[str, ...] = ()
    """Sorted, without repetitions."""
    assigned: Partitions = NO_PARTITIONS

    def news(self, request: ShareHeartbeat) -> dict[str, Any]:
        names = request.topic_names
        return {**super().news(request), "topic_names": None if names is None else tuple(sorted(set(names)))}

    def check_epoch(self, request: MemberHeartbeat) -> None:
        """Raises FENCED_MEMBER_EPOCH. The previous epoch is valid, and so is joining again."""
        epoch = request.member_epoch
        if epoch not in (JOIN_EPOCH, self.epoch, self.previous_epoch):
            lost = f", and it does not match the previous member epoch ({self.previous_epoch})"
            raise self.fenced(epoch, "" if epoch > self.epoch else lost)

    def at(self, epoch: int, target: Partitions) -> ShareMember:
        """Return the member with what it is to have at an epoch."""
        if (epoch, target) == (self.epoch, self.assigned):
            return self
        return attrs.evolve(self, epoch=epoch, previous_epoch=self.epoch, assigned=target)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def subscription(self) -> dict[str, Any]:
        return {"subscribed_topic_names": list(self.topic_names)}

    def subscription_of(self, value: ShareGroupMemberMetadataValue) -> dict[str, Any]:
        return {"topic_names": tuple(sorted(set(value.subscribed_topic_names)))}

    def current_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE,
            assigned_partitions=recorded(self.assigned),
        )

    def assignment_of(self, value: ShareGroupCurrentMemberAssignmentValue) -> dict[str, Any]:
        return {"assigned": from_record(value.assigned_partitions)}

    def described(self, target: Partitions, **more: Any) -> Any:
        return super().described(NO_PARTITIONS, assignment=self.assigned, **more)
