"""Waits that other code ends: readers that wait for a partition to change, the clock of a coordinator, and locks by key,
which serialize the changes of a thing in the order of the requests.

*Invariant*, the lock order: a group's lock, then the lock of a share state, then the flusher. A task that holds one takes none
that comes before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, TypeVar

import attrs
import trio


@attrs.define(eq=False, repr=False)
class Waiters:
    """Events of readers that wait for a partition's high watermark to move. Readers add and remove theirs, the partition's
    actor sets them: synchronously, and all of them."""

    events: set[trio.Event] = attrs.field(factory=set)

    def __len__(self) -> int:
        return len(self.events)

    def wake_all(self) -> None:
        for event in self.events:
            event.set()


@contextmanager
def waiting_on(waiters: Iterable[Waiters]) -> Iterator[trio.Event]:
    """An event that is set when any of the partitions moves. Make it before looking: nothing is missed then."""
    event = trio.Event()
    joined = [each.events for each in waiters]
    for events in joined:
        events.add(event)
    try:
        yield event
    finally:
        for events in joined:
            events.discard(event)


def deadline_now_ms() -> int:
    """trio's time, which deadlines are in: a wall clock that is set moves none."""
    return int(trio.current_time() * 1000)


@attrs.define(eq=False, repr=False)
class Alarm:
    """The time at which the waiting task checks next. Owner: a coordinator."""

    _planned_ms: float = float("inf")
    _sooner: trio.Event = attrs.field(factory=trio.Event)

    async def wait(self, deadline_ms: float | None) -> None:
        """Sleep until just after the deadline (None: for ever), or until `bring_forward` names an earlier one."""
        self._planned_ms = float("inf") if deadline_ms is None else deadline_ms
        self._sooner = trio.Event()
        with trio.move_on_at((self._planned_ms + 1) / 1000):
            await self._sooner.wait()

    def bring_forward(self, deadline_ms: float | None) -> None:
        """Wake the task that waits if this comes before what it waits for."""
        if deadline_ms is not None and deadline_ms < self._planned_ms:
            self._sooner.set()


K = TypeVar("K", bound=Hashable)


@attrs.define(eq=False, repr=False)
class _Lock:
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0
    """Tasks that hold it or wait for it."""


@attrs.define(eq=False, repr=False)
class KeyedLocks(Generic[K]):
    """A lock for each key, kept while a task holds it or waits for it. Owner: a coordinator."""

    _locks: dict[K, _Lock] = attrs.field(factory=dict)

    def __contains__(self, key: object) -> bool:
        """Return whether a task holds a key's lock, or waits for it."""
        return key in self._locks

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold a key's lock for the time of the block."""
        entry = self._locks.setdefault(key, _Lock())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._locks[key]
