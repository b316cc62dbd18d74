"""Locks by key: they serialize the changes of a thing, in the order of the requests.

*Invariant*, the lock order: a group's lock, then the lock of a share state, then the flusher. A task that holds one takes none
that comes before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import attrs
import trio

K = TypeVar("K", bound=Hashable)


@attrs.define(eq=False, repr=False)
class _Lock:
    lock: trio.Lock = attrs.field(factory=trio.Lock)
    users: int = 0
    """Tasks that hold it or wait for it."""


@attrs.define(eq=False, repr=False)
class KeyedLocks(Generic[K]):
    """A lock for each key, kept while a task holds it or waits for it. Owner: a coordinator."""

    _locks: dict[K, _Lock] = attrs.field(factory=dict)

    def __contains__(self, key: object) -> bool:
        """Return whether a task holds a key's lock, or waits for it."""
        return key in self._locks

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold a key's lock for the time of the block."""
        entry = self._locks.setdefault(key, _Lock())
        entry.users += 1
        try:
            async with entry.lock:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._locks[key]
