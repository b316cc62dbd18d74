"""A member of a consumer group: its heartbeats and their check, its subscription, its partitions, and its steps towards its
target (KIP-848; Kafka: ConsumerGroupMember, CurrentAssignmentBuilder, ConsumerGroupHeartbeat without its versions).

A member may use the classic protocol: then it joins, syncs and sends heartbeats of that protocol (see `classic_members`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

import attrs

from ....protocol.coordinator.consumer_group_records import (
    ConsumerGroupClassicMemberMetadata,
    ConsumerGroupClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentPartitions,
    ConsumerGroupMemberMetadataValue,
)
from ....protocol.errors import ErrorCode, InvalidRequestError, RequestError
from ..assigned.group import AssignedMember
from ..assigned.groups import check_names
from ..assigned.values import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    NO_TIMEOUT,
    MemberHeartbeat,
    Partitions,
    TopicPartitionId,
    by_first,
    epochs_in,
)
from ..classic.values import Protocols
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


PartitionEpochs = Mapping[TopicPartitionId, int]
"""Partitions, and the epoch of the member at which it got each of them."""
NO_EPOCHS: Final[PartitionEpochs] = {}


class MemberState(enum.IntEnum):
    """The numbers are in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give something up first."""
    UNRELEASED_PARTITIONS = 2
    """Others have to give up what it is to have."""
    UNKNOWN = 127
    """A newer program wrote another one."""


_STATES: Final = {int(state): state for state in MemberState}


@attrs.frozen
class ClassicSide:
    """Facts about a member that only the classic protocol has."""

    session_timeout_ms: int
    protocols: Protocols
    """The first one names the protocol in responses, and has the subscription."""

    @classmethod
    def of(cls, value: ConsumerGroupClassicMemberMetadata) -> ClassicSide:
        protocols = tuple((protocol.name, protocol.metadata) for protocol in value.supported_protocols)
        return cls(value.session_timeout_ms, protocols)

    def value(self) -> ConsumerGroupClassicMemberMetadata:
        protocols = [ConsumerGroupClassicProtocol(name=name, metadata=metadata) for name, metadata in self.protocols]
        return ConsumerGroupClassicMemberMetadata(session_timeout_ms=self.session_timeout_ms, supported_protocols=protocols)


@attrs.frozen(kw_only=True)
class ConsumerMember(AssignedMember):
    """See the module."""

    KIND: ClassVar[str] = CONSUMER_TYPE
    PLAIN: ClassVar[tuple[str, ...]] = (*AssignedMember.PLAIN, "server_assignor")
    METADATA: ClassVar[type[Any]] = ConsumerGroupMemberMetadataValue

    topic_names: tuple[str, ...] = ()
    """Sorted, without repetitions."""
    topic_regex: str | None = None
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    """It was told to give these up, and has not confirmed it. No other member gets them."""
    since: PartitionEpochs = NO_EPOCHS
    """Of both: at which epoch each partition became the member's."""
    classic: ClassicSide | None = None
    """None for a member that uses this protocol, and not the classic one."""

    UNASSIGNED: ClassVar[Mapping[str, Any]] = {
        "state": MemberState.STABLE,
        "assigned": NO_PARTITIONS,
        "revoking": NO_PARTITIONS,
        "since": NO_EPOCHS,
    }

    @property
    def held(self) -> Partitions:
        return self.assigned | self.revoking

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def has_to_revoke(self) -> bool:
        return self.state is MemberState.UNREVOKED_PARTITIONS

    @property
    def is_revoking(self) -> bool:
        """A member that uses the classic protocol has time to join and to sync instead."""
        return self.has_to_revoke and not self.is_classic

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    # ---- subscription ----------------------------------------------------------------------------------------------------

    def news(self, request: ConsumerHeartbeat) -> dict[str, Any]:
        return {
            **super().news(request),
            "topic_names": None if request.topic_names is None else tuple(sorted(set(request.topic_names))),
            "topic_regex": request.topic_regex,
        }

    def updated(self, request: MemberHeartbeat) -> ConsumerMember:
        member = super().updated(request)
        return attrs.evolve(member, classic=None) if member.is_classic else member

    def has_all_of(self, request: ConsumerHeartbeat) -> bool:
        return request.owned is not None and request.owned <= self.assigned

    # ---- assignment ------------------------------------------------------------------------------------------------------

    def reconciled(
        self,
        target: Partitions,
        target_epoch: int,
        owned: Partitions | None,
        is_taken: Callable[[TopicPartitionId], bool],
    ) -> ConsumerMember:
        """Return the member a step closer to its target, if one can be made. `owned`: what it states that it has; `is_taken`:
        whether another member has a partition, or has not given it up yet. Raises FENCED_MEMBER_EPOCH in an unknown state."""
        if self.is_reconciled_to(target_epoch):
            return self
        if self.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, self.revoking):
            return self
        if self.state is MemberState.UNKNOWN and (owned is None or owned):
            raise RequestError(
                f"member {self.member_id!r} has a state that a newer program wrote. It must give up its partitions "
                "and join again",
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
        """Return a static member that left and will come back."""
        since = {partition: self.since[partition] for partition in self.assigned}
        return attrs.evolve(self, epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, revoking=NO_PARTITIONS, since=since)

    def back_as(self, member_id: str) -> ConsumerMember:
        """Return a static member that has come back, under another member id or the same."""
        return attrs.evolve(self, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    # ---- records ---------------------------------------------------------------------------------------------------------

    def subscription(self) -> dict[str, Any]:
        return {
            "subscribed_topic_names": list(self.topic_names),
            "subscribed_topic_regex": self.topic_regex,
            "classic_member_metadata": None if self.classic is None else self.classic.value(),
        }

    def subscription_of(self, value: ConsumerGroupMemberMetadataValue) -> dict[str, Any]:
        names = tuple(sorted(set(value.subscribed_topic_names)))
        classic = value.classic_member_metadata
        return {
            "topic_names": names,
            "topic_regex": value.subscribed_topic_regex,
            "classic": None if classic is None else ClassicSide.of(classic),
        }

    def current_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=_recorded_epochs(self.assigned, self.since),
            partitions_pending_revocation=_recorded_epochs(self.revoking, self.since),
        )

    def assignment_of(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> dict[str, Any]:
        assigned = _epochs_from_record(value.assigned_partitions, value.member_epoch)
        revoking = _epochs_from_record(value.partitions_pending_revocation, value.member_epoch)
        return {
            "state": _STATES.get(value.state, MemberState.UNKNOWN),
            "assigned": frozenset(assigned),
            "revoking": frozenset(revoking),
            "since": {**revoking, **assigned},
        }

    def described(self, target: Partitions, **more: Any) -> Any:
        return super().described(target, assignment=self.held, **more)


def _owns(owned: Partitions | None, partitions: Partitions) -> bool:
    """Return whether the member may still own some of the partitions. A member that does not state its partitions keeps
    them."""
    return owned is None or not owned.isdisjoint(partitions)


def _recorded_epochs(partitions: Partitions, since: PartitionEpochs) -> list[ConsumerGroupCurrentPartitions]:
    return [
        ConsumerGroupCurrentPartitions(
            topic_id=topic_id, partitions=numbers, assignment_epochs=[since[topic_id, number] for number in numbers]
        )
        for topic_id, numbers in by_first(partitions).items()
    ]


def _epochs_from_record(topics: Iterable[ConsumerGroupCurrentPartitions], member_epoch: int) -> PartitionEpochs:
    parts = ((topic.topic_id, topic.partitions, topic.assignment_epochs) for topic in topics)
    return {(topic_id, number): epoch for topic_id, number, epoch in epochs_in(parts, member_epoch)}
