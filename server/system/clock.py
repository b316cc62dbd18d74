"""Wall-clock time, injected wherever a rule depends on it. Deadlines are not here: they are trio time."""

from __future__ import annotations

import time
from collections.abc import Callable

NowMs = Callable[[], int]
"""Milliseconds since the epoch."""


def system_now_ms() -> int:
    """The system's wall clock in ms since the epoch."""
    return time.time_ns() // 1_000_000
