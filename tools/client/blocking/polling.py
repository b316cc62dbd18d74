"""Wait for sockets: by select.poll(), or by its likeness where the system has only select() (Windows)."""

from __future__ import annotations

import select
import time
from typing import Final, Protocol

READABLE: Final[int] = getattr(select, "POLLIN", 1)
WRITABLE: Final[int] = getattr(select, "POLLOUT", 4)
LONGEST_WAIT_S: Final = 0.2
"""Ctrl-C does not interrupt select() on Windows; this is how late it is noticed."""


class Poll(Protocol):
    """The part of select.poll() that a loop needs."""

    def register(self, descriptor: int, kinds: int, /) -> None: ...
    def unregister(self, descriptor: int, /) -> None: ...
    def poll(self, timeout_ms: float | None, /) -> list[tuple[int, int]]: ...


class SelectPoll:
    """A Poll on select(). It may return early with an empty list, and may report a socket that is not ready."""

    def __init__(self) -> None:
        self._kinds: dict[int, int] = {}

    def register(self, descriptor: int, kinds: int, /) -> None:
        """Watch a socket, or watch it for other kinds."""
        self._kinds[descriptor] = kinds

    def unregister(self, descriptor: int, /) -> None:
        """Watch a socket no longer. Raises KeyError."""
        del self._kinds[descriptor]

    def poll(self, timeout_ms: float | None, /) -> list[tuple[int, int]]:
        """Return ready sockets with their kinds, after at most LONGEST_WAIT_S."""
        seconds = LONGEST_WAIT_S if timeout_ms is None else min(timeout_ms / 1000, LONGEST_WAIT_S)
        if not self._kinds:  # select() without sockets is an error on Windows
            time.sleep(seconds)
            return []
        readers, writers = ([each for each, kinds in self._kinds.items() if kinds & kind] for kind in (READABLE, WRITABLE))
        try:
            readable, writable, _ = select.select(readers, writers, (), seconds)
        except OSError:  # one of them was closed: its reader finds out
            return list(self._kinds.items())
        ready = dict.fromkeys(readable, READABLE)
        for each in writable:
            ready[each] = ready.get(each, 0) | WRITABLE
        return list(ready.items())


def new_poll() -> Poll:
    """Return the system's poll, or a SelectPoll."""
    return select.poll() if hasattr(select, "poll") else SelectPoll()
