"""Wall-clock time, injected wherever a rule depends on it. Deadlines are not here: they are trio time.

Retention and expiry trust the wall clock, and what they delete does not come back. A board without a battery starts in 1970, or
where it was switched off, and jumps when its time service answers. So `ServerClock` compares the wall clock with the time that
has passed since it was last trusted, and with the range in which the present can be:

| state | entered when the clock | server's time | expiry by time |
|---|---|---|---|
| trusted | is plausible at the start | wall clock | runs |
| held | jumps ahead by more than MAX_STEP_MS | wall clock | suspended for HOLD_S |
| implausible | is out of the plausible range, or jumps back by more than MAX_STEP_MS | continues | suspended |

A held clock is trusted at once when it is set back to where it was. An implausible clock is plausible again once it shows the
last trusted time, or at a start the earliest plausible time. If it is then ahead of the server's time, it is held: local
programs still send records that they stamped before the jump.

The server's time goes back by more than MAX_STEP_MS only where an implausible clock becomes plausible again after it was set
back: by no more than the time in between. systemd-timesyncd and fake-hwclock continue from the last known time in the same way.

*Invariants*: `is_trusted` implies `is_plausible`. Only `begin` and `look` change the state, in the trio thread; `now_ms` may be
called in any thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import attrs

LOGGER: Final = logging.getLogger(__name__)

NowMs = Callable[[], int]
"""Milliseconds since the epoch."""


def system_now_ms() -> int:
    """The system's wall clock in ms since the epoch."""
    return time.time_ns() // 1_000_000


def since_boot_s() -> float:
    """Seconds that only go ahead and count the time in which the machine sleeps, unlike `time.monotonic`: a laptop that wakes
    up shows no jump."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))  # macOS: the second one counts it


MAX_STEP_MS: Final = 600_000
"""Ten minutes: far above what time services correct at once, far below any sensible retention.ms."""
HOLD_S: Final = 3_600.0
FOREVER_MS: Final = 2**63 - 1


@attrs.define(eq=False, repr=False)
class ServerClock:
    """The server's time, and whether expiry may trust it. Owner: the log manager.

    `elapsed_s` returns seconds that only go ahead. Without `is_checked` the server's time is always the wall clock, and
    plausible. A jump ahead still suspends retention.
    """

    wall_ms: NowMs
    elapsed_s: Callable[[], float] = since_boot_s
    is_checked: bool = True
    is_plausible: bool = True
    """Whether the server's time is the wall clock's."""
    is_trusted: bool = True
    """Whether expiry by time may trust it."""
    jumps: int = 0
    """Jumps since the start, in either direction."""
    _is_system: bool = attrs.field(init=False)
    _base_ms: int = attrs.field(init=False)
    """The server's time at `_base_s`, when the clock was last trusted."""
    _base_s: float = attrs.field(init=False)
    _seen_ms: int = attrs.field(init=False)
    """The wall clock when it was last looked at."""
    _seen_s: float = attrs.field(init=False)
    _floor_ms: int = 0
    """The earliest time at which an implausible clock is plausible again."""
    _latest_ms: int = FOREVER_MS
    _hold_until_s: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._is_system = self.wall_ms is system_now_ms
        self._base_ms = self._seen_ms = self.wall_ms()
        self._base_s = self._seen_s = self.elapsed_s()

    @property
    def floor_ms(self) -> int:
        """The earliest time that the clock could show when it lost trust."""
        return self._base_ms if self.is_plausible else self._floor_ms

    def now_ms(self) -> int:
        """The server's time in ms since the epoch."""
        wall_ms = time.time_ns() // 1_000_000 if self._is_system else self.wall_ms()  # without another call in each request
        if self.is_plausible and -MAX_STEP_MS <= wall_ms - self._seen_ms <= MAX_STEP_MS:
            return wall_ms
        if not self.is_checked:
            return wall_ms
        expected_ms = self._expected_ms(self.elapsed_s())  # `look` has not noticed the jump yet, or waits for it
        is_right = self.is_plausible and expected_ms - MAX_STEP_MS <= wall_ms <= self._latest_ms
        return wall_ms if is_right else expected_ms

    def begin(self, floor_ms: int, latest_ms: int, resume_ms: int, evidence: str) -> None:
        """Check the clock at a start. It is plausible from `floor_ms` to `latest_ms`, both inclusive. If it is not, the
        server's time starts at `resume_ms`. `evidence` is the reason for the floor, for the log line."""
        if not self.is_checked:
            return
        self._latest_ms = latest_ms
        wall_ms, seen_s = self.wall_ms(), self.elapsed_s()
        self._seen_ms, self._seen_s = wall_ms, seen_s
        if floor_ms <= wall_ms <= latest_ms:
            self._trust(wall_ms, seen_s)
            return
        self._base_ms, self._base_s = resume_ms, seen_s
        self._suspend(floor_ms, wall_ms, evidence)

    def look(self) -> None:
        """Compare the clock with the time that has passed. Call it about once a second."""
        wall_ms, seen_s = self.wall_ms(), self.elapsed_s()
        expected_ms = self._expected_ms(seen_s)
        stepped_ms = wall_ms - self._seen_ms - round((seen_s - self._seen_s) * 1000)
        self._seen_ms, self._seen_s = wall_ms, seen_s
        self.jumps += abs(stepped_ms) > MAX_STEP_MS
        if not self.is_plausible:
            if self._floor_ms <= wall_ms <= self._latest_ms:
                self._accept(wall_ms, seen_s, expected_ms)
        elif wall_ms > self._latest_ms or wall_ms < expected_ms - MAX_STEP_MS:
            self._went_back(wall_ms, seen_s, expected_ms)
        elif stepped_ms > MAX_STEP_MS:
            self._hold(seen_s, wall_ms, stepped_ms)
        elif self.is_trusted or wall_ms <= expected_ms + MAX_STEP_MS:
            if not self.is_trusted:
                LOGGER.warning("clock trusted again: it was set back: wall_clock=%s", time_text(wall_ms))
            self._trust(wall_ms, seen_s)
        elif seen_s >= self._hold_until_s:
            LOGGER.warning("clock trusted again: wall_clock=%s held_s=%d", time_text(wall_ms), HOLD_S)
            self._trust(wall_ms, seen_s)

    def _accept(self, wall_ms: int, seen_s: float, expected_ms: int) -> None:
        LOGGER.warning("clock plausible again: wall_clock=%s server_time_was=%s", time_text(wall_ms), time_text(expected_ms))
        self.is_plausible = True
        if wall_ms <= expected_ms + MAX_STEP_MS:
            self._trust(wall_ms, seen_s)
        else:
            self._hold(seen_s, wall_ms, wall_ms - expected_ms)

    def _went_back(self, wall_ms: int, seen_s: float, expected_ms: int) -> None:
        if self.is_checked:
            self._base_ms, self._base_s = expected_ms, seen_s
            self._suspend(expected_ms, wall_ms, "the clock before it was set")
        else:
            LOGGER.warning(
                "clock jumped back: wall_clock=%s jump_ms=%d: retention.ms applies that much later",
                time_text(wall_ms),
                expected_ms - wall_ms,
            )
            self._trust(wall_ms, seen_s)

    def _suspend(self, floor_ms: int, wall_ms: int, evidence: str) -> None:
        self.is_plausible = self.is_trusted = False
        self._floor_ms = floor_ms
        LOGGER.warning(
            "clock implausible: wall_clock=%s earliest=%s evidence=%r latest=%s server_time=%s: retention.ms and all expiry "
            "are suspended. Set the clock; if it is right, start the server with clock_check=false",
            time_text(wall_ms),
            time_text(floor_ms),
            evidence,
            time_text(self._latest_ms),
            time_text(self._base_ms),
        )

    def _hold(self, seen_s: float, wall_ms: int, jump_ms: int) -> None:
        self.is_trusted = False
        self._hold_until_s = seen_s + HOLD_S
        LOGGER.warning(
            "clock jumped ahead: wall_clock=%s jump_ms=%d: retention.ms and all expiry are suspended for %d s. If the clock is "
            "wrong now, correct it",
            time_text(wall_ms),
            jump_ms,
            HOLD_S,
        )

    def _trust(self, wall_ms: int, seen_s: float) -> None:
        self.is_plausible = self.is_trusted = True
        self._base_ms, self._base_s = wall_ms, seen_s

    def _expected_ms(self, seen_s: float) -> int:
        return self._base_ms + round((seen_s - self._base_s) * 1000)


def time_text(time_ms: int) -> str:
    """The time in UTC as in ISO 8601, to the second; the number where no calendar has it."""
    try:
        return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms}ms"
