"""What is put off to the end of a turn, so that more can join it: appends to a partition share a write, answers to a peer a
send.

A turn is a stretch of code in the trio thread without an `await`. Who serves many in one go opens it: a listener that has found
sockets to be ready, or an actor that answers a group. Outside of a turn nothing is put off.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from .turns import Turns


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
    _writers: dict[PutOff, None] = attrs.field(factory=dict)
    _senders: dict[PutOff, None] = attrs.field(factory=dict)

    def write_later(self, who: PutOff) -> None:
        """Have `end_turn` called before the turn ends, once however often this is asked."""
        self._writers[who] = None

    def send_later(self, who: PutOff) -> None:
        """The same, when nobody has anything to write any more: that is where answers come from."""
        self._senders[who] = None

    def __enter__(self) -> None:
        self._depth += 1
        self.is_open = True

    def __exit__(self, *_: object) -> None:
        try:
            if self._depth == 1:
                self._end()
        finally:
            self._depth -= 1
            self.is_open = self._depth > 0

    def _end(self) -> None:
        """What is done here may put off more: a session goes on when its answers have left."""
        while self._writers or self._senders:
            waiting = self._writers or self._senders
            for who in tuple(waiting):
                del waiting[who]
                who.end_turn()
