"""How long a task keeps the event loop from the others, counted in steps (see `protocol.records.steps`).

Ordinary work is done in the turn in which it was asked for. What pauses oftener than fits a turn waits for its place among
others of its kind, one at a time, and goes on for one pause in each turn of the scheduler. Not in a thread: an interpreter that
runs there is given back after 5 ms, and everybody who waits for a reply would wait so long for it at every system call.
"""

from __future__ import annotations

from typing import Final

import attrs
import trio

from ...protocol.records.steps import STEPS_PER_PAUSE

STEPS_PER_TURN: Final = 6 * STEPS_PER_PAUSE
"""Below 2 ms."""


@attrs.define(eq=False, repr=False)
class Turns:
    """What has been done since somebody let others have their turn. Owner: the trio thread."""

    large_work: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(1))
    """Held by who does what does not fit a turn, as long as it needs the processor. It keeps memory bounded too: of many
    batches that unpack to 64 MiB one is unpacked at a time."""
    _steps: int = 0

    def begin(self) -> None:
        """Others have just had their turn: for a task that waits before each of its own, and so knows."""
        self._steps = 0

    def spend(self, steps: int) -> bool:
        """Whether this was the last that fits a turn."""
        self._steps += steps
        if self._steps < STEPS_PER_TURN:
            return False
        self._steps = 0
        return True

    def done(self, steps: int) -> None:
        """So much was done where `fit` could not tell: nothing may fit this turn any more."""
        self._steps += steps

    async def checkpoint(self, steps: int) -> None:
        """The checkpoint of who does so much without waiting for anything: ends for who is cancelled, always; others have their
        turn when what was done fills one. A turn of the scheduler for each append would cost as much as the append."""
        if self.spend(steps):
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    def has_room(self, steps: int) -> bool:
        """Whether `fit` would spend them."""
        return self._steps + steps < STEPS_PER_TURN

    def fit(self, steps: int) -> bool:
        """Spend steps if they fit this turn beside others. False: nothing was done, and whoever spends next does the last that
        fits."""
        if self._steps + steps < STEPS_PER_TURN:
            self._steps += steps
            return True
        self._steps = STEPS_PER_TURN
        return False
