"""What a script knows of share groups: who has joined, whose session is where, which records somebody has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import attrs
from triolog.protocol.kafka.messages.share_groups import DescribeShareGroupOffsetsRequest

from ..world import Step, World

STEADY, BRIEF, RESTING, CLASSIC = "steady", "brief", "resting", "classic"
"""A group whose locks outlast the script, one whose locks do not, one that never has members, one of another kind."""
LOCK_MS: Final = {STEADY: 3_600_000, BRIEF: 2_500}
SHARED: Final = {"single": 1, "double": 2}
"""Topics and their partitions."""
LIMIT_S: Final = LOCK_MS[BRIEF] / 1000 / 3
"""No lock of `BRIEF` is older than that when something is asked of it: it would end between two answers."""
SLACK_S: Final = 1.0
CYCLE, OF_BRIEF = 75, 15
"""Of so many requests so many are of members of `BRIEF`: their locks end while others ask."""

Key = tuple[str, str, int]
"""Group, topic, partition."""


@attrs.define(eq=False)
class Reader:
    group: str
    id: str
    topics: tuple[str, ...] = ()
    """Subscribed to; none: it has not joined."""
    member_epoch: int = 0
    session_epoch: int = 0
    """Of the next request; 0: there is no session."""
    parts: dict[tuple[str, int], None] = attrs.field(factory=dict)
    """Of the session."""

    def forget_session(self) -> None:
        self.session_epoch = 0
        self.parts.clear()


@attrs.define(eq=False)
class Sharing(World):
    """Owner: one script."""

    readers: list[Reader] = attrs.field(
        factory=lambda: [Reader(group, f"{group}-{name}") for group in (STEADY, BRIEF) for name in "abc"]
    )
    taken: dict[Key, dict[int, str]] = attrs.field(factory=dict)
    """Offsets that were given to somebody, and to whom."""
    begun: set[str] = attrs.field(factory=set)
    """Groups that have had a member."""
    unsettled: set[str] = attrs.field(factory=set)
    """Groups whose members have changed."""
    asleep: set[Key] = attrs.field(factory=set)
    """What nobody has read since the last connection of the group ended: Kafka makes it ready when somebody does."""
    dropped: set[str] = attrs.field(factory=set)
    """Members whose connections are to end."""
    turn: int = 0
    """Which request of the script is drawn."""
    _locked: tuple[float, float] | None = None
    """When the first and the last lock of `BRIEF` began."""

    def joined(self, group: str) -> list[Reader]:
        return [reader for reader in self.readers if reader.group == group and reader.topics]

    def reader(self) -> Reader:
        """One of the group whose turn it is."""
        group = BRIEF if self.turn % CYCLE < OF_BRIEF else STEADY
        return self.one_of([reader for reader in self.readers if reader.group == group])

    def reader_step(self, reader: Reader, body: Any, **more: Any) -> Step:
        return self.step(body, connection=reader.id, **more)

    def key(self, reader: Reader, part: tuple[str, int]) -> Key:
        return (reader.group, *part)

    def held_by(self, reader: Reader, part: tuple[str, int]) -> list[int]:
        return sorted(offset for offset, who in self.taken.get(self.key(reader, part), {}).items() if who == reader.id)

    def give_back_all(self, reader: Reader) -> None:
        for held in self.taken.values():
            for offset in [offset for offset, who in held.items() if who == reader.id]:
                del held[offset]

    def lock(self, group: str) -> None:
        """Somebody was given records, or may keep them for longer."""
        if group == BRIEF:
            now = time.monotonic()
            self._locked = (self._locked[0] if self._locked else now, now)

    def let_locks_pass(self, step: Step, sleep: Callable[[float], None]) -> None:
        """Wait until no lock of `BRIEF` is left, if one might end soon and the answer is about them."""
        if self._locked is None or time.monotonic() - self._locked[0] < LIMIT_S or not _is_about_locks(step):
            return
        sleep(max(0.0, self._locked[1] + LOCK_MS[BRIEF] / 1000 + SLACK_S - time.monotonic()))
        self._locked = None
        for key in [key for key in self.taken if key[0] == BRIEF]:
            del self.taken[key]


def _is_about_locks(step: Step) -> bool:
    """Of `BRIEF`: what its members fetch and acknowledge, and how far it has come."""
    if isinstance(step.body, DescribeShareGroupOffsetsRequest):
        return any(group.group_id == BRIEF for group in step.body.groups)
    return step.connection.startswith(BRIEF)
