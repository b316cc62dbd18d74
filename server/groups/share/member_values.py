"""What goes into the state machine of share groups, and what comes out of it (KIP-932; Kafka: ShareGroupHeartbeat,
ShareGroupDescribe, without their versions).

Times are whole milliseconds of a clock that only goes forward.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import attrs

from ..consumer_assignors import NO_PARTITIONS, Partitions
from ..consumer_values import JOIN_EPOCH, LEAVE_EPOCH

SHARE_TYPE: Final = "share"
"""What ListGroups calls groups of this kind, and their protocol type."""

FIRST_EPOCH: Final = 1
"""Of a group that nobody has joined yet. The first member makes it 2, as in Kafka."""
MAX_MEMBER_ID_CHARS: Final = 36
"""Kafka's limit: as long as a UUID is."""


class ShareGroupState(enum.Enum):
    """The values are the names that ShareGroupDescribe and ListGroups use."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@attrs.frozen(kw_only=True)
class ShareGroupSettings:
    """What share groups may do, with Kafka's names and its defaults where it has them."""

    max_size: int = 200
    """Members of a group."""
    max_groups: int = 10_000


@attrs.frozen(kw_only=True)
class ShareHeartbeat:
    """A member says that it is there, and what has changed; None for what has not."""

    group_id: str
    member_id: str
    member_epoch: int = JOIN_EPOCH
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch == LEAVE_EPOCH

    @property
    def is_full(self) -> bool:
        """It says everything, as a client does that does not know what the last answer was."""
        return self.member_epoch == JOIN_EPOCH or self.topic_names is not None


@attrs.frozen(kw_only=True)
class ShareHeartbeatAnswer:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    """What it may read from now on; None: as it is."""


class ShareSessionKey(NamedTuple):
    """Of the timer of one member."""

    group_id: str
    member_id: str


@attrs.frozen(kw_only=True)
class ShareMemberDescription:
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: Partitions = NO_PARTITIONS


@attrs.frozen(kw_only=True)
class ShareGroupDescription:
    """A group as ShareGroupDescribe shows it."""

    group_id: str
    state: ShareGroupState
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ShareMemberDescription, ...] = ()
