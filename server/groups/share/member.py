"""One member of a share group: what it subscribes to and what it reads (KIP-932; Kafka: ShareGroupMember). Nobody has to give a
partition up before another one gets it, so a member has at once what it is to have.
"""

from __future__ import annotations

from typing import Final

import attrs

from ....protocol.coordinator.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)
from ....protocol.errors import ErrorCode, RequestError
from ..consumer_assignors import NO_PARTITIONS, Partitions
from ..consumer_values import JOIN_EPOCH
from ..managed.assigned_partitions import from_record, recorded
from .member_values import ShareHeartbeat, ShareMemberDescription

STABLE: Final = 0
"""The only state of a member that Kafka writes."""


@attrs.frozen(kw_only=True)
class ShareMember:
    """See the module. A value: `evolve` makes the next one."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, without repetitions."""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """The answer with the present one may have been lost."""
    assigned: Partitions = NO_PARTITIONS

    def updated(self, request: ShareHeartbeat) -> ShareMember:
        """With what a heartbeat has to say anew."""
        names = self.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
        return attrs.evolve(
            self,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=names,
        )

    def check_epoch(self, request: ShareHeartbeat) -> None:
        """Raises FENCED_MEMBER_EPOCH. Who joins again is the one he was."""
        said = request.member_epoch
        if said == JOIN_EPOCH or said in (self.epoch, self.previous_epoch):
            return
        differs = "greater" if said > self.epoch else "smaller"
        lost = "" if said > self.epoch else f", and it does not match the previous member epoch ({self.previous_epoch})"
        raise RequestError(
            f"The share group member has a {differs} member epoch ({said}) than the one known by the group coordinator "
            f"({self.epoch}){lost}. The member must abandon all its partitions and rejoin.",
            ErrorCode.FENCED_MEMBER_EPOCH,
        )

    def at(self, epoch: int, target: Partitions) -> ShareMember:
        """With what it is to have at an epoch."""
        if (epoch, target) == (self.epoch, self.assigned):
            return self
        return attrs.evolve(self, epoch=epoch, previous_epoch=self.epoch, assigned=target)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
        )

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        return attrs.evolve(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        )

    def current_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE,
            assigned_partitions=recorded(self.assigned),
        )

    def with_current(self, value: ShareGroupCurrentMemberAssignmentValue | None) -> ShareMember:
        """None: it has nothing and no epoch."""
        if value is None:
            return attrs.evolve(self, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, assigned=NO_PARTITIONS)
        return attrs.evolve(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=from_record(value.assigned_partitions),
        )

    def described(self) -> ShareMemberDescription:
        return ShareMemberDescription(
            member_id=self.member_id,
            rack_id=self.rack_id,
            member_epoch=self.epoch,
            client_id=self.client_id,
            client_host=self.client_host,
            topic_names=self.topic_names,
            assignment=self.assigned,
        )
