"""A member of a classic group (Kafka: ClassicGroupMember)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import attrs

from ....protocol.coordinator.classic_group_records import MemberMetadata
from ..assigned.values import NO_TIMEOUT
from .values import JoinedMember, MemberDescription, Protocols, Token

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
