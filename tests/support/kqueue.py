"""An imitation of kqueue(2) for sockets, with the interface of Python's `select.kqueue`, made of epoll.

| kqueue | here |
|---|---|
| EV_ADD | level-triggered: reported in every `control` while bytes wait or the peer has left |
| EV_ADD with EV_CLEAR | edge-triggered: reported once for each change |
| EV_ADD of a watched descriptor | changes nothing: the kernel keeps EV_CLEAR as it was |
| EV_DELETE of an unwatched descriptor | FileNotFoundError |
| EV_EOF in the flags | the peer sends nothing more, whether or not its bytes were read |
| fflags | the socket's error, such as ECONNRESET |
| data | bytes that wait |
"""

from __future__ import annotations

import errno
import fcntl
import select
import struct
import termios
from collections.abc import Iterable
from typing import Any, Final

import attrs

KQ_FILTER_READ: Final = -1
KQ_EV_ADD: Final = 0x1
KQ_EV_DELETE: Final = 0x2
KQ_EV_CLEAR: Final = 0x20
KQ_EV_EOF: Final = 0x8000
NAMES: Final = ("KQ_FILTER_READ", "KQ_EV_ADD", "KQ_EV_DELETE", "KQ_EV_CLEAR", "KQ_EV_EOF")

_LINUX: Final[Any] = select
"""Without types: the stubs of other platforms lack epoll. Its names are taken now, because they are hidden later."""
if hasattr(select, "epoll"):
    EPOLL: Final = _LINUX.epoll
    IN, RDHUP, HUP = _LINUX.EPOLLIN, _LINUX.EPOLLRDHUP, _LINUX.EPOLLHUP
    ERR, ET = _LINUX.EPOLLERR, _LINUX.EPOLLET


@attrs.frozen
class Kevent:
    ident: int
    filter: int = KQ_FILTER_READ
    flags: int = KQ_EV_ADD
    fflags: int = 0
    data: int = 0
    udata: int = 0


@attrs.define(eq=False)
class Kqueue:
    _epoll: Any = attrs.field(factory=lambda: EPOLL())
    _watched: set[int] = attrs.field(factory=set)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def control(self, changes: Iterable[Kevent] | None, most: int, timeout: float | None = None) -> list[Kevent]:
        for change in changes or ():
            self._change(change)
        return [self._event(descriptor, events) for descriptor, events in self._epoll.poll(timeout, most)] if most else []

    def _change(self, change: Kevent) -> None:
        assert change.filter == KQ_FILTER_READ
        if change.flags & KQ_EV_DELETE:
            self._watched.discard(change.ident)
            self._epoll.unregister(change.ident)
        elif change.ident not in self._watched:
            assert change.flags & KQ_EV_ADD
            self._epoll.register(change.ident, IN | RDHUP | (ET if change.flags & KQ_EV_CLEAR else 0))
            self._watched.add(change.ident)

    @staticmethod
    def _event(descriptor: int, events: int) -> Kevent:
        [data] = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
        flags = KQ_EV_EOF if events & (RDHUP | HUP | ERR) else 0
        return Kevent(descriptor, KQ_FILTER_READ, flags, errno.ECONNRESET if events & ERR else 0, data)

    def close(self) -> None:
        self._epoll.close()
