"""What may not wait for ever, of all connections of a listener: one task looks once a second, and none while nothing waits. Who
waits asks no clock: the time of the last look is exact enough."""

from __future__ import annotations

from typing import Final, Protocol

import attrs
import trio

CHECK_S: Final = 1.0
"""How exact a deadline is, and the shortest one."""


class Expires(Protocol):
    """A request that has a timeout."""

    def expire(self) -> None:
        """Its time is over. Called once, unless it was removed before."""


@attrs.define(eq=False)
class Deadlines:
    """Owner: a listener. `run` is its task."""

    _waiting: dict[Expires, float] = attrs.field(factory=dict)
    """By what waits, when its time is over."""
    _looked_at: float = 0.0
    """In trio's time."""
    _first: trio.Event | None = None
    """Set when something begins to wait, while nothing does."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, who: Expires, seconds: float) -> None:
        """Have `expire` called after so long, and at most two checks."""
        if self._first is not None:
            self._looked_at = trio.current_time()
            self._first.set()
            self._first = None
        self._waiting[who] = self._looked_at + CHECK_S + seconds

    def remove(self, who: Expires) -> None:
        """It waits no longer."""
        self._waiting.pop(who, None)

    async def run(self) -> None:
        """Tell who has waited for too long, until cancelled."""
        while True:
            if not self._waiting:
                first = self._first = trio.Event()
                await first.wait()
            await trio.sleep(CHECK_S)
            self._looked_at = trio.current_time()
            self._expire()

    def _expire(self) -> None:
        """Apart from `run`, whose frame would keep who expired last, with its connection, until the next one does."""
        for who in [each for each, deadline in self._waiting.items() if deadline <= self._looked_at]:
            if self._waiting.pop(who, None) is not None:
                who.expire()
