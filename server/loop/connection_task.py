"""The only task of a connection: it waits for one obstacle of a request at a time, and for deadlines. In between it rests until
a wake-up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

Work = Callable[[], Awaitable[None]]
"""What has to be waited for before the next request is taken up."""


@attrs.define(eq=False, repr=False)
class ConnectionTask:
    """Owner: a session. `rest` and `do_work` belong to the task itself, the others may be called from anywhere."""

    work: Work | None = None
    """What is waited for, or will be when the task comes to it."""
    _ends_early: trio.CancelScope | None = None
    """Around work that nobody wants when no more requests are taken."""
    _resting: trio.lowlevel.Task | None = None
    """The task, while it has nothing to do."""
    _alarms: list[tuple[float, Callable[[], None]]] = attrs.field(factory=list)

    def work_on(self, work: Work, *, ends_with_reading: bool) -> None:
        """Have something waited for, while nothing else is."""
        assert self.work is None
        self.work = work
        self._ends_early = trio.CancelScope() if ends_with_reading else None
        self.wake()

    @property
    def is_for_next_request(self) -> bool:
        """Return whether the awaited work belongs to a request that has not started yet."""
        return self._ends_early is not None

    async def do_work(self) -> None:
        """Wait for it."""
        assert self.work is not None
        try:
            if self._ends_early is None:
                await self.work()
            else:
                with self._ends_early:
                    await self.work()
        finally:
            self.work = self._ends_early = None

    def end_reading(self) -> None:
        """No more requests are taken: work that was for the next one ends."""
        if self._ends_early is not None:
            self._ends_early.cancel()
        self.wake()

    def ring_at(self, moment: float, action: Callable[[], None]) -> None:
        """Have `action` called at a moment of trio's clock, or behind the work that is waited for then. To be followed by
        `wake`, unless the task is not resting yet."""
        self._alarms.append((moment, action))

    async def rest(self, until: float) -> float:
        """Wait to be woken, to the next alarm at most, and call what is due. Answers trio's time."""
        with trio.move_on_at(min(until, *(moment for moment, _ in self._alarms)) if self._alarms else until):
            await self._wait()
        return self._ring()

    async def _wait(self) -> None:
        def leave(_: object) -> trio.lowlevel.Abort:
            self._resting = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._resting = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(leave)

    def _ring(self) -> float:
        now = trio.current_time()
        due = [action for moment, action in self._alarms if moment <= now]
        if due:
            self._alarms = [alarm for alarm in self._alarms if alarm[0] > now]
            for action in due:
                action()
        return now

    def wake(self) -> None:
        """There is something to do."""
        if self._resting is not None:
            trio.lowlevel.reschedule(self._resting)
            self._resting = None

    def forget(self) -> None:
        """The connection has ended. Keep nothing."""
        self.work = None
        self._alarms.clear()
