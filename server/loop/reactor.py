"""The sockets of a listener's sessions, watched together: one epoll object inside trio's, and one task that waits for it.

A turn of that task serves all sockets that are ready, so that their requests share what can be shared: a write for each
partition, a send for each peer. A session needs no task to be read from, only to wait for something.

A session that reads nothing at the moment is left alone until its peer sends something or goes away. Then it is told of a
departure, once, and not woken again by bytes that it does not want yet.
"""

from __future__ import annotations

import contextlib
import select
from typing import Final, Protocol

import attrs
import trio

from .turns import Gathering
from .waiting import Deadlines

SOCKETS_PER_TURN: Final = 64
"""That are served before others have their turn; the kernel tells of the rest again, the longest waiting first."""

READING: Final = "reading"
"""The only state of a session in which it is read from."""

IN: Final = select.EPOLLIN
_LEFT: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_ALL: Final = IN | select.EPOLLRDHUP


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


@attrs.define(eq=False, repr=False)
class _Watched:
    session: Reads
    events: int = _ALL
    """What is asked for; 0: the socket is not watched any more, since its peer has left."""


@attrs.define(eq=False, repr=False)
class Reactor:
    """Owner: a listener. `run` is its task; sessions add and remove themselves."""

    gathering: Gathering
    deadlines: Deadlines = attrs.field(factory=Deadlines)
    """Of the sessions' requests."""
    _epoll: select.epoll = attrs.field(factory=select.epoll)
    _watched: dict[int, _Watched] = attrs.field(factory=dict)
    """By descriptor."""
    _again: dict[Reads, None] = attrs.field(factory=dict)
    is_serving: bool = False
    """Whether one of its turns is under way: what is left to a task runs after it."""

    async def run(self) -> None:
        """Serve what is ready, until it is cancelled."""
        descriptor, turns = self._epoll.fileno(), self.gathering.turns
        while True:
            if self._again:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(descriptor)
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
                for descriptor, events in self._epoll.poll(0, SOCKETS_PER_TURN):
                    watched = self._watched.get(descriptor)
                    if watched is None:
                        continue
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
        if events & _LEFT:
            watched.events = 0
            self._epoll.unregister(descriptor)
            watched.session.on_departure(bool(events & (select.EPOLLHUP | select.EPOLLERR)))
        elif watched.events & IN:
            watched.events = select.EPOLLRDHUP
            self._epoll.modify(descriptor, watched.events)

    def add(self, session: Reads) -> None:
        """Watch a session's socket until `remove`. Raises OSError."""
        self._epoll.register(session.descriptor, _ALL)
        self._watched[session.descriptor] = _Watched(session)

    def expect(self, session: Reads) -> None:
        """The session wants bytes again, after it did not want any."""
        watched = self._watched.get(session.descriptor)
        if watched is not None and watched.events != _ALL:
            (self._epoll.modify if watched.events else self._epoll.register)(session.descriptor, _ALL)
            watched.events = _ALL

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
        if watched is not None and watched.events:
            self._epoll.unregister(session.descriptor)

    def close(self) -> None:
        """Nobody is watched any more."""
        self._watched.clear()
        self._again.clear()
        self._epoll.close()
