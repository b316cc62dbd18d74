"""Values that groups of all kinds share: states, listings, and the members that commit offsets."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

import attrs

NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""
CLASSIC_TYPE: Final = "classic"
"""What ListGroups calls groups whose leader makes the assignment (KIP-848)."""


class GroupState(enum.Enum):
    """The state of a group. The values are the names that ListGroups and the APIs that describe groups use."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"
    PREPARING_REBALANCE = "PreparingRebalance"
    """A classic group waits for members to join."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A classic group waits for the assignment of its leader."""
    NOT_READY = "NotReady"
    """Topics of a Streams application are missing, or have other numbers of partitions than they should have."""
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    """Members of a consumer or Streams group have not reached their targets."""


class GroupListing(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str = ""
    state: GroupState = GroupState.EMPTY
    group_type: str = CLASSIC_TYPE


FIRST_COMMIT_WITH_EPOCHS: Final = 9
"""The version of OffsetCommit from which on it has epochs of members, and errors of theirs."""


@attrs.frozen(kw_only=True)
class CommittingMember:
    """The member that commits offsets. At its defaults: a client without membership."""

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    version: int | None = None
    """Of OffsetCommit, None for any other way: members of some groups need the first with member epochs."""


NO_MEMBER: Final = CommittingMember()
