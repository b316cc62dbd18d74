"""Places for connections: `max_connections` of all listeners together, each listener with some that no other one takes.

A connection is a newcomer until its peer has shown who it is: by its hello or its login, or, where neither is asked for, by a
first request. When there is no place for another one the oldest newcomer goes, so that peers which say nothing keep nobody out;
when there is none either, it waits to be accepted. A connection whose peer is known goes for nobody.

Over HTTP nobody shows who it is. A connection counts as a newcomer except while its request is being answered; once it was
answered, or was sent a piece of the answer, it is the youngest again. Where answers change nothing, a connection that is being
answered goes when no other one can.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

KEPT_SHARE: Final = 8
"""A part of all places of this size is kept for the listeners, divided equally."""


@attrs.define(eq=False, repr=False)
class Places:
    """Owner: the listeners of a broker."""

    limit: int
    ends_busy: bool = False
    """Whether a connection that is being answered goes when no newcomer can."""
    _listeners: dict[ListenerPlaces, None] = attrs.field(factory=dict)
    _left: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    def open(self) -> ListenerPlaces:
        """Those of one more listener; `close` ends it."""
        places = ListenerPlaces(self)
        self._listeners[places] = None
        return places

    def close(self, places: ListenerPlaces) -> None:
        self._listeners.pop(places, None)
        self.left()

    def has_room(self, asking: ListenerPlaces) -> bool:
        """Return whether the listener may accept another connection, given the reserve of the other listeners."""
        kept = self._kept()
        others = sum(max(kept, len(each.connections)) for each in self._listeners if each is not asking)
        return len(asking.connections) + others < self.limit

    def _kept(self) -> int:
        return self.limit // (KEPT_SHARE * len(self._listeners))

    def end_newcomer(self, asking: ListenerPlaces) -> bool:
        """End one for another that asks, of its own listener if there is one; whether there is any to be ended."""
        kept = self._kept()
        others = (each for each in self._listeners if each is not asking and len(each.connections) > kept)
        for places in (asking, *others):
            if places.newcomers:
                oldest = next(iter(places.newcomers))
                places.leave(oldest)
                oldest.cancel()
                return True
        if self.ends_busy and asking.connections:
            oldest = next(iter(asking.connections))
            asking.leave(oldest)
            oldest.cancel()
            return True
        return False

    async def wait(self) -> None:
        """Until a connection has left."""
        await self._left.park()

    def left(self) -> None:
        """Somebody may come in."""
        if self._left:
            self._left.unpark_all()


@attrs.define(eq=False, repr=False)
class ListenerPlaces:
    """The places of one listener. A connection is named by the scope that ends it."""

    places: Places
    connections: dict[trio.CancelScope, None] = attrs.field(factory=dict)
    newcomers: dict[trio.CancelScope, None] = attrs.field(factory=dict)
    """Those whose peers are not known yet, the oldest first."""

    async def take(self, connection: trio.CancelScope) -> bool:
        """Give a newcomer its place, waiting for one. Answers whether another one had to go for it."""
        has_ended_one = False
        while not self.places.has_room(self):
            if self.places.end_newcomer(self):
                has_ended_one = True
            else:
                await self.places.wait()
        self.connections[connection] = self.newcomers[connection] = None
        return has_ended_one

    def known(self, connection: trio.CancelScope) -> None:
        """Its peer has shown who it is; the connection goes for nobody any more."""
        self.newcomers.pop(connection, None)

    def idle(self, connection: trio.CancelScope) -> None:
        """Count it as the youngest newcomer: it was answered."""
        if connection in self.connections:
            self.newcomers.pop(connection, None)
            self.newcomers[connection] = None
            self.places.left()

    def leave(self, connection: trio.CancelScope) -> None:
        """Free a place; a second time does nothing."""
        self.newcomers.pop(connection, None)
        if connection in self.connections:
            del self.connections[connection]
            self.places.left()
