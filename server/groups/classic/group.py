"""A classic group: its state, its generation and its members (Kafka: ClassicGroup). It keeps its parts consistent; `rebalance`
owns time, timers and responses.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from ....protocol.coordinator.classic_group_records import (
    CONSUMER_PROTOCOL_TYPE,
    GroupMetadataValue,
    MemberMetadata,
    subscribed_topics,
)
from ....protocol.errors import ErrorCode, RemoteProtocolError
from ....protocol.limits import INT32_MAX
from ..assigned.values import NO_TIMEOUT
from ..values import GroupListing, GroupState
from .values import GroupDescription, JoinedMember, MemberDescription, Protocols, Token

EMPTY: Final = GroupState.EMPTY
PREPARING_REBALANCE: Final = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD

GROUP_BYTES: Final = 2_000
"""A group without members, without its name."""
PENDING_BYTES: Final = 600
"""A member id that was given out, with its timer."""

PREVIOUS_STATES: Final = {
    EMPTY: (PREPARING_REBALANCE, DEAD),
    PREPARING_REBALANCE: (STABLE, COMPLETING_REBALANCE, EMPTY),
    COMPLETING_REBALANCE: (PREPARING_REBALANCE,),
    STABLE: (COMPLETING_REBALANCE,),
    DEAD: (EMPTY,),
}
"""From which states each can be reached. A group is Dead while it is being deleted; where that fails it is Empty again."""


@attrs.define(eq=False, repr=False)
class Usage:
    """Memory of all groups together."""

    metadata_bytes: int = 0


@attrs.define(eq=False, repr=False)
class ClassicGroup:
    """See the module. Owner: the `ClassicGroups` that has made it."""

    group_id: str
    usage: Usage
    state: GroupState = EMPTY
    previous_state: GroupState = DEAD
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = attrs.field(factory=dict)
    """By member id, in the order they came."""
    static_members: dict[str, str] = attrs.field(factory=dict)
    """Member ids by group instance id."""
    pending_joins: set[str] = attrs.field(factory=set)
    """Member ids that were given out and not used yet (KIP-394)."""
    pending_syncs: set[str] = attrs.field(factory=set)
    """Members that were told the generation and have not asked for their assignment."""
    awaiting_join_count: int = 0
    is_stored: bool = False
    """Whether the log has, or has had, a record of it."""
    lacks_empty_record: bool = False
    """It is empty, and the log says that it has members."""
    was_joined: bool = False
    """Somebody came while an empty group was waiting for more."""
    initial_delay: tuple[int, int] | None = None
    """(delay that is running, what may follow it), ms, while an empty group waits for more members."""
    assignment_ticket: int | None = None
    """The leader's assignment for this generation is being stored."""
    is_converting: bool = False
    """A consumer group is being stored in its place: it does not change until that has succeeded or failed."""
    member_bytes: int = 0
    """Memory of its members, without their assignments."""
    assignment_bytes: int = 0
    """Of the newest assignment that a leader has brought."""
    _supported: Counter[str] = attrs.field(factory=Counter)
    """How many members speak each protocol."""

    @property
    def held_bytes(self) -> int:
        """Memory of the group."""
        names = PENDING_BYTES * len(self.pending_joins) + sys.getsizeof(self.group_id)
        return GROUP_BYTES + names + self.member_bytes + self.assignment_bytes

    # ---- state -----------------------------------------------------------------------------------------------------------

    def transition_to(self, state: GroupState) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[PREPARING_REBALANCE]

    @property
    def is_initial_rebalance(self) -> bool:
        """Return whether the group waits for more members than the first one."""
        return self.state is PREPARING_REBALANCE and self.previous_state is EMPTY

    @property
    def is_blank(self) -> bool:
        """Return whether the group can be forgotten without losing anything."""
        return self.state is EMPTY and not self.pending_joins and not self.is_stored and self.generation == 0

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    def charge_to(self, usage: Usage) -> None:
        """Count the members of a group that was built alone among those of all groups."""
        usage.metadata_bytes += self.usage.metadata_bytes
        self.usage = usage

    def begin_generation(self) -> None:
        """Begin the next generation, with the present members."""
        self.generation = 1 if self.generation >= INT32_MAX else self.generation + 1
        self.pending_syncs.clear()
        self.assignment_ticket = None
        self.protocol = self.select_protocol() if self.members else None
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY)

    # ---- members ---------------------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one decides the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.member_bytes += member.held_bytes
        self._count(member.protocols, 1)
        self.awaiting_join_count += member.is_awaiting_join
        self.pending_joins.discard(member.member_id)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Forget a member, or a member id that was given out. If it led, the next one leads."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self.member_bytes -= member.held_bytes
        self._count(member.protocols, -1)
        self.awaiting_join_count -= member.is_awaiting_join
        if member.group_instance_id is not None and self.static_members.get(member.group_instance_id) == member_id:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def update(self, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int) -> None:
        """Update a member that joins again."""
        self.member_bytes -= member.held_bytes
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        self.member_bytes += member.held_bytes
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another member id; it becomes the last one in order."""
        old = member.member_id
        del self.members[old]
        self.member_bytes -= member.held_bytes
        member.member_id = member_id
        self.member_bytes += member.held_bytes
        self.members[member_id] = member
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        if old in self.pending_syncs:
            self.pending_syncs.remove(old)
            self.pending_syncs.add(member_id)

    def park_join(self, member: Member, token: Token) -> None:
        """Let the member wait for the next generation. No other caller may wait for it there."""
        assert not member.is_awaiting_join
        member.join_token = token
        self.awaiting_join_count += 1

    def take_join(self, member: Member) -> Token:
        """Return the token that waited for the member's next generation."""
        token = member.join_token
        assert token is not None
        member.join_token = None
        self.awaiting_join_count -= 1
        return token

    def elect_leader(self) -> bool:
        """Let a member lead that has joined. False when none has."""
        leader = self.members.get(self.leader or "")
        if leader is None or not leader.is_awaiting_join:
            joined = next((member.member_id for member in self.members.values() if member.is_awaiting_join), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check member id and instance id (Kafka: validateMember)."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # ---- protocols -------------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether all members support one of these protocols; an empty group supports any."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supported[name] == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol that all members speak and most of them prefer; of several the one that was named first."""
        count = len(self.members)
        candidates = {name for name, speakers in self._supported.items() if speakers == count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=lambda name: votes[name])

    def _count(self, protocols: Protocols, sign: int) -> None:
        for name in {name for name, _ in protocols}:
            self._supported[name] += sign
            if not self._supported[name]:
                del self._supported[name]
        self.usage.metadata_bytes += sign * metadata_bytes(protocols)

    # ---- what is seen of it ----------------------------------------------------------------------------------------------

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(member.joined(self.protocol) for member in self.members.values())

    def describe(self) -> GroupDescription:
        shown = self.protocol if self.state is STABLE else None
        return GroupDescription(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol=shown or "",
            members=tuple(member.described(shown) for member in self.members.values()),
        )

    def listing(self) -> GroupListing:
        return GroupListing(self.group_id, self.protocol_type or "", self.state)

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """Return the group's record; `assignments` by member id where they are not the members' yet."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=[
                member.recorded(self.protocol, member.assignment if assignments is None else assignments.get(key, b""))
                for key, member in self.members.items()
            ],
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether members read a topic. A group of consumers with unknown subscriptions counts as subscribed."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        return any(_subscribes(member, self.protocol, topic) for member in self.members.values())


def _subscribes(member: Member, protocol: str | None, topic: str) -> bool:
    metadata = member.metadata(protocol)
    if metadata is None:
        return True
    try:
        return topic in subscribed_topics(metadata)
    except RemoteProtocolError:
        return True


MEMBER_BYTES: Final = 1_500
"""A member, its timers and its places in tables, without what the client says."""
PROTOCOL_BYTES: Final = 300
"""A protocol of a member, without its name and metadata."""


@attrs.define(eq=False, repr=False, kw_only=True)
class Member:
    """Changed only by the group that has it and the rules that work on that group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    """Who waits for the answer to its join, and so for the next generation."""
    sync_token: Token | None = None
    """Who waits for the answer to its sync, and so for the leader's assignment."""
    is_new: bool = False
    """It is in its first join and does not know yet that it is a member."""

    @classmethod
    def restored(cls, protocol: str, metadata: MemberMetadata) -> Member:
        """Return a member from a record, which has only the chosen one of its protocols."""
        rebalance_timeout = metadata.rebalance_timeout
        return cls(
            member_id=metadata.member_id,
            group_instance_id=metadata.group_instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            session_timeout_ms=metadata.session_timeout,
            rebalance_timeout_ms=metadata.session_timeout if rebalance_timeout == NO_TIMEOUT else rebalance_timeout,
            protocols=((protocol, metadata.subscription),),
            assignment=metadata.assignment,
        )

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_token is not None

    @property
    def is_awaiting_sync(self) -> bool:
        return self.sync_token is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Return whether the member counts as alive without heartbeats: a parked member cannot send any. A new member may
        expire all the same, because the server does not notice its end."""
        return not self.is_new and (self.is_awaiting_join or self.is_awaiting_sync)

    @property
    def held_bytes(self) -> int:
        """Memory of the member, without its assignment."""
        return member_bytes(self.protocols, self.member_id, self.group_instance_id, self.client_id)

    @property
    def metadata_bytes(self) -> int:
        return metadata_bytes(self.protocols)

    def metadata(self, protocol: str | None) -> bytes | None:
        """Return its metadata for a protocol; None when it does not speak it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), None)

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the first of its protocols that is a candidate; one of them always is."""
        return next(name for name, _ in self.protocols if name in candidates)

    def joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.group_instance_id, self.metadata(protocol) or b"")

    def described(self, protocol: str | None) -> MemberDescription:
        """`protocol`: the one whose metadata is shown, None for none."""
        return MemberDescription(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=self.metadata(protocol) or b"",
            assignment=self.assignment,
        )

    def recorded(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol) or b"",
            assignment=assignment,
        )


def metadata_bytes(protocols: Protocols) -> int:
    """Return the memory of protocols, without the objects around them."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def member_bytes(protocols: Protocols, *names: str | None) -> int:
    """Return the memory of a member with these protocols and names, without its assignment."""
    texts = sum(sys.getsizeof(name) for name in names if name is not None)
    return MEMBER_BYTES + texts + PROTOCOL_BYTES * len(protocols) + metadata_bytes(protocols)
