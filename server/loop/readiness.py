"""The sockets that are ready, from the system: the seam between the reactor and one kernel. `Watcher` is the contract.

| watcher | by | where | learns that a peer left while bytes wait unread |
|---|---|---|---|
| `EpollWatcher` | epoll(7) | Linux | at once |
| `KqueueWatcher` | kqueue(2) | macOS, BSD | at once |
| `PortableWatcher` | `trio.lowlevel` and a task per socket | elsewhere | of a reset within CHECK_S, of an end after the bytes |

A peer that *left* sends nothing more. It is *gone* if it does not read either: the connection was reset, or the other end of a
local socket was closed. TCP cannot tell a closed peer from a half-closed one before something is sent to it.

*Invariant*: `forget` comes before the descriptor is closed, whose number may be another file's from then on.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import termios
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

import attrs
import trio

SOCKETS_PER_TURN: Final = 64
"""Sockets served before others have their turn. The next turn begins with the socket that has waited longest."""
CHECK_S: Final = 1.0


class Watcher(Protocol):
    """Sockets by descriptor. Every method but `wait` runs in the trio thread and returns at once."""

    @property
    def wait(self) -> Callable[[], Awaitable[None]]:
        """Wait until a socket is ready."""

    @property
    def ready(self) -> Callable[[], Sequence[tuple[int, int]]]:
        """Return (descriptor, events) of up to SOCKETS_PER_TURN sockets. Only `departure` understands events."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """The block in which `wait` may be called. Tasks of the watcher end with it."""

    def watch(self, descriptor: int) -> None:
        """Report bytes and a departure from now on. Raises OSError."""

    def watch_departure(self, descriptor: int) -> None:
        """Report a departure only, for a watched socket."""

    def watch_again(self, descriptor: int) -> None:
        """Report bytes again, after `watch_departure`."""

    def forget(self, descriptor: int) -> None:
        """Report nothing any more. Raises OSError."""

    def departure(self, descriptor: int, events: int) -> bool | None:
        """Return None while the peer may send more, True if it does not read either, else False."""

    def close(self) -> None:
        """Forget all."""


def open_watcher() -> Watcher:
    """Return the watcher for this system."""
    if hasattr(select, "epoll"):
        return EpollWatcher()
    if hasattr(select, "kqueue"):
        return KqueueWatcher()
    return PortableWatcher()


def unread_bytes(descriptor: int) -> int:
    """Return the number of received bytes that the kernel holds; 0 for a socket that is closed."""
    if descriptor < 0:
        return 0
    waiting = array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
    except OSError:
        return 0
    return waiting[0]


def _is_gone(descriptor: int) -> bool:
    """Return whether the peer of a socket, which sends nothing more, does not read either. Asks about POLLOUT alone: macOS
    reports POLLHUP for the end of any direction that is asked about."""
    return bool(_poll(descriptor, select.POLLOUT) & (select.POLLHUP | select.POLLERR))


def _poll(descriptor: int, events: int) -> int:
    """Return the present events of a socket."""
    poll = select.poll()
    poll.register(descriptor, events)
    found = poll.poll(0)
    return found[0][1] if found else 0


_SYSTEM: Final[Any] = select
"""Without types: each platform's stubs lack the other one's names."""
_IN: Final[int] = getattr(select, "EPOLLIN", 0)
_LEFT: Final[int] = getattr(select, "EPOLLRDHUP", 0)
_GONE: Final[int] = getattr(select, "EPOLLHUP", 0) | getattr(select, "EPOLLERR", 0)


@attrs.define(eq=False, repr=False)
class EpollWatcher:
    """An epoll object inside trio's. `wait` and `ready` are the system's own functions: they run in each turn."""

    wait: Callable[[], Awaitable[None]] = attrs.field(init=False)
    ready: Callable[[], Sequence[tuple[int, int]]] = attrs.field(init=False)
    _epoll: Any = attrs.field(factory=lambda: _SYSTEM.epoll())

    def __attrs_post_init__(self) -> None:
        self.wait = partial(trio.lowlevel.wait_readable, self._epoll.fileno())
        self.ready = partial(self._epoll.poll, 0, SOCKETS_PER_TURN)

    def running(self) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    def watch(self, descriptor: int) -> None:
        self._epoll.register(descriptor, _IN | _LEFT)

    def watch_departure(self, descriptor: int) -> None:
        self._epoll.modify(descriptor, _LEFT)

    def watch_again(self, descriptor: int) -> None:
        self._epoll.modify(descriptor, _IN | _LEFT)

    def forget(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)

    def departure(self, descriptor: int, events: int) -> bool | None:
        return bool(events & _GONE) if events & (_LEFT | _GONE) else None

    def close(self) -> None:
        self._epoll.close()


@attrs.define(eq=False, repr=False)
class KqueueWatcher:
    """A kqueue inside trio's. A socket of which only the departure matters is watched with EV_CLEAR: the kernel reports it once
    for each change, and with EV_EOF when the peer has left, whether or not its bytes were read."""

    wait: Callable[[], Awaitable[None]] = attrs.field(init=False)
    _kqueue: Any = attrs.field(factory=lambda: _SYSTEM.kqueue())

    def __attrs_post_init__(self) -> None:
        self.wait = partial(trio.lowlevel.wait_readable, self._kqueue.fileno())

    def running(self) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    def ready(self) -> list[tuple[int, int]]:
        end = _SYSTEM.KQ_EV_EOF
        found = self._kqueue.control(None, SOCKETS_PER_TURN, 0)
        return [(event.ident, 0 if not event.flags & end else _RESET if event.fflags else _END) for event in found]

    def watch(self, descriptor: int) -> None:
        self._change(descriptor, _SYSTEM.KQ_EV_ADD)

    def watch_departure(self, descriptor: int) -> None:
        self._change(descriptor, _SYSTEM.KQ_EV_DELETE, _SYSTEM.KQ_EV_ADD | _SYSTEM.KQ_EV_CLEAR)

    def watch_again(self, descriptor: int) -> None:
        self._change(descriptor, _SYSTEM.KQ_EV_DELETE, _SYSTEM.KQ_EV_ADD)

    def forget(self, descriptor: int) -> None:
        self._change(descriptor, _SYSTEM.KQ_EV_DELETE)

    def _change(self, descriptor: int, *flags: int) -> None:
        self._kqueue.control([_SYSTEM.kevent(descriptor, _SYSTEM.KQ_FILTER_READ, each) for each in flags], 0)

    def departure(self, descriptor: int, events: int) -> bool | None:
        return None if not events else events == _RESET or _is_gone(descriptor)

    def close(self) -> None:
        self._kqueue.close()


_END: Final = 1
_RESET: Final = 2


@attrs.define(eq=False, repr=False)
class _Socket:
    wants_bytes: bool = True
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Of its task."""
    reported: trio.Event = attrs.field(factory=trio.Event)
    """Set when `ready` has returned it: it may be ready again."""


@attrs.define(eq=False, repr=False)
class PortableWatcher:
    """A task for each socket: slower, for systems without epoll and kqueue."""

    _sockets: dict[int, _Socket] = attrs.field(factory=dict)
    _ready: dict[int, None] = attrs.field(factory=dict)
    """Sockets that are ready, the longest waiting first."""
    _is_ready: trio.Event = attrs.field(factory=trio.Event)
    _nursery: trio.Nursery | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                for descriptor, watched in self._sockets.items():
                    nursery.start_soon(self._attend, descriptor, watched)
                yield
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()

    async def wait(self) -> None:
        if not self._ready:
            self._is_ready = trio.Event()
            await self._is_ready.wait()
        else:
            await trio.lowlevel.checkpoint()

    def ready(self) -> list[tuple[int, int]]:
        found = list(islice(self._ready, SOCKETS_PER_TURN))
        for descriptor in found:
            del self._ready[descriptor]
            self._sockets[descriptor].reported.set()
        return [(descriptor, 0) for descriptor in found]

    def watch(self, descriptor: int) -> None:
        watched = self._sockets[descriptor] = _Socket()
        if self._nursery is not None:
            self._nursery.start_soon(self._attend, descriptor, watched)

    def watch_departure(self, descriptor: int) -> None:
        self._sockets[descriptor].wants_bytes = False

    def watch_again(self, descriptor: int) -> None:
        self.forget(descriptor)
        self.watch(descriptor)

    def forget(self, descriptor: int) -> None:
        """Cancelling takes the descriptor from trio at once, although the task ends later."""
        self._ready.pop(descriptor, None)
        self._sockets.pop(descriptor).scope.cancel()

    def departure(self, descriptor: int, events: int) -> bool | None:
        is_gone = _is_gone(descriptor)
        return is_gone if is_gone or (not unread_bytes(descriptor) and _poll(descriptor, select.POLLIN)) else None

    def close(self) -> None:
        for descriptor in list(self._sockets):
            self.forget(descriptor)

    async def _attend(self, descriptor: int, watched: _Socket) -> None:
        """Report a socket whenever it is ready, and look every CHECK_S at one of which only the departure is wanted."""
        with watched.scope:
            while self._is_watched(descriptor, watched):
                await trio.lowlevel.wait_readable(descriptor)
                while self._is_watched(descriptor, watched) and not watched.wants_bytes:
                    if self.departure(descriptor, 0) is not None:
                        break
                    await trio.sleep(CHECK_S)
                if self._is_watched(descriptor, watched):
                    watched.reported = trio.Event()
                    self._ready[descriptor] = None
                    self._is_ready.set()
                    await watched.reported.wait()

    def _is_watched(self, descriptor: int, watched: _Socket) -> bool:
        """False: it was forgotten after its task was woken, and before that ran."""
        return self._sockets.get(descriptor) is watched
