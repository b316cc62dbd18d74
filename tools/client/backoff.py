"""How long to wait before trying again: doubling, with jitter, so that many clients do not come back at the same moment."""

from __future__ import annotations

import random
from typing import Final

JITTER: Final = 0.2
"""Each pause is longer or shorter by up to this part (Kafka: ExponentialBackoff, as its clients configure it)."""

_random: Final = random.Random()


class Backoff:
    """Pauses between attempts at one thing. `pause_s` counts a failure, `reset` forgets them."""

    __slots__ = ("_failures", "_initial_ms", "_max_ms", "_random")

    def __init__(self, initial_ms: int, max_ms: int, source: random.Random = _random) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._random = source
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures since the last reset."""
        return self._failures

    def reset(self) -> None:
        """It has worked."""
        self._failures = 0

    def pause_s(self) -> float:
        """It has failed again: seconds to wait before the next attempt."""
        pause_ms = min(self._max_ms, self._initial_ms << min(self._failures, 30))
        self._failures += 1
        return pause_ms / 1000 * self._random.uniform(1 - JITTER, 1 + JITTER)
