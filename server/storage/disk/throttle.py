"""A limit on bytes per second, of reads and writes together (Kafka: Throttler, log.cleaner.io.max.bytes.per.second)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

MAX_PAUSE_S: Final = 1.0
"""No pause is longer, so that whoever waits for the work to be given up does not wait long."""


class Throttle:
    """Owner: one piece of work. `clock` and `sleep` are in seconds."""

    __slots__ = ("_allowed_at", "_clock", "_max_bytes_per_second", "_sleep")

    def __init__(
        self,
        max_bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._max_bytes_per_second = max_bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._allowed_at = clock()

    def spend(self, size: int, keep_on: Callable[[], None]) -> None:
        """Wait until `size` more bytes may have been read or written; `keep_on` is called between pauses and may raise."""
        if not self._max_bytes_per_second:
            return
        now = self._clock()
        self._allowed_at = max(self._allowed_at, now) + size / self._max_bytes_per_second
        while (ahead := self._allowed_at - self._clock()) > 0:
            self._sleep(min(ahead, MAX_PAUSE_S))
            keep_on()
