"""The base of members of consumer, share and Streams groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import attrs

from ....protocol.coordinator.consumer_group_records import ConsumerGroupTopicPartitions
from ....protocol.errors import ErrorCode, RequestError
from .values import JOIN_EPOCH, NO_TIMEOUT, MemberHeartbeat, Partitions, TopicPartitionId


@attrs.frozen(kw_only=True)
class AssignedMember:
    """A value: `evolve` makes the next one. A kind adds its subscription, its assignment and how both are recorded."""

    KIND: ClassVar[str]
    UNASSIGNED: ClassVar[Mapping[str, Any]]
    """Fields of a member that has no assignment and no epoch."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    """The answer with the present one may have been lost."""

    @property
    def is_revoking(self) -> bool:
        """Return whether the member has to give something up, and has a rebalance timeout to do so."""
        return False

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member has its whole assignment of an epoch."""
        return self.epoch == assignment_epoch

    # ---- heartbeats ------------------------------------------------------------------------------------------------------

    def news(self, request: Any) -> dict[str, Any]:
        """Return the fields that a heartbeat states; None for those that it leaves as they are."""
        timeout_ms = request.rebalance_timeout_ms
        return {
            "instance_id": request.instance_id,
            "rack_id": request.rack_id,
            "client_id": request.client_id,
            "client_host": request.client_host,
            "rebalance_timeout_ms": None if timeout_ms == NO_TIMEOUT else timeout_ms,
        }

    def updated(self, request: MemberHeartbeat) -> Self:
        """Return the member with the news of a heartbeat; the same object when it has none."""
        news = self.news(request)
        changes = {name: value for name, value in news.items() if value is not None and value != getattr(self, name)}
        return attrs.evolve(self, **changes) if changes else self

    def has_all_of(self, request: Any) -> bool:
        """Return whether a heartbeat states the member's owned partitions or tasks, and all of them are in its assignment."""
        raise NotImplementedError

    def check_epoch(self, request: MemberHeartbeat) -> None:
        """Raises FENCED_MEMBER_EPOCH. The previous epoch is valid as long as the member owns nothing but its assignment: the
        answer with the present one was lost. A member that joins again under its id has given everything up, and gets it
        back."""
        epoch = request.member_epoch
        if epoch in (JOIN_EPOCH, self.epoch) or (epoch == self.previous_epoch < self.epoch and self.has_all_of(request)):
            return
        raise self.fenced(epoch)

    def fenced(self, epoch: int, why: str = "") -> RequestError:
        differs = "greater" if epoch > self.epoch else "smaller"
        return RequestError(
            f"The {self.KIND} group member has a {differs} member epoch ({epoch}) than the one known by the group coordinator "
            f"({self.epoch}){why}. The member must abandon all its partitions and rejoin.",
            ErrorCode.FENCED_MEMBER_EPOCH,
        )

    # ---- records ---------------------------------------------------------------------------------------------------------

    def assignment_of(self, value: Any) -> Mapping[str, Any]:
        """Return the fields that a current assignment record states, beside the epochs."""
        raise NotImplementedError

    def with_current(self, value: Any | None) -> Self:
        """None: it has no assignment and no epoch."""
        if value is None:
            return attrs.evolve(self, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH, **self.UNASSIGNED)
        return attrs.evolve(
            self, epoch=value.member_epoch, previous_epoch=value.previous_member_epoch, **self.assignment_of(value)
        )


# ---- partitions in records ---------------------------------------------------------------------------------------------------


def by_topic(partitions: Iterable[TopicPartitionId]) -> dict[bytes, list[int]]:
    """Return sorted partition numbers by topic id, so that equal assignments have equal bytes."""
    found: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        found.setdefault(topic_id, []).append(number)
    return found


def recorded(partitions: Partitions) -> list[ConsumerGroupTopicPartitions]:
    return [ConsumerGroupTopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_topic(partitions).items()]


def from_record(topics: Iterable[ConsumerGroupTopicPartitions]) -> Partitions:
    return frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)
