"""What goes into the state machine of groups whose assignments the server makes, and what comes out of it (KIP-848; Kafka:
ConsumerGroupHeartbeat, ConsumerGroupDescribe, without their versions).

Times are whole milliseconds of a clock that only goes forward.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import attrs

from .consumer_assignors import NO_PARTITIONS, Partitions

CONSUMER_TYPE: Final = "consumer"
"""What ListGroups calls groups of this kind."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member is away for now: what it had is kept for it."""
NO_EPOCH: Final = -1
NO_TIMEOUT: Final = -1


class ConsumerGroupState(enum.Enum):
    """How far a group is. The values are the names that ConsumerGroupDescribe and ListGroups use."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@attrs.frozen(kw_only=True)
class ConsumerGroupSettings:
    """What groups may do, with Kafka's names and its defaults where it has them."""

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    max_size: int = 10_000
    """Members of a group."""
    max_groups: int = 10_000


class MemberTimes(NamedTuple):
    """How members of a group show that they are alive, ms."""

    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000


class TopicMetadata(NamedTuple):
    topic_id: bytes
    partitions: int


class TopicImage(Protocol):
    """The topics that there are, as the machine looks at them."""

    @property
    def version(self) -> int:
        """Another one after every topic that was made, deleted or given more partitions."""

    def find(self, name: str) -> TopicMetadata | None: ...

    def names(self) -> Iterable[str]: ...


@attrs.frozen(kw_only=True)
class ConsumerHeartbeat:
    """A member says that it is there, and what has changed; None for what has not."""

    group_id: str
    member_id: str = ""
    member_epoch: int = JOIN_EPOCH
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    """Empty: none any more."""
    server_assignor: str | None = None
    owned: Partitions | None = None
    """What it has at this moment. None confirms nothing."""
    client_id: str = ""
    client_host: str = ""
    makes_member_id: bool = True
    """Version 1 on (KIP-1082): the client makes its member id, so there has to be one."""

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def is_full(self) -> bool:
        """It says everything, as a client does that does not know what the last answer was."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and has_subscription and self.owned is not None


@attrs.frozen(kw_only=True)
class ConsumerHeartbeatAnswer:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """What it may have from now on; None: as it is."""


class TimerKind(enum.Enum):
    SESSION = enum.auto()
    """It has said nothing for too long."""
    REBALANCE = enum.auto()
    """It does not give up what it has to."""


class ConsumerTimerKey(NamedTuple):
    group_id: str
    member_id: str
    kind: TimerKind


@attrs.frozen(kw_only=True)
class ConsumerMemberDescription:
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assignment: Partitions = NO_PARTITIONS
    target_assignment: Partitions = NO_PARTITIONS


@attrs.frozen(kw_only=True)
class ConsumerGroupDescription:
    """A group as ConsumerGroupDescribe shows it."""

    group_id: str
    state: ConsumerGroupState
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...] = ()
