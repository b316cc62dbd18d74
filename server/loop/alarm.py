"""The clock of a coordinator: its task sleeps until the next deadline, unless a nearer one comes up."""

from __future__ import annotations

import attrs
import trio


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
