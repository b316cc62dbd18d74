"""The time of a broker in a test: it runs as the system's, and can be moved forward."""

from __future__ import annotations

import math
import time
from typing import Final

import attrs
import trio

from ..system.clock import NowMs, system_now_ms

MAX_SLEEP_S: Final = 3600.0
MAX_MOVED_S: Final = 10**10
"""Three centuries. Seconds beyond have no fractions of use, and timestamps end."""


@attrs.define(eq=False, repr=False)
class MovedClock(trio.abc.Clock):
    """Owner of the distance between a broker's time and the system's. As trio's clock it moves deadlines too: session and
    transaction timeouts, long polls. trio's MockClock would jump while a worker thread runs; this one moves when told."""

    wall: NowMs = system_now_ms
    wall_offset_ms: int = 0
    deadline_offset_s: float = 0.0
    frozen_ms: int | None = None
    is_tests: bool = True
    """Whether the broker runs on this clock. False: its time is that of the machine."""

    def __repr__(self) -> str:
        return f"<clock at {self.now_ms()} ms{' (frozen)' if self.frozen_ms is not None else ''}>"

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.wall_offset_ms + (self.wall() if self.frozen_ms is None else self.frozen_ms)

    def advance(self, seconds: float) -> None:
        """Let so much time have passed. Call it in the trio thread, or before trio runs."""
        if not 0 <= seconds <= MAX_MOVED_S - self.deadline_offset_s:
            raise ValueError(f"the clock only moves forward, by at most {MAX_MOVED_S} s in total, not by {seconds} s")
        self.wall_offset_ms += round(seconds * 1000)
        self.deadline_offset_s += seconds

    def freeze(self) -> None:
        """Stop the wall clock; deadlines continue."""
        self.frozen_ms = self.wall()

    def unfreeze(self) -> None:
        """Start the clock again from its time."""
        if self.frozen_ms is not None:
            self.wall_offset_ms += self.frozen_ms - self.wall()
            self.frozen_ms = None

    def reset(self) -> None:
        """Run as the system's again; deadlines do not go back."""
        self.frozen_ms = None
        self.wall_offset_ms = 0

    def copy(self) -> MovedClock:
        """Return another clock with the same time, which then runs separately."""
        return attrs.evolve(self)

    # ---- trio's clock ----------------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """It runs already."""

    def current_time(self) -> float:
        return time.perf_counter() + self.deadline_offset_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time() if deadline < math.inf else MAX_SLEEP_S


def clock_by(now_ms: NowMs) -> MovedClock:
    """The clock of a broker that was given none."""
    return MovedClock(now_ms, is_tests=now_ms is not system_now_ms)
