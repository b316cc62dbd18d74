"""Inputs and outputs of the state machine of classic groups (Kafka: the classes of JoinGroup, SyncGroup, Heartbeat, LeaveGroup
and DescribeGroups, without their versions).

Times are whole milliseconds of a clock that only goes forward. A token stands for a waiting caller. The machine never reads it,
and returns it with the response.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

import attrs

from ....protocol.coordinator.classic_group_records import GroupMetadataValue
from ....protocol.errors import ErrorCode
from ....protocol.limits import MIB
from ..values import NO_GENERATION, NO_MEMBER_ID, GroupState

NO_LEADER: Final = ""

MAX_MEMBER_METADATA_BYTES: Final = MIB
"""Of the protocols of one member, names included. A consumer's have some hundred bytes, a Streams client's tens of KiB."""
MAX_MEMBER_PROTOCOLS: Final = 100
MAX_INSTANCE_ID_CHARS: Final = 249
"""A group instance id follows the rules of topic names (Kafka: JoinGroupRequest.validateGroupInstanceId)."""
MAX_CLIENT_ID_CHARS_IN_MEMBER_ID: Final = 255
"""A member id is the client id with 37 more characters, and both have to fit a string of 32,767 bytes."""

Token = Hashable
Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of every protocol that a member can speak, the best one first."""


@attrs.frozen(kw_only=True)
class GroupSettings:
    """Limits of groups, with Kafka's names and defaults where it has them."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    """How long an empty group waits for more members after the first one."""
    new_member_join_timeout_ms: int = 300_000
    """How long a new member may be parked in its first join: it cannot send heartbeats yet."""
    max_size: int = 10_000
    """Members of a group, and, separately, member ids that were given out and not used."""
    max_groups: int = 10_000
    max_metadata_bytes: int = 256 * MIB
    """Of the protocols of all members of all groups."""


@attrs.frozen(kw_only=True)
class Join:
    """The request of a member to be in the next generation."""

    group_id: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """Negative: as the session timeout (JoinGroup v0 has none)."""
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    requires_known_member_id: bool = True
    """JoinGroup v4 on (KIP-394): who comes without a member id gets one and has to come again."""
    supports_skipping_assignment: bool = False
    """JoinGroup v9 on (KIP-814): a static leader that returns is given the members and need not assign."""
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@attrs.frozen(kw_only=True)
class JoinAnswer:
    """The outcome of a join. Only the leader gets the members."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@attrs.frozen(kw_only=True)
class Sync:
    """The request for an assignment; the leader brings those of all members, as (member id, assignment)."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    """SyncGroup v5 on (KIP-559): what the member was told; None is not compared."""
    assignments: tuple[tuple[str, bytes], ...] = ()


@attrs.frozen(kw_only=True)
class SyncAnswer:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@attrs.frozen(kw_only=True)
class Heartbeat:
    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves: a member id, or a group instance id with an empty member id (KIP-345), or both."""

    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    reason: str | None = None


class LeftMember(NamedTuple):
    """The outcome for a member that leaves, named as in the request."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@attrs.frozen(kw_only=True)
class LeaveAnswer:
    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@attrs.frozen(kw_only=True)
class MemberDescription:
    """The description of a member; the metadata is empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@attrs.frozen(kw_only=True)
class GroupDescription:
    """A group as DescribeGroups shows it. An unknown one is Dead."""

    group_id: str
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    """Empty unless the group is stable."""
    members: tuple[MemberDescription, ...] = ()


class Store(NamedTuple):
    """A record to be stored; `stored` or `store_failed` is to be called with the ticket. The coordinator fills in its
    timestamp: the rules know no wall clock."""

    ticket: int
    group_id: str
    value: GroupMetadataValue


@attrs.frozen
class Outcome:
    """The outcome of a command or of time: answers for callers, and records to store, in this order."""

    answers: tuple[tuple[Token, JoinAnswer | SyncAnswer], ...] = ()
    stores: tuple[Store, ...] = ()
