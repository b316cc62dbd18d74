"""Deadlines by key, the next one first. To move a deadline further away, as every heartbeat does, costs a dictionary entry and
leaves the queue as it is; an entry that is too early is corrected when it comes up. The queue is rebuilt when most of it is
stale, so its size is bounded by the number of keys whatever clients do."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import attrs

K = TypeVar("K", bound=Hashable)

_STALE_ENTRIES: Final = 64
"""How many entries more than twice the keys the queue may have."""


@attrs.define(eq=False, repr=False)
class Timers(Generic[K]):
    """See the module. Times are ms. Owner: the groups that it is part of."""

    _deadlines: dict[K, int] = attrs.field(factory=dict)
    _queued: dict[K, int] = attrs.field(factory=dict)
    """The earliest entry of each key in the queue."""
    _queue: list[tuple[int, int, K]] = attrs.field(factory=list)
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count)
    """Of two entries for one moment the older one comes first; keys are never compared."""

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    def deadline(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def set(self, key: K, deadline_ms: int) -> None:
        """Set the deadline of a key, in place of the one before."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)
            if len(self._queue) > 2 * len(self._deadlines) + _STALE_ENTRIES:
                self._rebuild()

    def cancel(self, key: K) -> None:
        """Remove the deadline of a key, if it has one."""
        self._deadlines.pop(key, None)

    @property
    def earliest(self) -> int | None:
        """A lower bound of `next_deadline`. None when there is no deadline."""
        return self._queue[0][0] if self._queue else None

    def next_deadline(self) -> int | None:
        """Return the earliest deadline, None when there is none."""
        while self._queue:
            queued_ms, _, key = self._queue[0]
            if self._deadlines.get(key) == queued_ms:
                return queued_ms
            self._put_right()
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key with the earliest deadline, if that has come."""
        deadline_ms = self.next_deadline()
        if deadline_ms is None or deadline_ms > now_ms:
            return None
        key = self._pop()
        del self._deadlines[key]
        return key

    def _put_right(self) -> None:
        """Correct the first entry: its key has another deadline, or none."""
        key = self._pop()
        deadline_ms = self._deadlines.get(key)
        if deadline_ms is not None and key not in self._queued:
            self._push(key, deadline_ms)

    def _pop(self) -> K:
        queued_ms, _, key = heapq.heappop(self._queue)
        if self._queued.get(key) == queued_ms:
            del self._queued[key]
        return key

    def _push(self, key: K, deadline_ms: int) -> None:
        heapq.heappush(self._queue, (deadline_ms, next(self._numbers), key))
        self._queued[key] = deadline_ms

    def _rebuild(self) -> None:
        self._queued = dict(self._deadlines)
        self._queue = [(deadline_ms, next(self._numbers), key) for key, deadline_ms in self._deadlines.items()]
        heapq.heapify(self._queue)
