"""The choice for each write: on the spot, or in a thread.

A write into the page cache takes 10 us, one of 128 KiB 30 to 60; the way to a thread and back takes 150 to 300 us. But where
too much is dirty, or the journal is busy, the kernel delays the writer and with it all clients of the event loop. So the loop
itself writes as long as that is quick. A slow write sends the next writes to threads, for longer each time it happens again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

import attrs

from ...protocol.limits import KIB, MIB
from ..loop.turns import Turns
from ..storage.disk.diskops import DiskOp, Write
from ..storage.disk.filesystem import FileSystem

MAX_BYTES: Final = MIB
"""More than that is worth a thread: it is copied while others are served."""
SMALL_BYTES: Final = 16 * KIB
"""Larger writes count in the turn."""
BYTES_PER_STEP: Final = 2 * KIB
"""Of larger ones: 0.4 us for each KiB on a busy machine."""
SLOW_S: Final = 0.005
"""As long as a switch to another process takes; below that nobody notices."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 60.0


@attrs.define(eq=False, repr=False)
class WritesAtOnce:
    """Memory of how quick writes were. Owner: the disk."""

    turns: Turns = attrs.field(factory=Turns)
    """How much is done in a turn."""
    clock: Callable[[], float] = perf_counter
    _begun_s: float = 0.0
    """When somebody asked last whether to write."""
    _not_before_s: float = float("-inf")
    _pause_s: float = FIRST_PAUSE_S

    def suits(self, fs: FileSystem, operations: Sequence[DiskOp]) -> bool:
        """Return whether these are writes that fit the turn, the file system never keeps writers waiting, and the last writes
        were quick. If so, the caller writes and then calls `done`."""
        self._begun_s = self.clock()
        if self._begun_s < self._not_before_s or not fs.writes_at_once:
            return False
        size = 0
        for operation in operations:
            if operation.__class__ is not Write:
                return False
            size += sum(map(len, operation.buffers))
        return size <= SMALL_BYTES or (size <= MAX_BYTES and self.turns.fit(size // BYTES_PER_STEP))

    def done(self) -> None:
        """The writes are over, and took as long as it is since `suits`."""
        now_s = self.clock()
        if now_s - self._begun_s < SLOW_S:
            return
        was_quick_for_s = now_s - self._not_before_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if was_quick_for_s < self._pause_s else FIRST_PAUSE_S
        self._not_before_s = now_s + self._pause_s


class AlwaysQuick(WritesAtOnce):
    """A memory of writes that ignores slow ones, so that a busy machine changes nothing: for runs that count operations
    without threads."""

    def done(self) -> None:
        """They were quick enough."""
