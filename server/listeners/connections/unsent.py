"""Memory of answers that peers have not taken yet, of all connections of a broker.

Up to FREE_BYTES of a connection are not counted. A fetch takes what it may read before it reads: half of what is left at the
most, and FREE_BYTES in any case, so that peers which never read take the memory of nobody who does. When most of the limit is
taken, a connection may leave less unread, and one that takes nothing is given up sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from ....protocol.limits import KIB, MIB

FREE_BYTES: Final = 64 * KIB
MAX_UNSENT_BYTES: Final = 16 * MIB
"""Answers that a peer has not taken; past it no more requests are read from it, and no long poll is answered."""
MAX_UNSENT_UNDER_PRESSURE_BYTES: Final = FREE_BYTES
SEND_TIMEOUT_S: Final = 60.0
"""A peer that does not take a piece for so long is gone."""
SEND_TIMEOUT_UNDER_PRESSURE_S: Final = 5.0
"""A peer that takes nothing at all for so long."""


@attrs.define(eq=False, repr=False)
class UnsentAnswers:
    """The memory of unsent responses of all connections. Owner: the broker's listeners."""

    limit: int
    used: int = 0
    is_pressed: bool = False
    """Whether more than three quarters are taken."""
    _slow: dict[object, Callable[[], None]] = attrs.field(factory=dict)
    """Who waits for its peer to take something, and how to have it wait less."""

    def room(self, wanted: int) -> int:
        """Return the part of `wanted` that a fetch may read."""
        if wanted <= FREE_BYTES:
            return wanted
        return min(wanted, max(FREE_BYTES, (self.limit - self.used) // 2))

    def change(self, size: int) -> None:
        """More, or less, is counted."""
        self.used += size
        was_pressed, self.is_pressed = self.is_pressed, self.used > self.limit // 4 * 3
        if self.is_pressed and not was_pressed:
            for hurry in list(self._slow.values()):
                hurry()

    @property
    def most_per_connection(self) -> int:
        """Return the bytes that a peer may leave unread before the server stops reading from it."""
        return MAX_UNSENT_UNDER_PRESSURE_BYTES if self.is_pressed else MAX_UNSENT_BYTES

    def wait(self, who: object, hurry: Callable[[], None]) -> None:
        """`hurry` is called when memory becomes scarce, until `done`."""
        self._slow[who] = hurry

    def done(self, who: object) -> None:
        self._slow.pop(who, None)
