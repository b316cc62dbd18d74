"""Who waits for a partition's high watermark to move: long-polling fetches. Waking is synchronous and wakes all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import attrs
import trio


@attrs.define(eq=False, repr=False)
class Waiters:
    """Events of waiting readers. Readers add and remove theirs, the partition's actor sets them."""

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
