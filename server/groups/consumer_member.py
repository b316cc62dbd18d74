"""One member of a group whose assignments the server makes: what it subscribes to, what it has, and how that becomes what it is
to have (KIP-848; Kafka: ConsumerGroupMember, CurrentAssignmentBuilder).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

import attrs

from ...protocol.coordinator.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from ...protocol.errors import ErrorCode, RequestError
from .consumer_assignors import NO_PARTITIONS, Partitions, TopicPartitionId
from .consumer_values import JOIN_EPOCH, LEAVE_STATIC_EPOCH, NO_TIMEOUT, ConsumerHeartbeat
from .managed.assigned_partitions import NO_EPOCHS, PartitionEpochs, epochs_from_record, recorded_epochs


class MemberState(enum.IntEnum):
    """The numbers stand in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give something up first."""
    UNRELEASED_PARTITIONS = 2
    """Others have to give up what it is to have."""
    UNKNOWN = 127
    """A newer program wrote another one."""


_STATES: Final = {int(state): state for state in MemberState}


@attrs.frozen(kw_only=True)
class ConsumerMember:
    """See the module. A value: `evolve` makes the next one."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """Sorted, without repetitions."""
    topic_regex: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    server_assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """The answer with the present one may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """It has been told to give these up, and has not said that it did. Nobody else gets them."""
    since: PartitionEpochs = NO_EPOCHS
    """Of both: at which epoch each partition became the member's."""

    @property
    def held(self) -> Partitions:
        return self.assigned | self.revoking

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    # ---- subscription ----------------------------------------------------------------------------------------------------

    def updated(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """With what a heartbeat has to say anew."""
        names = self.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
        timeout_ms = request.rebalance_timeout_ms
        return attrs.evolve(
            self,
            instance_id=_new(request.instance_id, self.instance_id),
            rack_id=_new(request.rack_id, self.rack_id),
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=names,
            topic_regex=_new(request.topic_regex, self.topic_regex),
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms,
            server_assignor=_new(request.server_assignor, self.server_assignor),
        )

    def check_epoch(self, request: ConsumerHeartbeat) -> None:
        """Raises FENCED_MEMBER_EPOCH. The epoch before is right too, when nothing is owned but what the present one has: the
        answer that said so did not arrive. A member that joins again under its id has given everything up, and gets it back."""
        if request.member_epoch in (JOIN_EPOCH, self.epoch):
            return
        is_answer_lost = request.member_epoch == self.previous_epoch < self.epoch
        if not is_answer_lost or request.owned is None or not request.owned <= self.assigned:
            raise RequestError(
                f"member {self.member_id!r} of group {request.group_id!r} comes with epoch {request.member_epoch}, its epoch "
                f"is {self.epoch}; it has to give up its partitions and join again",
                ErrorCode.FENCED_MEMBER_EPOCH,
            )

    # ---- assignment ------------------------------------------------------------------------------------------------------

    def reconciled(
        self,
        target: Partitions,
        target_epoch: int,
        owned: Partitions | None,
        is_taken: Callable[[TopicPartitionId], bool],
    ) -> ConsumerMember:
        """A step, if one can be made, towards what it is to have. `owned`: what it says that it has; `is_taken`: whether
        somebody else has a partition, or has not given it up yet. Raises FENCED_MEMBER_EPOCH in a state that is not known."""
        if self.is_reconciled_to(target_epoch):
            return self
        if self.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, self.revoking):
            return self
        if self.state is MemberState.UNKNOWN and (owned is None or owned):
            raise RequestError(
                f"member {self.member_id!r} is in a state that a newer program wrote; it has to give up its partitions and join"
                " again",
                ErrorCode.FENCED_MEMBER_EPOCH,
            )
        kept, leaving = self.assigned & target, self.assigned - target
        if leaving and _owns(owned, leaving):
            return self._at(self.epoch, MemberState.UNREVOKED_PARTITIONS, kept, leaving)
        taken = frozenset(partition for partition in target - kept if is_taken(partition))
        state = MemberState.UNRELEASED_PARTITIONS if taken else MemberState.STABLE
        return self._at(target_epoch, state, target - taken, NO_PARTITIONS)

    def _at(self, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions) -> ConsumerMember:
        if (epoch, state, assigned, revoking) == (self.epoch, self.state, self.assigned, self.revoking):
            return self
        since = {partition: self.since.get(partition, epoch) for partition in assigned | revoking}
        return attrs.evolve(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking, since=since
        )

    def away(self) -> ConsumerMember:
        """A static member that has said that it comes back."""
        since = {partition: self.since[partition] for partition in self.assigned}
        return attrs.evolve(self, epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, revoking=NO_PARTITIONS, since=since)

    def back_as(self, member_id: str) -> ConsumerMember:
        """A static member that has come back, under another member id or the same."""
        return attrs.evolve(self, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
            subscribed_topic_regex=self.topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        return attrs.evolve(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=tuple(sorted(set(value.subscribed_topic_names))),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
        )

    def current_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=recorded_epochs(self.assigned, self.since),
            partitions_pending_revocation=recorded_epochs(self.revoking, self.since),
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        assigned = epochs_from_record(value.assigned_partitions, value.member_epoch)
        revoking = epochs_from_record(value.partitions_pending_revocation, value.member_epoch)
        return attrs.evolve(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=frozenset(assigned),
            revoking=frozenset(revoking),
            since={**revoking, **assigned},
        )


def _owns(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether it may have some of them still: who says nothing has what he had."""
    return owned is None or not owned.isdisjoint(partitions)


def _new(said: str | None, known: str | None) -> str | None:
    return known if said is None else said
