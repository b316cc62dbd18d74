"""Wall-clock time, injected wherever a rule depends on it. Deadlines are not here: they are trio time.

Notices when the wall clock jumps. Retention by time trusts it, and what it deletes does not come back.

A jump ahead by more than MAX_STEP_MS beyond the time that really passed holds retention by time for HOLD_S: a wrong clock that
is set right within that time costs nothing. After that the new time is believed, as it must be where a clock was wrong before.
Jumps back only make retention wait. A clock that is wrong since before the start cannot be noticed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import attrs
import trio

LOGGER: Final = logging.getLogger(__name__)

NowMs = Callable[[], int]
"""Milliseconds since the epoch."""


def system_now_ms() -> int:
    """The system's wall clock in ms since the epoch."""
    return time.time_ns() // 1_000_000


MAX_STEP_MS: Final = 600_000
"""Ten minutes: far above what time services correct at once, far below any sensible retention.ms."""
HOLD_S: Final = 3_600.0


@attrs.define(eq=False, repr=False)
class ClockWatch:
    """Compares the wall clock with trio's, which only goes ahead. Owner: the maintenance."""

    now_ms: NowMs
    _wall_ms: int = attrs.field(init=False)
    _seen_s: float = attrs.field(init=False)
    _hold_until_s: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._wall_ms, self._seen_s = self.now_ms(), trio.current_time()

    def look(self) -> None:
        """Compare, as often as anybody likes."""
        wall_ms, seen_s = self.now_ms(), trio.current_time()
        jumped_ms = wall_ms - self._wall_ms - round((seen_s - self._seen_s) * 1000)
        self._wall_ms, self._seen_s = wall_ms, seen_s
        if jumped_ms > MAX_STEP_MS:
            self._hold_until_s = seen_s + HOLD_S
            LOGGER.warning(
                "clock jumped ahead by %d ms: retention.ms is suspended for %d s. If the clock is wrong now, correct it.",
                jumped_ms,
                HOLD_S,
            )
        elif jumped_ms < -MAX_STEP_MS:
            self._hold_until_s = 0.0
            LOGGER.warning("clock jumped back by %d ms: retention.ms applies that much later", -jumped_ms)

    @property
    def is_trusted(self) -> bool:
        """Return whether retention by time may trust the clock."""
        return trio.current_time() >= self._hold_until_s
