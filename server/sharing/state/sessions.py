"""Share sessions (KIP-932): a member names the partitions that it reads once, and from then on what changes about them (Kafka:
SharePartitionManager.newContext, ShareSessionCache).

| epoch of a request | meaning |
|---|---|
| 0 | a session begins; one that the member had is forgotten, and it may say nothing of records yet |
| n | the next request of the session |
| -1 | the last one: what the member still has is given back |
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.limits import INT32_MAX
from ...system.client_memory import Account, ClientMemory
from .values import ShareKey

FINAL_SHARE_EPOCH: Final = -1
INITIAL_SHARE_EPOCH: Final = 0
DEFAULT_MAX_SESSIONS: Final = 2_000
"""Of a broker (Kafka: group.share.max.share.sessions); nobody makes room for others."""
SESSION_BYTES: Final = 1_000
PARTITION_BYTES: Final = 400
MAX_SESSION_PARTITIONS: Final = 10_000
MAX_PARTITIONS: Final = 200_000
"""Of all sessions together."""


@attrs.define(eq=False, repr=False)
class ShareSession:
    """The session of one member."""

    group_id: str
    member_id: str
    connection: object
    """Whose end is that of the session."""
    epoch: int = 1
    """Of the next request."""
    partitions: dict[ShareKey, None] = attrs.field(factory=dict)
    moved: set[ShareKey] = attrs.field(factory=set)
    """Partitions that another node leads now: what the member has of them is not this session's."""

    @property
    def held_bytes(self) -> int:
        """Memory of the session; the name of its group counts twice, since the connection remembers it."""
        names = 2 * sys.getsizeof(self.group_id) + sys.getsizeof(self.member_id)
        return SESSION_BYTES + names + PARTITION_BYTES * len(self.partitions)


@attrs.define(eq=False, repr=False)
class ShareSessions:
    """The sessions of a node."""

    _account: Account = attrs.field(factory=lambda: ClientMemory().account("share sessions"))
    """Where they are charged."""
    _max_sessions: int = DEFAULT_MAX_SESSIONS
    _sessions: dict[tuple[str, str], ShareSession] = attrs.field(factory=dict)
    _groups: dict[object, set[str]] = attrs.field(factory=dict)
    """Those of which sessions were begun, by connection, whether they are over or not, until `forget_group`."""
    _partitions: int = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(list(self._sessions.values()))

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def begin(
        self, group_id: str, member_id: str, partitions: Collection[ShareKey], connection: object, *, says_something: bool
    ) -> ShareSession:
        """Begin a session of these partitions. Raises RequestError: INVALID_REQUEST, SHARE_SESSION_LIMIT_REACHED."""
        if says_something:
            raise RequestError("the first request of a share session acknowledges records", ErrorCode.INVALID_REQUEST)
        _check_size(len(partitions))
        self.remove(group_id, member_id)
        if len(self._sessions) >= self._max_sessions or self._partitions + len(partitions) > MAX_PARTITIONS:
            raise RequestError(
                f"{len(self._sessions)} share sessions of {self._partitions} partitions exist, the maximum",
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
            )
        session = ShareSession(group_id, member_id, connection, partitions=dict.fromkeys(partitions))
        self._account.take(session, session.held_bytes, ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[group_id, member_id] = session
        self._groups.setdefault(connection, set()).add(group_id)
        self._partitions += len(session.partitions)
        return session

    def go_on(
        self, group_id: str, member_id: str, epoch: int, added: Iterable[ShareKey] = (), forgotten: Iterable[ShareKey] = ()
    ) -> ShareSession:
        """Return the session that a request continues. Raises RequestError: SHARE_SESSION_NOT_FOUND,
        INVALID_SHARE_SESSION_EPOCH, INVALID_REQUEST for too many partitions."""
        session = self._found(group_id, member_id)
        if epoch == FINAL_SHARE_EPOCH:
            return session
        if session.epoch != epoch:
            raise RequestError(
                f"the share session of member {member_id!r} is at epoch {session.epoch}, the request at {epoch}",
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            )
        named = dict.fromkeys(added)
        partitions = session.partitions | named
        for key in forgotten:
            partitions.pop(key, None)
        _check_size(len(partitions))
        more = len(partitions) - len(session.partitions)
        self._account.check(session, PARTITION_BYTES * more, ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._partitions += more
        session.partitions = partitions
        self._account.put(session, session.held_bytes)
        session.moved.difference_update(named)
        session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        return session

    def remember(self, group_id: str, member_id: str, partitions: Iterable[ShareKey]) -> None:
        """Put partitions into a session, if there is one, without a request that names them."""
        session = self.find(group_id, member_id)
        if session is not None:
            before = len(session.partitions)
            session.partitions |= dict.fromkeys(partitions)
            self._partitions += len(session.partitions) - before
            self._account.put(session, session.held_bytes)

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of a request that only acknowledges: it begins none."""
        if epoch == INITIAL_SHARE_EPOCH:
            raise RequestError("an acknowledgement cannot begin a share session", ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return self.go_on(group_id, member_id, epoch)

    def remove(self, group_id: str, member_id: str) -> ShareSession | None:
        """End a session, if it exists."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            self._partitions -= len(session.partitions)
            self._account.drop(session)
        return session

    def disconnected(self, connection: object) -> tuple[list[ShareSession], set[str]]:
        """End the sessions that were begun on a connection. Returns them, and the groups of these and of those that had ended
        before."""
        ended = [session for session in self._sessions.values() if session.connection is connection]
        for session in ended:
            self.remove(session.group_id, session.member_id)
        groups = self._groups.pop(connection, set())
        return ended, groups.union(session.group_id for session in ended)

    def forget_group(self, group_id: str, connection: object) -> None:
        """Close nothing of the group when the connection ends, except its sessions."""
        groups = self._groups.get(connection)
        if groups is not None:
            groups.discard(group_id)
            if not groups:
                del self._groups[connection]

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of the group has a session."""
        return any(session.group_id == group_id for session in self._sessions.values())

    def _found(self, group_id: str, member_id: str) -> ShareSession:
        session = self.find(group_id, member_id)
        if session is None:
            raise RequestError(
                f"group {group_id!r}: no share session of member {member_id!r}", ErrorCode.SHARE_SESSION_NOT_FOUND
            )
        return session


def _check_size(partitions: int) -> None:
    if partitions > MAX_SESSION_PARTITIONS:
        raise RequestError(f"a share session has at most {MAX_SESSION_PARTITIONS} partitions", ErrorCode.INVALID_REQUEST)
