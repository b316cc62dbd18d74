"""Pauses between attempts: they double, with jitter, so that many clients do not come back at the same moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

import attrs

from ...protocol.errors import ErrorCode, RequestError

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


PAUSES_MS: Final = (50, 1000)
"""The first and the longest pause of `Retries` without a backoff of their own."""
_STAYING: Final = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def passes(error: RequestError) -> bool:
    """Return whether a read may be retried. Unlike in Kafka's clients, damaged data and an unknown topic are final."""
    return error.retriable and error.code not in _STAYING


@attrs.define
class Retries:
    """A retry policy: decides whether a failed call is retried in this thread, and waits before the retry."""

    timeout_s: float
    """From the first failure on, where `give_up_at` is not known before."""
    passes: Callable[[RequestError], bool] = lambda error: error.retriable
    """Whether trying again may help."""
    give_up_at: float = float("inf")
    """As time.monotonic has it."""
    _backoff: Backoff = attrs.field(factory=lambda: Backoff(*PAUSES_MS))
    _last: RequestError | None = None

    def failed(self, error: RequestError) -> None:
        """Wait before the next attempt; raises what has failed when there is to be none."""
        if not self.passes(error):
            raise error
        now = time.monotonic()
        before, self._last = self._last, error
        self.give_up_at = min(self.give_up_at, now + self.timeout_s)
        pause_s = self._backoff.pause_s()
        if now + pause_s >= self.give_up_at:
            raise before if before is not None and now >= self.give_up_at else error  # the last attempt was cut short
        time.sleep(pause_s)
