"""The sockets of a listener's sessions, watched together by one `Watcher` (`readiness`), and one task that waits for it.

A turn of that task serves all sockets that are ready, so that their requests share what can be shared: a write for each
partition, a send for each peer. A session needs no task to be read from, only to wait for something.

A session that reads nothing at the moment is left alone until its peer sends something or goes away. Then it is told of a
departure, once, and not woken again by bytes that it does not want yet.

`ConnectionTask` is the only task of a connection: it waits for one obstacle of a request at a time, and for deadlines. In
between it rests until a wake-up. `Deadlines` are those of the requests of all connections of a listener.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, Protocol

import attrs
import trio

from .readiness import Watcher, open_watcher
from .turns import Gathering

READING: Final = "reading"
"""The only state of a session in which it is read from."""


class Wanted(Enum):
    """The events of a socket that the reactor wants to learn."""

    BYTES = "bytes, and a departure"
    DEPARTURE = "a departure"
    NOTHING = "nothing: the peer has left, and the socket is not watched any more"


class Reads(Protocol):
    """A session, as the reactor knows it."""

    @property
    def descriptor(self) -> int:
        """Of its socket."""

    @property
    def state(self) -> str:
        """READING: it would read now."""

    def on_bytes(self) -> None:
        """There may be something to be received: bytes, the end, or an error."""

    def on_departure(self, is_gone: bool) -> None:
        """The peer sends no more; `is_gone`: nor does it read."""

    def on_next_turn(self) -> None:
        """Others had their turn, see `Reactor.again`."""

    def end_with(self, error: Exception) -> None:
        """An unhandled exception, which ends this session and nothing else."""


CHECK_S: Final = 1.0
"""How exact a deadline is, and the shortest one."""


class Expires(Protocol):
    """A request that has a timeout."""

    def expire(self) -> None:
        """Its time is over. Called once, unless it was removed before. Raises nothing: others wait for the same task."""


class Deadlines(dict[Expires, float]):
    """Deadlines of all connections of a listener, by what waits. Owner: the listener; `run` is its task. The task checks once a
    second, and never while nothing waits. A new entry reads no clock: the next check does.

    A deadline is in trio's time. Below 0 it is -1 less the seconds of an entry that no check has seen: its time begins with the
    next one, however far the clock has gone meanwhile. What waits no longer is popped.
    """

    __slots__ = ("_first",)

    def __init__(self) -> None:
        super().__init__()
        self._first: trio.Event | None = None
        """Set when something begins to wait, while nothing does."""

    def add(self, who: Expires, seconds: float) -> None:
        """Have `expire` called after so long, and at most two checks; below 0 is as 0."""
        if self._first is not None:
            self._first.set()
            self._first = None
        self[who] = -1.0 - seconds if seconds > 0 else -1.0

    async def run(self) -> None:
        """Tell who has waited for too long, until cancelled."""
        while True:
            if not self:
                first = self._first = trio.Event()
                await first.wait()
            await trio.sleep(CHECK_S)
            self._look(trio.current_time())

    def _look(self, now: float) -> None:
        """Apart from `run`, whose frame would keep who expired last, with its connection, until the next one does."""
        over = []
        for who, deadline in self.items():
            if deadline < 0:
                self[who] = now - 1.0 - deadline
            elif deadline <= now:
                over.append(who)
        for who in over:
            if self.pop(who, None) is not None:
                who.expire()


@attrs.define(eq=False, repr=False)
class _Watched:
    session: Reads
    wanted: Wanted = Wanted.BYTES


@attrs.define(eq=False, repr=False)
class Reactor:
    """Owner: a listener. `run` is its task; sessions add and remove themselves."""

    gathering: Gathering
    deadlines: Deadlines = attrs.field(factory=Deadlines)
    """Of the sessions' requests."""
    _watcher: Watcher = attrs.field(factory=open_watcher)
    _watched: dict[int, _Watched] = attrs.field(factory=dict)
    """By descriptor."""
    _again: dict[Reads, None] = attrs.field(factory=dict)
    is_serving: bool = False
    """Whether one of its turns is under way: what is left to a task runs after it."""

    async def run(self) -> None:
        """Serve what is ready, until it is cancelled."""
        wait, turns = self._watcher.wait, self.gathering.turns
        async with self._watcher.running():
            while True:
                if self._again:
                    await trio.lowlevel.checkpoint()
                else:
                    await wait()
                turns.begin()
                self._turn()

    def _turn(self) -> None:
        """A frame of its own: a session must not be kept by who served it last."""
        again = self._again
        if again:
            self._again = {}
        self.is_serving = True
        try:
            with self.gathering:
                for session in again:
                    try:
                        session.on_next_turn()
                    except Exception as exc:
                        self._end(session, exc)
                all_watched = self._watched
                for descriptor, events in self._watcher.ready():
                    if descriptor not in all_watched:
                        continue
                    watched = all_watched[descriptor]
                    try:
                        if watched.session.state == READING:
                            watched.session.on_bytes()
                        else:
                            self._notice(descriptor, watched, events)
                    except Exception as exc:
                        self._end(watched.session, exc)
        finally:
            self.is_serving = False

    def _end(self, session: Reads, error: Exception) -> None:
        """End a session after an unhandled exception; the turn of the others continues."""
        with contextlib.suppress(OSError):
            self.remove(session)
        session.end_with(error)

    def _notice(self, descriptor: int, watched: _Watched, events: int) -> None:
        """Something has happened to a socket that nobody reads from."""
        is_gone = self._watcher.departure(descriptor, events)
        if is_gone is not None:
            watched.wanted = Wanted.NOTHING
            self._watcher.forget(descriptor)
            watched.session.on_departure(is_gone)
        elif watched.wanted is Wanted.BYTES:
            watched.wanted = Wanted.DEPARTURE
            self._watcher.watch_departure(descriptor)

    def add(self, session: Reads) -> None:
        """Watch a session's socket until `remove`. Raises OSError."""
        self._watcher.watch(session.descriptor)
        self._watched[session.descriptor] = _Watched(session)

    def expect(self, session: Reads) -> None:
        """The session wants bytes again, after it did not want any."""
        watched = self._watched.get(session.descriptor)
        if watched is not None and watched.wanted is not Wanted.BYTES:
            (self._watcher.watch_again if watched.wanted is Wanted.DEPARTURE else self._watcher.watch)(session.descriptor)
            watched.wanted = Wanted.BYTES

    def again(self, session: Reads) -> bool:
        """Have a session go on in the next turn, together with those that are ready then. Only in a turn; False outside of one:
        nobody would begin the next."""
        if self.is_serving:
            self._again[session] = None
        return self.is_serving

    def remove(self, session: Reads) -> None:
        """Watch it no more; its descriptor may be another file's from now on."""
        self._again.pop(session, None)
        watched = self._watched.pop(session.descriptor, None)
        if watched is not None and watched.wanted is not Wanted.NOTHING:
            self._watcher.forget(session.descriptor)

    def close(self) -> None:
        """Nobody is watched any more."""
        self._watched.clear()
        self._again.clear()
        self._watcher.close()


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
