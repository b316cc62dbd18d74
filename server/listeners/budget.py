"""Bytes of requests in flight of all connections: past the limit, sessions wait before they read on."""

from __future__ import annotations

import attrs
import trio


@attrs.define(eq=False)
class InFlightBudget:
    """A counter with waiters. Owner: the listeners of one broker."""

    limit: int
    _used: int = 0
    _waiting: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)

    @property
    def used(self) -> int:
        return self._used

    async def acquire(self, size: int) -> None:
        """Count `size` bytes, waiting while the limit is passed. One request is always let in."""
        while self._used and self._used + size > self.limit:
            await self._waiting.park()
        self._used += size

    def release(self, size: int) -> None:
        self._used -= size
        if self._waiting:
            self._waiting.unpark_all()
