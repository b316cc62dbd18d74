"""Places for connections: `max_connections` of all listeners together, each listener with some that no other one takes.

A connection is a newcomer until its peer has shown who it is: by its hello or its login, or, where neither is asked for, by a
first request. Newcomers have a quarter of the places of a listener at most. When there is no place for another
one, the oldest newcomer goes, so that peers which say nothing keep nobody out; when there is none, it waits to be accepted.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

KEPT_SHARE: Final = 8
"""A part of all places of this size is kept for the listeners, divided equally."""
NEWCOMERS_SHARE: Final = 4
"""Of all places, for a listener's newcomers."""


@attrs.define(eq=False)
class Places:
    """Owner: the listeners of a broker."""

    limit: int
    _listeners: dict[ListenerPlaces, None] = attrs.field(factory=dict)
    _left: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def open(self) -> ListenerPlaces:
        """Those of one more listener; `close` ends it."""
        places = ListenerPlaces(self)
        self._listeners[places] = None
        return places

    def close(self, places: ListenerPlaces) -> None:
        self._listeners.pop(places, None)
        self._left.unpark_all()

    @property
    def taken(self) -> int:
        return sum(len(each.connections) for each in self._listeners)

    def has_room(self, asking: ListenerPlaces) -> bool:
        """Whether one listener may have another connection, with what is kept for the others."""
        kept = self.limit // (KEPT_SHARE * len(self._listeners))
        others = sum(max(kept, len(each.connections)) for each in self._listeners if each is not asking)
        return len(asking.connections) + others < self.limit

    async def wait(self) -> None:
        """Until a connection has left."""
        await self._left.park()

    def left(self) -> None:
        if self._left:
            self._left.unpark_all()


@attrs.define(eq=False)
class ListenerPlaces:
    """The places of one listener. A connection is named by the scope that ends it."""

    places: Places
    connections: dict[trio.CancelScope, None] = attrs.field(factory=dict)
    newcomers: dict[trio.CancelScope, None] = attrs.field(factory=dict)
    """Those whose peers are not known yet, the oldest first."""

    @property
    def most_newcomers(self) -> int:
        return max(1, self.places.limit // NEWCOMERS_SHARE)

    async def take(self, connection: trio.CancelScope) -> int:
        """Give a newcomer its place, waiting for one. Answers how many others had to go for it."""
        ended = 0
        while len(self.newcomers) >= self.most_newcomers or not self.places.has_room(self):
            if self.newcomers:
                oldest = next(iter(self.newcomers))
                self.leave(oldest)
                oldest.cancel()
                ended += 1
            else:
                await self.places.wait()
        self.connections[connection] = self.newcomers[connection] = None
        return ended

    def known(self, connection: trio.CancelScope) -> None:
        """Its peer has shown who it is; the connection goes for nobody any more."""
        self.newcomers.pop(connection, None)

    def leave(self, connection: trio.CancelScope) -> None:
        """Free a place; a second time does nothing."""
        self.newcomers.pop(connection, None)
        if connection in self.connections:
            del self.connections[connection]
            self.places.left()
