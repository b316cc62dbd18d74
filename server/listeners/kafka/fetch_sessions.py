"""Fetch sessions (KIP-227): a client names the partitions it reads once, and from then on what changes about them.

| request's (session id, epoch) | meaning |
|---|---|
| (any, -1) | no session from now on: the request names everything, and a session with that id ends |
| (any, 0) | the request names everything; a session is opened, and one with that id ends |
| (id, n) | the next request of a session: it names what was added, changed or forgotten |

An answer within a session has only the partitions with something new. Source: Kafka's FetchSession.

A full cache takes a place from a session that was unused for EVICTION_S, or from one that is older than that and no larger than
the new one. A client that finds no place gets its records without a session, and names everything again the next time. So
young sessions never evict each other, however many clients poll (Kafka: FetchSessionCacheShard.tryEvict).
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import attrs
import trio

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.limits import INT32_MAX
from ...system.client_memory import Account, ClientMemory

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EVICTION_S: Final = 120.0
"""Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS."""
MAX_SESSIONS: Final = 1000
"""Sessions of a broker (Kafka: max.incremental.fetch.session.cache.slots)."""
MAX_SESSION_PARTITIONS: Final = 10_000
"""A fetch of more has no session."""
MAX_PARTITIONS: Final = 200_000
"""Of all sessions together."""
PARTITION_BYTES: Final = 800
"""Memory of a partition of a session: its key, and what was requested and answered last."""


class Key(NamedTuple):
    """A partition as the client names it: by name or, from version 13 on, by id."""

    topic: str
    topic_id: bytes
    partition: int


class Asked(NamedTuple):
    """The fetch parameters of a client for a partition."""

    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class Seen(NamedTuple):
    """The state of a partition in the session's last response: an equal state does not have to be sent again."""

    high_watermark: int
    log_start_offset: int
    error_code: int


@attrs.define(eq=False, repr=False)
class FetchSession:
    """Partitions in the order in which they are served; the ones that had records go to the end, so that none starves."""

    session_id: int
    epoch: int
    by_id: bool
    created_s: float
    used_s: float
    counted: int = 0
    """Its partitions as its owner has counted them."""
    evictable_as: tuple[int, int] | None = None
    """(partitions, session id) once it is old enough to be evicted for another session."""
    partitions: OrderedDict[Key, Asked] = attrs.field(factory=OrderedDict)
    seen: dict[Key, Seen] = attrs.field(factory=dict)
    names: dict[Key, str] = attrs.field(factory=dict)
    """Of what is asked for by id: the topic's name when it was last found."""

    def update(self, changed: dict[Key, Asked], forgotten: list[Key]) -> None:
        """Add and forget partitions as a request says; one that is in both lists is forgotten."""
        self.partitions.update(changed)
        for key in forgotten:
            self.partitions.pop(key, None)
            self.seen.pop(key, None)
            self.names.pop(key, None)

    def is_news(self, key: Key, now: Seen, *, has_records: bool) -> bool:
        """Return whether a response must include this state of a partition, and remember the state as sent."""
        if not has_records and self.seen.get(key) == now and not now.error_code:
            return False
        self.seen[key] = now
        if has_records:
            self.partitions.move_to_end(key)
        return True


@attrs.define(eq=False, repr=False)
class FetchSessions:
    """The sessions of a broker. Owner: the Kafka door."""

    now: Callable[[], float] = trio.current_time
    """In seconds; only grows."""
    account: Account = attrs.field(factory=lambda: ClientMemory().account("fetch sessions"))
    """Where they are charged: when the number of their partitions changes, not for each request."""
    _sessions: OrderedDict[int, FetchSession] = attrs.field(factory=OrderedDict)
    """The one that was used least lately is first."""
    _evictable: list[tuple[int, int]] = attrs.field(factory=list)
    """`evictable_as` of all sessions that have one, in order."""
    _partitions: int = 0
    """Of all sessions together."""
    _random: random.Random = attrs.field(factory=random.SystemRandom)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, partitions: dict[Key, Asked], *, by_id: bool) -> FetchSession | None:
        """A new session of these partitions; its first answer has all of them. None where the cache has no place for it."""
        now = self.now()
        if len(partitions) > MAX_SESSION_PARTITIONS or not self._make_place(len(partitions), now):
            return None
        if not self.account.fits(None, PARTITION_BYTES * len(partitions)):
            return None
        session_id = self._random.randint(1, INT32_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, INT32_MAX)
        session = FetchSession(session_id, 1, by_id, now, now)
        session.update(partitions, [])
        self._sessions[session_id] = session
        self._count(session)
        return session

    def _make_place(self, size: int, now: float) -> bool:
        """Evict sessions until one of `size` partitions has a place; False where those that may be evicted do not suffice."""
        while len(self._sessions) >= MAX_SESSIONS or self._partitions + size > MAX_PARTITIONS:
            unused = next(iter(self._sessions.values()), None)
            if unused is not None and now - unused.used_s > EVICTION_S:
                self.close(unused.session_id)
            elif self._evictable and self._evictable[0][0] <= size:
                self.close(self._evictable[0][1])
            else:
                return False
        return True

    def keys_of(self, session_id: int) -> list[Key]:
        """The partitions of a session; none when there is no such session."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.partitions)

    def close(self, session_id: int) -> None:
        """End a session, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= session.counted
            self.account.drop(session_id)
            self._set_evictable(session, None)

    def continued(
        self, session_id: int, epoch: int, changed: dict[Key, Asked], forgotten: list[Key], *, by_id: bool
    ) -> FetchSession:
        """The session that a request continues, with what the request adds and forgets. Raises RequestError: then the client
        opens another one."""
        session = self._sessions.get(session_id)
        if session is None:
            raise _not_found(session_id)
        if session.epoch != epoch:
            raise RequestError(
                f"fetch session {session_id} is at epoch {session.epoch}, the request at {epoch}",
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        if session.by_id != by_id:
            raise RequestError(
                f"fetch session {session_id} identifies topics in another way", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            )
        session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        session.used_s = now = self.now()
        self._sessions.move_to_end(session_id)
        if changed or forgotten:
            session.update(changed, forgotten)
            more = len(session.partitions) - session.counted
            is_refused = more > 0 and not self.account.fits(session_id, PARTITION_BYTES * more)
            self._count(session)
            if is_refused or session.counted > MAX_SESSION_PARTITIONS or self._partitions > MAX_PARTITIONS:
                self.close(session_id)
                raise _not_found(session_id)
        if now - session.created_s > EVICTION_S:
            self._set_evictable(session, (session.counted, session_id))
        return session

    def _count(self, session: FetchSession) -> None:
        if len(session.partitions) == session.counted:
            return
        self._partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)
        self.account.put(session.session_id, PARTITION_BYTES * session.counted)

    def _set_evictable(self, session: FetchSession, place: tuple[int, int] | None) -> None:
        if place == session.evictable_as:
            return
        if session.evictable_as is not None:
            del self._evictable[bisect_left(self._evictable, session.evictable_as)]
        if place is not None:
            insort(self._evictable, place)
        session.evictable_as = place


def _not_found(session_id: int) -> RequestError:
    return RequestError(f"no fetch session {session_id}", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
