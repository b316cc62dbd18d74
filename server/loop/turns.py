"""A turn of the event loop: how much is done in it, and what is put off to its end.

A turn is a stretch of code in the trio thread without an `await`. Who serves many in one go opens it: a listener that has found
sockets to be ready, or an actor that answers a group. What is put off to its end more can join: appends to a partition share a
write, answers to a peer a send. Outside of a turn nothing is put off.

How long a task keeps the event loop from the others is counted in steps (see `protocol.records.steps`). Ordinary work is done
in the turn in which it was asked for. What pauses oftener than fits a turn waits for its place among others of its kind, one
at a time, and goes on for one pause in each turn of the scheduler. Not in a thread: an interpreter that runs there is given
back after 5 ms, and everybody who waits for a reply would wait so long for it at every system call.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs
import trio

from ...protocol.records.steps import STEPS_PER_PAUSE

STEPS_PER_TURN: Final = 6 * STEPS_PER_PAUSE
"""Below 2 ms."""


@attrs.define(eq=False, repr=False)
class Turns:
    """The steps spent since others last had their turn. Owner: the trio thread."""

    large_work: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(1))
    """Held by who does what does not fit a turn, as long as it needs the processor. It keeps memory bounded too: of many
    batches that unpack to 64 MiB one is unpacked at a time."""
    _steps: int = 0

    def begin(self) -> None:
        """Others have just had their turn: for a task that waits before each of its own, and so knows."""
        self._steps = 0

    def spend(self, steps: int) -> bool:
        """Spend steps and return whether they were the last that fit the turn."""
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

    def fit(self, steps: int) -> bool:
        """Spend steps if they fit this turn beside others. False: nothing was done, and whoever spends next does the last that
        fits."""
        if self._steps + steps < STEPS_PER_TURN:
            self._steps += steps
            return True
        self._steps = STEPS_PER_TURN
        return False


class PutOff(Protocol):
    """Somebody with work that can wait until the turn's end."""

    def end_turn(self) -> None:
        """Do it. Raises nothing: the rest of the turn is others'."""


@attrs.define(eq=False, repr=False)
class Gathering:
    """Owner: the trio thread. `with gathering:` is a turn, which may contain others; they end with the outermost."""

    turns: Turns = attrs.field(factory=Turns)
    """How much is done in a turn."""
    is_open: bool = False
    """Whether something may be put off."""
    _depth: int = 0
    writers: dict[PutOff, None] = attrs.field(factory=dict)
    """Those whose `end_turn` is called before the turn ends, once however often they were put in."""
    senders: dict[PutOff, None] = attrs.field(factory=dict)
    """The same, when nobody has anything to write any more: that is where answers come from."""

    def __enter__(self) -> None:
        self._depth += 1
        self.is_open = True

    def __exit__(self, *_: object) -> None:
        """End the turn of all writers and senders. That can defer more work: a session continues when its responses have
        left."""
        try:
            while self._depth == 1 and (waiting := self.writers or self.senders):
                for who in tuple(waiting):
                    del waiting[who]
                    who.end_turn()
        finally:
            self._depth -= 1
            self.is_open = self._depth > 0
