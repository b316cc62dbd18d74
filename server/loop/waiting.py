"""Waits that other code ends: deadlines of requests, and readers that wait for a partition to change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import attrs
import trio

CHECK_S: Final = 1.0
"""How exact a deadline is, and the shortest one."""


class Expires(Protocol):
    """A request that has a timeout."""

    def expire(self) -> None:
        """Its time is over. Called once, unless it was removed before. Raises nothing: others wait for the same task."""


@attrs.define(eq=False, repr=False)
class Deadlines:
    """Deadlines of all connections of a listener. Owner: the listener; `run` is its task. The task checks once a second, and
    never while nothing waits. A new entry reads no clock: the next check does."""

    _new: dict[Expires, float] = attrs.field(factory=dict)
    """What began to wait since the last look, and for how many seconds: its time begins with the next one, however far the
    clock has gone meanwhile."""
    _waiting: dict[Expires, float] = attrs.field(factory=dict)
    """By what waits, when its time is over, in trio's time."""
    _first: trio.Event | None = None
    """Set when something begins to wait, while nothing does."""

    def __len__(self) -> int:
        return len(self._new) + len(self._waiting)

    def add(self, who: Expires, seconds: float) -> None:
        """Have `expire` called after so long, and at most two checks; below 0 is as 0."""
        if self._first is not None:
            self._first.set()
            self._first = None
        self._new[who] = seconds

    def remove(self, who: Expires) -> None:
        """It waits no longer."""
        if self._new.pop(who, None) is None:
            self._waiting.pop(who, None)

    async def run(self) -> None:
        """Tell who has waited for too long, until cancelled."""
        while True:
            if not (self._new or self._waiting):
                first = self._first = trio.Event()
                await first.wait()
            await trio.sleep(CHECK_S)
            self._look(trio.current_time())

    def _look(self, now: float) -> None:
        """Apart from `run`, whose frame would keep who expired last, with its connection, until the next one does."""
        over = [who for who, deadline in self._waiting.items() if deadline <= now]
        for who, seconds in self._new.items():
            self._waiting[who] = now + seconds
        self._new.clear()
        for who in over:
            if self._waiting.pop(who, None) is not None:
                who.expire()


@attrs.define(eq=False, repr=False)
class Waiters:
    """Events of readers that wait for a partition's high watermark to move. Readers add and remove theirs, the partition's
    actor sets them: synchronously, and all of them."""

    _events: set[trio.Event] = attrs.field(factory=set)

    def __len__(self) -> int:
        return len(self._events)

    def wake_all(self) -> None:
        for event in self._events:
            event.set()


@contextmanager
def waiting_on(waiters: Iterable[Waiters]) -> Iterator[trio.Event]:
    """An event that is set when any of the partitions moves. Make it before looking: nothing is missed then."""
    event = trio.Event()
    joined = [each._events for each in waiters]
    for events in joined:
        events.add(event)
    try:
        yield event
    finally:
        for events in joined:
            events.discard(event)
