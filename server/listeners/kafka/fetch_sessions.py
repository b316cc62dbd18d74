"""Fetch sessions (KIP-227): a client names the partitions it reads once, and from then on what changes about them.

| request's (session id, epoch) | meaning |
|---|---|
| (any, -1) | no session from now on: the request names everything, and a session with that id ends |
| (any, 0) | the request names everything; a session is opened, and one with that id ends |
| (id, n) | the next request of a session: it names what was added, changed or forgotten |

An answer within a session has only the partitions with something new. Source: Kafka's FetchSession.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Final, NamedTuple

import attrs

from ....protocol.errors import ErrorCode, RequestError
from ....protocol.limits import INT32_MAX

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
MAX_SESSIONS: Final = 1000
"""Sessions of a broker; where there would be more, the one that was used least lately makes room (Kafka:
max.incremental.fetch.session.cache.slots, where one has to be unused for two minutes first)."""
MAX_SESSION_PARTITIONS: Final = 10_000
MAX_PARTITIONS: Final = 200_000
"""Of all sessions together, at about 0.5 KB; where there would be more, sessions make room in the same way."""


class Key(NamedTuple):
    """A partition as the client names it: by name or, from version 13 on, by id."""

    topic: str
    topic_id: bytes
    partition: int


class Asked(NamedTuple):
    """What a client wants of a partition."""

    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class Seen(NamedTuple):
    """What the client was told of a partition last: an answer that says the same need not be sent again."""

    high_watermark: int
    log_start_offset: int
    error_code: int


@attrs.define(eq=False, repr=False)
class FetchSession:
    """Partitions in the order in which they are served; the ones that had records go to the end, so that none starves."""

    session_id: int
    epoch: int
    by_id: bool
    partitions: OrderedDict[Key, Asked] = attrs.field(factory=OrderedDict)
    seen: dict[Key, Seen] = attrs.field(factory=dict)
    names: dict[Key, str] = attrs.field(factory=dict)
    """Of what is asked for by id: the topic's name when it was last found."""

    def update(self, changed: dict[Key, Asked], forgotten: list[Key]) -> None:
        """Add and forget partitions as a request says; one that is in both lists is forgotten. Raises RequestError when there
        are too many."""
        if len((self.partitions.keys() | changed.keys()) - set(forgotten)) > MAX_SESSION_PARTITIONS:
            raise RequestError(f"a fetch session has at most {MAX_SESSION_PARTITIONS} partitions", ErrorCode.INVALID_REQUEST)
        self.partitions.update(changed)
        for key in forgotten:
            self.partitions.pop(key, None)
            self.seen.pop(key, None)
            self.names.pop(key, None)

    def is_news(self, key: Key, now: Seen, *, has_records: bool) -> bool:
        """Whether an answer has to say this of a partition; it is remembered as said."""
        if not has_records and self.seen.get(key) == now and not now.error_code:
            return False
        self.seen[key] = now
        if has_records:
            self.partitions.move_to_end(key)
        return True


@attrs.define(eq=False, repr=False)
class FetchSessions:
    """The sessions of a broker. Owner: the Kafka door."""

    _sessions: OrderedDict[int, FetchSession] = attrs.field(factory=OrderedDict)
    _random: random.Random = attrs.field(factory=random.SystemRandom)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, partitions: dict[Key, Asked], *, by_id: bool) -> FetchSession:
        """A new session of these partitions; its first answer has all of them."""
        session_id = self._random.randint(1, INT32_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, INT32_MAX)
        session = FetchSession(session_id, epoch=1, by_id=by_id)
        session.update(partitions, [])
        self._sessions[session_id] = session
        self.make_room()
        return session

    def make_room(self) -> None:
        """Forget the sessions that were used least lately while there are too many, or too many partitions in them."""
        partitions = sum(len(session.partitions) for session in self._sessions.values())
        while len(self._sessions) > 1 and (len(self._sessions) > MAX_SESSIONS or partitions > MAX_PARTITIONS):
            _, session = self._sessions.popitem(last=False)
            partitions -= len(session.partitions)

    def keys_of(self, session_id: int) -> list[Key]:
        """The partitions of a session; none when there is no such session."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.partitions)

    def close(self, session_id: int) -> None:
        """End a session, if there is one."""
        self._sessions.pop(session_id, None)

    def continued(self, session_id: int, epoch: int, *, by_id: bool) -> FetchSession:
        """The session that a request continues. Raises RequestError: then the client opens another one."""
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestError(f"there is no fetch session {session_id}", ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise RequestError(
                f"fetch session {session_id} is at epoch {session.epoch}, the request at {epoch}",
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            )
        if session.by_id != by_id:
            raise RequestError(
                f"fetch session {session_id} names topics in another way", ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            )
        session.epoch = 1 if epoch == INT32_MAX else epoch + 1
        self._sessions.move_to_end(session_id)
        return session
