"""Notices that peers go away whose sockets nobody reads: while a fetch is parked, or memory is waited for.

One epoll object for all connections of a listener, inside trio's: to be watched costs two system calls and no task. The end of
a peer's stream is told although bytes lie before it. Where there is no epoll nobody is watched, and keepalive is what is left.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator
from typing import Final

import attrs
import trio

from .bugs import report_bug
from .counters import ProtocolCounters

HAS_EPOLL: Final = hasattr(select, "epoll")
EVENTS_PER_TURN: Final = 64

Left = Callable[[bool], None]
"""Told once; whether the peer has gone altogether. Else it only sends no more, and may still read."""


@attrs.define(eq=False)
class Departures:
    """Owner: a listener. `run` is its task."""

    counters: ProtocolCounters
    _epoll: select.epoll | None = attrs.field(factory=lambda: select.epoll() if HAS_EPOLL else None)
    _watched: dict[int, Left] = attrs.field(factory=dict)
    """By descriptor."""

    async def run(self) -> None:
        """Tell who has left, until it is cancelled."""
        if self._epoll is None:
            return
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for event in self._epoll.poll(0, EVENTS_PER_TURN):
                self._tell(*event)

    def _tell(self, descriptor: int, events: int) -> None:
        """Raises nothing: one task watches all connections of the listener. A frame of its own: a session must not be kept
        by who told it last."""
        left = self._forget(descriptor)
        try:
            if left is not None:
                left(bool(events & (select.EPOLLHUP | select.EPOLLERR)))
        except Exception as exc:
            report_bug(self.counters, "the departure of a peer", exc)

    def close(self) -> None:
        """Nobody is told any more."""
        self._watched.clear()
        if self._epoll is not None:
            self._epoll.close()
            self._epoll = None

    @contextlib.contextmanager
    def watching(self, descriptor: int, left: Left) -> Iterator[None]:
        """Have `left` called when the peer leaves within the block. The first who asks about a descriptor is told."""
        epoll = self._epoll
        if epoll is None or descriptor < 0 or descriptor in self._watched:
            yield
            return
        epoll.register(descriptor, select.EPOLLRDHUP)
        self._watched[descriptor] = left
        try:
            yield
        finally:
            self._forget(descriptor)

    def _forget(self, descriptor: int) -> Left | None:
        left = self._watched.pop(descriptor, None)
        if left is not None and self._epoll is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._epoll.unregister(descriptor)
        return left
